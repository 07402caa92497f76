/* Views of kernels, line by line: a button in each row of their table, whose script, style sheet and
   data are asked for when it is pressed. Without it the table of totals is all there is. */

(() => {
  "use strict";

  const home = new URL("..", document.currentScript.src);

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
    document.querySelector("dialog.ws-view")?.remove(); // of the page before
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

  // With instant navigation the theme replaces pages, and says so here.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: start, complete: start });
  else start();
})();
