/* Two things on every page. A place that has moved is looked for: a page became a folder of pages, and the
   place is on another of them. It is looked for on those that the navigation lists, and the reader is taken
   there.

   And what the theme's script makes after a page has loaded is corrected for keyboards and screen readers. The
   buttons of each block of code, and the tags of each page that a search finds, come in a navigation without
   a name, which would make a page a list of landmarks; and a table that scrolls sideways cannot be scrolled
   with the keys. */

(() => {
  "use strict";

  // A place that has moved.

  async function find() {
    let name = location.hash.slice(1);
    try {
      name = decodeURIComponent(name);
    } catch {
      // No text either; its letters will do.
    }
    if (!name || document.getElementById(name)) return;
    const here = location.pathname;
    const links = [...document.querySelectorAll(".md-nav__link[href]")].map((link) => new URL(link.href));
    const pages = links.filter((link) => link.pathname.startsWith(here) && link.pathname !== here);
    for (const path of new Set(pages.map((link) => link.pathname))) {
      const answer = await fetch(path);
      const page = new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
      if (page.getElementById(name)) return location.replace(`${path}#${encodeURIComponent(name)}`);
    }
  }

  // With instant navigation the theme replaces pages, and says so here.
  if (window.document$) window.document$.subscribe(find);
  else find();

  // What the theme makes.

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
