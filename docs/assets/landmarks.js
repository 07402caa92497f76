/* What the theme's script makes after a page has loaded, corrected for keyboards and screen readers.

   The buttons of each block of code, and the tags of each page that a search finds, come in a
   navigation without a name, which would make a page a list of landmarks; and a table that scrolls
   sideways cannot be scrolled with the keys. */

(() => {
  "use strict";

  const NO_LANDMARKS = "nav.md-code__nav:not([role]), .md-search-result nav.md-tags:not([role])";

  function mend() {
    for (const list of document.querySelectorAll(NO_LANDMARKS)) list.setAttribute("role", "none");
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      const scrolls = box.scrollWidth > box.clientWidth;
      if (scrolls === box.hasAttribute("tabindex")) continue;
      if (scrolls) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  let waiting = 0;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(mend);
  };
  new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
  addEventListener("resize", soon);
  soon();
})();
