/* What a page shows when it is asked for: evidence, a whole file, kernels that run here, views line by line.
   Without a script, lines link to the first two. */

(() => {
  "use strict";

  const home = new URL("..", document.currentScript.src);

  async function get(url) {
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
    return answer.text();
  }

  // The evidence is a page by itself, whose links are relative to its own address.
  async function evidence(url) {
    const page = new DOMParser().parseFromString(await get(url), "text/html");
    const found = document.importNode(page.getElementById("evidence"), true);
    found.removeAttribute("id");
    for (const link of found.querySelectorAll("a[href]")) link.href = new URL(link.getAttribute("href"), url);
    for (const head of found.querySelectorAll("h2")) {
      const line = document.createElement("p"); // no heading of this page
      line.className = "ws-label";
      line.append(...head.childNodes);
      head.replaceWith(line);
    }
    return found;
  }

  async function file(url) {
    const block = document.createElement("div");
    block.className = `language-${url.endsWith(".py") ? "python" : "c++"} highlight`;
    const code = document.createElement("code");
    code.textContent = (await get(url)).replace(/^[ \t]*(?:#|\/\/)[ \t]*-+8<-+ \[.*\n/gm, "");
    const pre = document.createElement("pre");
    pre.append(code);
    block.append(pre);
    return block;
  }

  const running = () => import(new URL("assets/run.js", home));

  async function unfold({ target: fold }) {
    const link = fold.querySelector("a"), { run, loaded } = fold.dataset;
    if (!fold.open || loaded || !(link || run)) return;
    fold.dataset.loaded = "yes";
    try {
      if (run) return (await running()).open(fold, home);
      const whole = fold.classList.contains("ws-file");
      fold.append(await (whole ? file(link.href) : evidence(link.href)));
      start();
      dispatchEvent(new Event("ws-code"));
    } catch (error) {
      delete fold.dataset.loaded;
      console.warn(error);
    }
  }

  async function open(row, button) {
    button.setAttribute("aria-busy", "true");
    try {
      const { open } = await import(new URL("assets/look.js", home));
      await open(row.dataset.look, row.closest("table"), home);
    } catch (error) {
      button.textContent = "line by line: not loaded, press to try again";
      console.warn(error);
    }
    button.removeAttribute("aria-busy");
  }

  function start() {
    for (const fold of document.querySelectorAll(".ws-evidence, .ws-file, .ws-run")) {
      fold.ontoggle = unfold;
      if (fold.dataset.run && /^#(run|kernel=)/.test(location.hash)) fold.open = true;
    }
    const box = document.querySelector(".ws-watch");
    if (box) setTimeout(async () => (await running()).watch(box, home), 2000); // the page comes first
    for (const row of document.querySelectorAll("tr[data-look]:not([data-opens])")) {
      row.setAttribute("data-opens", "");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "ws-look";
      button.textContent = "line by line";
      button.addEventListener("click", () => open(row, button));
      row.cells[0].querySelector("small").before(button);
    }
  }

  function begin() {
    document.querySelector("dialog.ws-view")?.remove(); // of the page before
    start();
  }

  // The theme says when it replaces a page; opened from a disk, it ends before it says so.
  if (window.document$) window.document$.subscribe({ next: begin, complete: begin });
  else begin();
})();
