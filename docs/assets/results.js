/* The page of results: its table is sorted by any column, and two machines are chosen to stand side
   by side. Without it the table stands in its own order, with the two that measured most.

   A cell's `data-sort` is what it is sorted by, its own text where it has none; times carry
   `data-median`, `data-p20` and `data-p80` in seconds. What the page holds is only ever set as text. */

(() => {
  "use strict";

  let collator; // made when something is sorted
  const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/;

  /* Sorting. */

  function keyOf(row, column) {
    const cell = row.children[column];
    if (!cell) return "";
    const key = cell.getAttribute("data-sort");
    return key === null ? "" : key;
  }

  // What has no value comes last, whichever way the rest is sorted.
  function compare(a, b, down) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const numbers = NUMBER.test(a) && NUMBER.test(b);
    collator ??= new Intl.Collator("en", { numeric: true });
    const order = numbers ? Number(a) - Number(b) : collator.compare(a, b);
    return down ? -order : order;
  }

  function sort(table, column, down) {
    for (const body of table.tBodies) {
      const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
      rows.sort((a, b) => compare(a.key, b.key, down)); // among equals, the order stays
      body.append(...rows.map(({ row }) => row));
    }
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const keys = [...table.tBodies].flatMap((body) => [...body.rows].map((row) => keyOf(row, column)));
      if (new Set(keys).size < 2) return; // nothing to sort by
      const button = document.createElement("button");
      button.type = "button";
      button.className = "ws-sort";
      button.append(...head.childNodes);
      head.append(button);
      // Of numbers the largest is asked for first, of words the first.
      const numbers = keys.some((key) => key !== "" && NUMBER.test(key));
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        sort(table, column, now === null ? numbers : now === "ascending");
      });
    });
  }

  /* Two machines. */

  function timeOf(cell) {
    if (!cell || !cell.dataset.median) return null;
    const { median, p20, p80 } = cell.dataset;
    return { median: Number(median), p20: Number(p20), p80: Number(p80) };
  }

  const tied = (a, b) => a.p20 <= b.p80 && b.p20 <= a.p80;

  function ratio(a, b) {
    const times = a.median / b.median;
    return `${times >= 1000 ? Math.round(times) : times.toPrecision(3)}×`;
  }

  function compared(a, b) {
    if (!a || !b) return "on one only";
    return tied(a, b) ? "tie" : ratio(a, b);
  }

  function said(pairs, first, second) {
    const both = pairs.filter(([a, b]) => a && b);
    if (both.length === 0) return `no time on both ${first} and ${second}`;
    const ties = both.filter(([a, b]) => tied(a, b)).length;
    const faster = both.filter(([a, b]) => !tied(a, b) && a.median > b.median).length;
    const slower = both.length - ties - faster;
    const of = both.length === 1 ? "one time" : `${both.length} times`;
    return `of ${of}, ${second} is faster in ${faster}, slower in ${slower}, tied in ${ties}`;
  }

  // Puts the two columns first, in their order, and hides the others.
  function lay(row, chosen) {
    const cells = [...row.querySelectorAll(":scope > [data-machine]")];
    const own = chosen.map((slug) => cells.find((cell) => cell.dataset.machine === slug));
    for (const cell of cells) cell.hidden = !own.includes(cell);
    row.firstElementChild.after(...own);
    return own;
  }

  function show(box, chosen, names) {
    for (const fold of box.querySelectorAll(".ws-pair")) {
      const table = fold.querySelector("table");
      lay(table.tHead.rows[0], chosen);
      const pairs = [];
      for (const row of table.querySelectorAll("tbody > tr")) {
        if (!row.querySelector("[data-machine]")) continue;
        const pair = lay(row, chosen).map(timeOf);
        row.querySelector(".ws-pair-ratio").textContent = compared(...pair);
        pairs.push(pair);
      }
      const line = said(pairs, names.get(chosen[0]), names.get(chosen[1]));
      fold.querySelector(".ws-pair-said").textContent = line;
    }
    const words = box.querySelector(".ws-pair-names");
    words.textContent = `${names.get(chosen[0])}, then ${names.get(chosen[1])}`;
  }

  function choosable(box) {
    const names = new Map();
    for (const head of box.querySelectorAll("th[data-machine]")) {
      names.set(head.dataset.machine, head.dataset.name);
    }
    if (names.size < 2) return;
    const chosen = [...names.keys()].slice(0, 2);
    const selects = ["First machine", "Second machine"].map((label, place) => {
      const select = document.createElement("select");
      select.setAttribute("aria-label", label);
      for (const [slug, name] of names) {
        const option = document.createElement("option");
        option.value = slug;
        option.textContent = name;
        select.append(option);
      }
      select.addEventListener("change", () => {
        // No machine stands beside itself: the two swap places.
        if (select.value === chosen[1 - place]) chosen[1 - place] = chosen[place];
        chosen[place] = select.value;
        selects.forEach((one, index) => (one.value = chosen[index]));
        show(box, chosen, names);
      });
      return select;
    });
    selects.forEach((one, index) => (one.value = chosen[index]));
    const form = document.createElement("form");
    form.className = "ws-pair-choice";
    form.setAttribute("aria-label", "Machines side by side");
    form.append(selects[0], " and ", selects[1]);
    box.prepend(form);
  }

  function start() {
    for (const table of document.querySelectorAll("table.ws-results:not([data-sorts])")) {
      table.setAttribute("data-sorts", "");
      sortable(table);
    }
    for (const box of document.querySelectorAll(".ws-machines:not([data-chooses])")) {
      box.setAttribute("data-chooses", "");
      choosable(box);
    }
  }

  // With instant navigation the theme replaces pages, and says so here.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: start, complete: start });
  else start();
})();
