/* Formulas: KaTeX from this site, asked for only on a page that has some.

   arithmatex leaves each formula as TeX between \( \) or \[ \] in an element of its own, which is
   what is read where no script runs. KaTeX itself is packed: `gzip` in base64, in a script, since a
   page opened from a disk may ask for nothing else. */

(() => {
  "use strict";

  const folder = new URL("katex/", document.currentScript.src);
  let loading = null;

  function load() {
    loading ??= new Promise((resolve, reject) => {
      const sheet = document.createElement("link");
      sheet.rel = "stylesheet";
      sheet.href = new URL("katex.min.css", folder).href;
      const script = document.createElement("script");
      script.src = new URL("katex.packed.js", folder).href;
      script.onload = () => unpacked().then(resolve, reject);
      script.onerror = () => reject(new Error("KaTeX was not loaded; formulas stay TeX"));
      // Not in the head: the theme gives it up for the next page's, which does not know of them.
      document.body.append(sheet, script);
    });
    return loading;
  }

  async function unpacked() {
    const bytes = Uint8Array.from(atob(window.katexPacked), (one) => one.charCodeAt(0));
    const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(text).text();
    document.body.append(script);
    return window.katex;
  }

  function show() {
    const found = document.querySelectorAll(".arithmatex:not([data-shown])");
    if (!found.length) return;
    load().then((katex) => {
      for (const element of found) {
        const text = element.textContent.trim();
        const displayMode = text.startsWith("\\[");
        element.setAttribute("data-shown", "");
        katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false });
      }
    }, console.error);
  }

  // With instant navigation a page changes without being loaded; `document$` tells of each.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: show, complete: show });
  else show();
})();
