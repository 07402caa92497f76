/* A page of evidence, which has no theme: light or dark as the reader has chosen on the site's pages, or as
   the system is. */

(() => {
  "use strict";

  const { pathname } = new URL("..", document.currentScript.src);
  let chosen;
  try {
    chosen = JSON.parse(localStorage.getItem(`${pathname}.__palette`))?.color;
  } catch {
    // no storage, or nothing that can be read
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const own = chosen?.media === "(prefers-color-scheme)" ? undefined : chosen?.scheme;
    document.body.dataset.mdColorScheme = own || (dark.matches ? "slate" : "default");
  };
  dark.addEventListener("change", show);
  show();
})();
