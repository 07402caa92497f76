/* An address of a place that has moved: a page became a folder of pages, and the place is on another of them.
   It is looked for on those that the navigation lists, and the reader is taken there. */

(() => {
  "use strict";

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
})();
