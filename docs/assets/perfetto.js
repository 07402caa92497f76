/* Traces: a button beside each link to one, that opens it in Perfetto's viewer. Without it the link
   downloads the file, and the viewer takes it by hand.

   Nothing is asked of the viewer's host before the button is pressed. Then its page is opened in a
   tab of its own, and the trace handed to that tab: the viewer's documented way is to send PING until
   it answers PONG, since what comes before it listens is lost. The trace stays in the browser. */

(() => {
  "use strict";

  const VIEWER = "https://ui.perfetto.dev";
  const EVERY = 100; // ms between two PINGs
  const PATIENCE = 30000; // ms in which the viewer must be there

  // Told as soon as the viewer listens. Never of another page, even in the viewer's tab.
  function ready(viewer) {
    return new Promise((resolve, reject) => {
      const begun = performance.now();
      const timer = setInterval(() => {
        if (viewer.closed) end(reject, "its tab was closed");
        else if (performance.now() - begun > PATIENCE) end(reject, "it does not answer");
        else viewer.postMessage("PING", VIEWER);
      }, EVERY);
      function heard({ source, origin, data }) {
        if (source === viewer && origin === VIEWER && data === "PONG") end(resolve);
      }
      function end(settle, why) {
        clearInterval(timer);
        removeEventListener("message", heard);
        settle(why && new Error(why));
      }
      addEventListener("message", heard);
    });
  }

  async function trace(link) {
    const answer = await fetch(link.href);
    if (!answer.ok) throw new Error(`the trace cannot be loaded (${answer.status})`);
    return answer.arrayBuffer();
  }

  async function show(link, status) {
    // At once, or the browser no longer counts it as part of the click.
    const viewer = window.open(VIEWER);
    if (!viewer) {
      status.textContent = "The browser blocked the new tab: allow it, or download the trace.";
      return;
    }
    status.textContent = "Waiting for Perfetto …";
    try {
      const [buffer] = await Promise.all([trace(link), ready(viewer)]);
      const { perfetto: title } = link.dataset;
      const fileName = link.pathname.split("/").pop();
      viewer.postMessage({ perfetto: { buffer, title, fileName } }, VIEWER);
      status.textContent = "Opened in Perfetto, in the other tab.";
    } catch (error) {
      status.textContent = `Not opened in Perfetto: ${error.message}. Download the trace and open it there.`;
    }
  }

  function start() {
    if (location.protocol === "file:") return; // a page on a disk may hand on nothing
    for (const link of document.querySelectorAll("a[data-perfetto]:not([data-opens])")) {
      link.setAttribute("data-opens", "");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "ws-look";
      button.textContent = "open in Perfetto";
      button.title = `Opens ${VIEWER} in a new tab`;
      const status = document.createElement("span");
      status.className = "ws-handed";
      status.setAttribute("role", "status");
      link.after(" ", button, " ", status);
      button.addEventListener("click", () => show(link, status));
    }
  }

  // With instant navigation the theme replaces pages, and says so here.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: start, complete: start });
  else start();
})();
