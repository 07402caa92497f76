/* The page for a missing address: offers the pages whose names are most like it.

   The names of all pages are in this page, so nothing is asked for. Without scripts the page has its plain
   links. */

(() => {
  "use strict";

  const MOST = 5; // pages offered
  const TITLE = 0.9; // of a word that stands in a page's title and not in its address
  const ENOUGH = 0.5; // likeness of a word, from 0 to 1, below which it counts for nothing
  const PASSED_OVER = new Set(["index", "html", "htm", "md", "php", "www", "the", "and", "of"]);

  const wordsOf = (text) =>
    text
      .toLowerCase()
      .split(/[^\p{L}\p{N}]+/u)
      .filter((word) => word.length > 1 && !PASSED_OVER.has(word));

  const pairs = (word) => Array.from(word.slice(1), (letter, i) => word[i] + letter);

  // Dice's coefficient of pairs of letters: forgives a letter left out, added or exchanged.
  function likeness(one, other) {
    if (one === other) return 1;
    const first = pairs(one);
    const second = pairs(other);
    if (!first.length || !second.length) return 0;
    const left = [...second];
    let shared = 0;
    for (const pair of first) {
      const at = left.indexOf(pair);
      if (at < 0) continue;
      left.splice(at, 1);
      shared += 1;
    }
    return (2 * shared) / (first.length + second.length);
  }

  const home = new URL(document.querySelector(".md-logo").href);
  let path = location.pathname;
  if (path.startsWith(home.pathname)) path = path.slice(home.pathname.length);
  try {
    path = decodeURIComponent(path);
  } catch {
    // An address that is no text either; its letters will do.
  }
  const sought = wordsOf(path).slice(0, 12);
  const article = document.querySelector(".md-content article");
  if (!sought.length || !article) return;

  const pages = new Map(); // by address, so that what stands twice is offered once
  for (const link of document.getElementById("ws-pages").content.querySelectorAll("a")) {
    const { origin, pathname, href } = new URL(link.getAttribute("href"), location.href);
    const title = link.textContent.trim().replace(/\s+/g, " ");
    if (origin !== home.origin || !title || pages.has(pathname)) continue;
    const own = pathname.slice(home.pathname.length);
    // A name may be asked for without its hyphen.
    const address = [...wordsOf(own), ...own.split("/").map((part) => part.replace(/\W|_/g, ""))];
    const known = new Map(wordsOf(title).map((word) => [word, TITLE]));
    for (const word of address) if (word) known.set(word, 1);
    let score = 0;
    for (const word of sought) {
      const alike = Array.from(known, ([other, weight]) => weight * likeness(word, other));
      const best = Math.max(0, ...alike);
      if (best >= ENOUGH) score += best;
    }
    // Of two that hold all words, the one that holds little else.
    if (score) pages.set(pathname, { title, href, score: score - wordsOf(own).length / 100 - known.size / 10000 });
  }
  const found = [...pages.values()].sort((a, b) => b.score - a.score).slice(0, MOST);

  const search = document.querySelector(".md-search__input");
  if (search) search.value = sought.join(" ");
  if (!found.length) return;

  const lead = document.createElement("p");
  lead.textContent = "The most similar pages:";
  const list = document.createElement("ul");
  list.className = "ws-missing-pages";
  for (const { title, href } of found) {
    const link = document.createElement("a");
    link.href = href;
    link.textContent = title;
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  article.querySelector("h1").after(lead, list);
})();
