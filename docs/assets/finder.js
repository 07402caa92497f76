/* The finder: narrows down and orders a list of readings. Without it the whole list is there.

   It works on the first <ul data-finder> of a page, whose items say in data-* attributes what they
   are; the value of data-finder is the address of the page of all readings, on any other page.
   What is asked for stands in the page's own address, so it can be shared, and "back" undoes it.
   What a list or an address holds is only ever set as text.

   A page may come without the browser loading one: the theme then takes the next page's text into
   this one and says so by document$. Then the next list gets a finder, and the last one lets go of
   what it held outside its page. */

(() => {
  "use strict";

  const LONGEST = 200; // characters of a search
  const MANY = 40; // items from which on the choices are open, where there is the room for them
  const ROOM = "(min-width: 60em)";
  const MOST = 1000; // items shown until all are asked for: so many are laid out at once
  const PAUSE = 60; // ms after a keystroke
  const NEAR = "1000px"; // from the window, where a list gets its finder
  const USUAL = { en: "English", zh: "Chinese" }; // the browser's own names take a phone 75 ms
  const LEVELS = ["beginner", "intermediate", "advanced"];
  const PARTS = ".ws-reading-title, .ws-reading-source, .ws-reading-why";
  const MEANT = 20; // words that a mistyped one may stand for
  const SHORT = 4; // letters from which on a word may be mistyped
  // Words that are ignored if there are others.
  const STOP = new Set(
    ("a about an and any are as at be by can do does for from has have how i in into is it its me " +
      "my of on one or some that the their then there this to was what when where which while " +
      "who why with without")
      .split(" "),
  );
  const PART = /[^\s.,;:!?()[\]{}"'“”‘’…·/]+/g; // a word of a text

  function find(list, signal) {
    const page = location.pathname;
    // An address is written and read only while it is that of the list's own page.
    const here = () => !signal.aborted && location.pathname === page;

    /* The items. */

    const items = Array.from(list.children, (element) => {
      const fact = (name) => element.getAttribute(`data-${name}`) || "";
      return {
        element,
        fits: true,
        kind: fact("kind"),
        topic: fact("topic"),
        level: fact("level"),
        lang: fact("lang"),
        year: Number(fact("year")),
        rating: Number(fact("rating")),
        added: fact("added"),
        tags: fact("tags").split(" ").filter(Boolean),
        runs: fact("runs"),
      };
    });

    // The page of all readings has a file of further words, a line an item.
    async function fetchWords() {
      const answer = await fetch(new URL(list.dataset.words, location), { signal });
      if (!answer.ok) return;
      const lines = (await answer.text()).split("\n");
      items.forEach((item, place) => {
        item.words = lines[place];
        delete item.text;
        delete item.counted;
      });
      delete list.dataset.words; // they are here
      meant.clear();
      if (asked.words) show();
    }

    // Without accents and case, so that "müller" is found by "Muller".
    function fold(text) {
      const plain = /[^\0-\x7f]/.test(text) ? text.normalize("NFKD").replace(/\p{M}/gu, "") : text;
      return plain.toLowerCase();
    }

    // What a search goes through: gathered when there is time, at the latest by the first search.
    function textOf(item) {
      if (item.text === undefined) {
        const parts = item.element.querySelectorAll(PARTS);
        const texts = Array.from(parts.length ? parts : [item.element], (part) => part.textContent);
        texts.push(item.tags.join(" "), item.words || "");
        item.text = fold(texts.join(" "));
      }
      return item.text;
    }

    // How well a title answers: two for each word that it has, one if it begins with the first of
    // them, and one if the kind was asked for as well, as in "ring attention paper".
    function titleHits(item, tests) {
      const title = foldedTitle(item);
      const hits = 2 * tests.filter((test) => test(title)).length;
      const begins = tests.length > 0 && tests[0](title.split(" ", 1)[0]);
      return hits && hits + begins + tests.some((test) => item.kind && test(item.kind));
    }

    // Both titles: a reader may know either.
    function foldedTitle(item) {
      if (item.folded === undefined) {
        const english = item.element.querySelector(".ws-title-en");
        const own = item.element.querySelector("a");
        item.folded = fold([own, english].map((part) => (part ? part.textContent : "")).join(" "));
      }
      return item.folded;
    }

    function titleOf(item) {
      if (item.title === undefined) {
        const { element } = item;
        const title = element.querySelector(".ws-title-en") || element.querySelector("a");
        item.title = title ? title.textContent : "";
      }
      return item.title;
    }

    /* Words. A term is what was typed of one; it is found anywhere in a text. */

    const vocabulary = new Set(); // the words of all items

    function known() {
      for (const item of items) {
        if (!item.counted) for (const word of textOf(item).match(PART) || []) vocabulary.add(word);
        item.counted = true;
      }
      return vocabulary;
    }

    // Whether one letter too many, too few or another, or two swapped, part a term from a word, or
    // from how it begins.
    function mistyped(term, word, whole) {
      let same = 0;
      while (same < term.length && term[same] === word[same]) same += 1;
      const [left, rest] = [term.slice(same), word.slice(same)];
      const goesOn = (text, end) => (whole ? text === end : text.startsWith(end));
      return (
        goesOn(rest.slice(1), left.slice(1)) ||
        goesOn(rest.slice(1), left) ||
        goesOn(rest, left.slice(1)) ||
        (left.length > 1 &&
          rest[0] === left[1] &&
          rest[1] === left[0] &&
          goesOn(rest.slice(2), left.slice(2)))
      );
    }

    const meant = new Map(); // the words that a mistyped term may stand for

    function meantBy(term) {
      if (!meant.has(term)) {
        const words = term.length < SHORT ? [] : [...known()];
        const whole = words.filter((word) => mistyped(term, word, true));
        const begun = whole.length ? [] : words.filter((word) => mistyped(term, word, false));
        meant.set(term, [...whole, ...begun].slice(0, MEANT));
      }
      return meant.get(term);
    }

    // What is asked for in words: a test a term, and what was taken for another word.
    function termsOf(text) {
      const typed = fold(text).split(/\s+/).filter(Boolean);
      const told = typed.filter((term) => !STOP.has(term));
      const terms = told.length ? told : typed;
      const exact = terms.map((term) => (given) => given.includes(term));
      const all = (given) => exact.every((test) => test(given));
      if (!terms.length || items.some((item) => all(textOf(item)))) return { tests: exact, read: [] };
      // Nothing fits as it was typed: what is nowhere is mistyped, or else any of it may be.
      const lost = exact.map((test) => !items.some((item) => test(textOf(item))));
      const any = !lost.includes(true);
      const read = [];
      const tests = terms.map((term, place) => {
        const words = any || lost[place] ? meantBy(term) : [];
        if (!words.length) return exact[place];
        if (lost[place]) read.push([term, words[0]]);
        const pattern = new RegExp(words.map(escaped).concat(escaped(term)).join("|"));
        return (given) => pattern.test(given);
      });
      return { tests, read };
    }

    const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");

    /* What can be asked for. `of` gives the values that an item fits. */

    const partOf = (topic) => topic.slice(0, topic.indexOf("/") + 1);
    const topicNames = new Map();
    for (const { element, topic } of items) {
      if (topic && !topicNames.has(topic)) {
        const link = element.querySelector('a[href*="#reading-"]');
        topicNames.set(topic, link ? link.textContent : topic);
      }
    }

    function partName(part) {
      const name = part.replace(/[-/]+/g, " ").trim();
      return name.charAt(0).toUpperCase() + name.slice(1);
    }

    function topicName(value) {
      return value.endsWith("/") ? `All of ${partName(value)}` : topicNames.get(value);
    }

    let languages;

    function languageName(code) {
      if (code in USUAL) return USUAL[code];
      try {
        languages ??= new Intl.DisplayNames(["en"], { type: "language" });
        return languages.of(code);
      } catch {
        return code;
      }
    }

    const one = (value) => (value ? [value] : []);
    const allTags = new Set(items.flatMap(({ tags }) => tags));
    const near = (tag, value) => !allTags.has(value) && tag.includes(value);
    const CHOICES = [
      { key: "kind", name: "Kind", any: "Any kind", of: (item) => one(item.kind) },
      {
        key: "topic",
        name: "Topic",
        any: "Any topic",
        of: ({ topic }) => [...one(partOf(topic)), ...one(topic)],
        called: topicName,
        group: (value) => partName(partOf(value)),
      },
      {
        key: "level",
        name: "Level",
        any: "Any level",
        of: (item) => one(item.level),
        order: (a, b) => LEVELS.indexOf(a) - LEVELS.indexOf(b),
      },
      {
        key: "lang",
        name: "Language",
        any: "Any language",
        of: (item) => one(item.lang),
        called: languageName,
      },
      {
        key: "rating",
        name: "Rating",
        any: "Any rating",
        of: ({ rating }) => ["4", "3", "2", "1"].filter((value) => rating >= Number(value)),
        order: (a, b) => b - a,
        called: (value) => (value === "4" ? "★★★★" : `${"★".repeat(value)} or more`),
      },
      {
        key: "from",
        name: "Year from",
        any: "Year from",
        of: ({ year }) => one(year && String(year)),
        fits: ({ year }, value) => year >= Number(value),
        order: (a, b) => b - a,
        called: (value) => `from ${value}`,
      },
      {
        key: "to",
        name: "Year to",
        any: "Year to",
        of: ({ year }) => one(year && String(year)),
        fits: ({ year }, value) => year > 0 && year <= Number(value),
        order: (a, b) => b - a,
        called: (value) => `to ${value}`,
      },
      {
        key: "tag",
        name: "Tag",
        any: "Any tag",
        of: (item) => item.tags,
        typed: true, // there are hundreds: part of one will do
        fits: ({ tags }, value) => tags.includes(value) || tags.some((tag) => near(tag, value)),
      },
      { key: "runs", name: "Runs here", of: (item) => one(item.runs), ticked: true },
    ];
    for (const choice of CHOICES) {
      const { of } = choice;
      choice.fits ??= (item, value) => of(item).includes(value);
      choice.called ??= (value) => value;
      choice.values = [...new Set(items.flatMap(of))];
      const part = (value) => choice.typed && value && choice.values.some((tag) => near(tag, value));
      choice.knows = (value) => choice.values.includes(value) || Boolean(part(value));
      if (choice.key !== "topic") choice.values.sort(choice.order);
      if (choice.group) {
        // A part of the shelf with one topic is that topic.
        const within = (part) => choice.values.filter((value) => partOf(value) === part).length - 1;
        choice.values = choice.values.filter((value) => !value.endsWith("/") || within(value) > 1);
      }
    }
    // A choice that every item fits alike is left out.
    const choices = CHOICES.filter(({ values, fits }) =>
      values.some((value) => items.some((item) => !fits(item, value))),
    );

    let collator; // made for the first that is ordered by title
    const byTitle = (a, b) => {
      collator ??= new Intl.Collator("en", { numeric: true });
      return collator.compare(titleOf(a), titleOf(b));
    };
    const byAdded = (a, b) => (a.added < b.added) - (a.added > b.added);
    const ORDERS = [
      { value: "", name: "As listed" },
      { value: "year", name: "Newest first", by: (a, b) => b.year - a.year },
      { value: "title", name: "By title", by: byTitle },
      { value: "rating", name: "Best rated", by: (a, b) => b.rating - a.rating },
      { value: "added", name: "Recently added", by: byAdded },
    ];
    const differs = (by) => by === byTitle || items.some((item) => by(items[0], item));
    const orders = ORDERS.filter(({ by }) => !by || (items.length > 1 && differs(by)));

    /* What is asked for: a value for each key; an empty one asks for nothing. */

    const asked = { words: "", sort: "" };
    for (const { key } of choices) asked[key] = "";

    function read() {
      const query = new URLSearchParams(location.search);
      asked.words = (query.get("words") || "").slice(0, LONGEST);
      for (const { key, knows } of choices) {
        const value = query.get(key) || "";
        asked[key] = knows(value) ? value : "";
      }
      const sort = query.get("sort") || "";
      asked.sort = orders.some(({ value }) => value === sort) ? sort : "";
    }

    function write(replace) {
      if (!here()) return;
      const query = new URLSearchParams(location.search);
      for (const [key, value] of Object.entries(asked)) {
        query.delete(key);
        if (value.trim()) query.set(key, value.trim());
      }
      const search = String(query) && `?${query}`;
      if (search === location.search) return;
      try {
        const address = location.pathname + search + location.hash;
        history[replace ? "replaceState" : "pushState"](null, "", address);
      } catch {
        // A page opened from a disk may not change its address; the list is narrowed all the same.
      }
    }

    /* The controls. */

    function make(tag, attributes = {}, ...inside) {
      const element = document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.append(...inside);
      return element;
    }

    const controls = {};
    const options = new Map(); // by key, then by value

    function select(key, name, first, values, called, group) {
      const made = make("select", { "aria-label": name }, make("option", { value: "" }, first));
      const found = new Map();
      let open = made;
      for (const value of values) {
        if (group && open.label !== group(value)) {
          open = group(value) ? make("optgroup", { label: group(value) }) : made;
          if (open !== made) made.append(open);
        }
        const option = make("option", { value }, called(value));
        open.append(option);
        found.set(value, option);
      }
      options.set(key, found);
      return made;
    }

    const words = make("input", {
      type: "search",
      class: "ws-finder-words",
      "aria-label": "Search these readings",
      placeholder: "Search these readings",
      maxlength: String(LONGEST),
      spellcheck: "false",
    });
    const count = make("p", { class: "ws-finder-count", role: "status" });
    const clear = make("button", { type: "button", class: "ws-finder-clear", hidden: "" }, "Clear");
    const panel = make("div", { class: "ws-finder-choices" });
    const heading = make("summary", {}, "Filter and sort");
    const more = make("details", { class: "ws-finder-more" }, heading, panel);
    const line = make("div", { class: "ws-finder-line" }, words, clear, count);
    const form = make(
      "form",
      { class: "ws-finder", role: "search", "aria-label": "Readings", autocomplete: "off" },
      line,
      more,
    );
    const none = make("p", { class: "ws-finder-none", hidden: "" });
    const rest = make("button", { type: "button", class: "ws-finder-rest", hidden: "" });

    for (const choice of choices) {
      const { key, name } = choice;
      if (choice.ticked) {
        controls[key] = make("input", { type: "checkbox" });
        panel.append(make("label", {}, controls[key], ` ${name}`));
      } else if (choice.typed) {
        const known = make("datalist", { id: `ws-finder-${key}` });
        for (const value of choice.values) known.append(make("option", { value }));
        const given = { "aria-label": name, placeholder: choice.any, list: known.id, size: "12" };
        controls[key] = make("input", given);
        panel.append(controls[key], known);
      } else {
        const { any, values, called, group } = choice;
        controls[key] = select(key, name, any, values, called, group);
        panel.append(controls[key]);
      }
    }
    controls.sort = make("select", { "aria-label": "Order", class: "ws-finder-sort" });
    for (const { value, name } of orders) controls.sort.append(make("option", { value }, name));
    const listed = controls.sort.firstElementChild; // the order where none is asked for
    panel.append(controls.sort);
    controls.words = words;

    /* Showing what fits. */

    const COUNTED = [...options.keys()].filter((key) => key !== "from" && key !== "to");

    function show() {
      const { tests, read } = termsOf(asked.words);
      const active = choices.filter(({ key }) => asked[key]);
      const counts = new Map(COUNTED.map((key) => [key, new Map()]));
      let fitting = 0;
      for (const item of items) {
        const missed = active.filter(({ key, fits }) => !fits(item, asked[key]));
        const found = missed.length < 2 && tests.every((test) => test(textOf(item)));
        item.fits = found && missed.length === 0;
        item.titled = item.fits ? titleHits(item, tests) : 0;
        fitting += item.fits;
        if (!found) continue;
        // An option tells how many there would be, all other choices being as they are.
        for (const { key, of } of missed.length ? missed : choices) {
          const by = counts.get(key);
          if (by) for (const value of of(item)) by.set(value, (by.get(value) || 0) + 1);
        }
      }
      lay(tests.length > 0);
      const narrowed = active.length > 0 || tests.length > 0;
      say(fitting, narrowed, read);
      for (const { key, called, values } of choices) {
        const by = counts.get(key);
        if (!by) continue;
        for (const value of values) {
          const number = by.get(value) || 0;
          const option = options.get(key).get(value);
          const text = `${called(value)} (${number})`;
          if (option.textContent !== text) option.textContent = text;
          option.disabled = number === 0 && asked[key] !== value;
        }
      }
      heading.textContent = `Filter and sort${active.length ? ` (${active.length} set)` : ""}`;
    }

    function say(fitting, narrowed, read) {
      const all = items.length === 1 ? "1 reading" : `${items.length} readings`;
      const taken = fitting ? read.map(([term, word]) => `, “${term}” read as “${word}”`) : [];
      const text = narrowed ? `${fitting} of ${all}${taken.join("")}` : all;
      if (count.textContent !== text) count.textContent = text;
      clear.hidden = !narrowed;
      none.hidden = fitting > 0;
      none.replaceChildren();
      if (fitting > 0) return;
      none.append("No reading here matches all of that. ");
      const elsewhere = list.getAttribute("data-finder");
      if (!elsewhere || !asked.words.trim()) return;
      const query = new URLSearchParams({ words: asked.words.trim() });
      none.append(make("a", { href: `${elsewhere}?${query}` }, "Search all readings"));
    }

    let sorted = items;
    let sortedBy = "";
    let unlimited = false;

    // Puts those that fit into the list, in order, and leaves alone what is in its place already.
    // Where words are asked for and no order is, those whose title answers best are first.
    function lay(worded) {
      if (asked.sort !== sortedBy) {
        sortedBy = asked.sort;
        const { by } = ORDERS.find(({ value }) => value === sortedBy);
        sorted = by ? [...items].sort(by) : items; // among equals, the list's own order stays
        list.replaceChildren();
      }
      const fitting = sorted.filter((item) => item.fits);
      if (worded && !sortedBy) fitting.sort((a, b) => b.titled - a.titled);
      listed.textContent = worded ? "Title hits first" : "As listed";
      const wanted = unlimited ? fitting : fitting.slice(0, MOST);
      const kept = new Set(wanted.map(({ element }) => element));
      for (const element of [...list.children]) if (!kept.has(element)) element.remove();
      let next = list.firstElementChild;
      for (const { element } of wanted) {
        if (element === next) next = next.nextElementSibling;
        else list.insertBefore(element, next);
      }
      rest.hidden = fitting.length === wanted.length;
      rest.textContent = `Show the other ${(fitting.length - wanted.length).toLocaleString("en")}`;
    }

    /* From the controls to the list, and from the address to both. */

    function fill() {
      for (const [key, control] of Object.entries(controls)) {
        if (control.type === "checkbox") control.checked = Boolean(asked[key]);
        else if (control.value !== asked[key]) control.value = asked[key];
      }
      mark();
    }

    function mark() {
      for (const [key, control] of Object.entries(controls)) {
        control.classList.toggle("ws-finder-set", Boolean(asked[key]));
        // Only what can be typed can be something that no item has.
        const odd = control.value !== "" && !asked[key] && control.list;
        if (odd) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
      }
    }

    // While somebody types, the address follows in place: one step back undoes the whole search.
    let typing = false;

    function take(typed) {
      if (!here()) return;
      unlimited = false;
      asked.words = words.value.slice(0, LONGEST);
      asked.sort = controls.sort.value;
      for (const { key, values, ticked, knows } of choices) {
        const { value, checked } = controls[key];
        const wanted = ticked ? (checked ? values[0] : "") : value.trim();
        asked[key] = knows(wanted) ? wanted : "";
      }
      mark();
      write(typed && typing);
      typing = typed;
      show();
    }

    function follow() {
      read();
      fill();
      show();
      const name = decoded(location.hash.slice(1));
      if (!name || document.getElementById(name)) return;
      const target = items
        .map(({ element }) => element.querySelector(`[id="${CSS.escape(name)}"]`))
        .find(Boolean);
      if (!target) return;
      // The address names an entry that is filtered out: the entry comes first.
      unlimited = true;
      empty(true);
      // A target counts as one only if it was there when the address was followed.
      location.replace(location.hash);
    }

    function decoded(text) {
      try {
        return decodeURIComponent(text);
      } catch {
        return text;
      }
    }

    function empty(replace) {
      for (const key of Object.keys(asked)) if (key !== "sort") asked[key] = "";
      fill();
      write(replace);
      show();
    }

    let waiting;
    form.addEventListener("input", (event) => {
      clearTimeout(waiting);
      const slow = event.target === words || event.target === controls.tag;
      if (slow) waiting = setTimeout(take, PAUSE, true);
      else take(false);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(waiting);
      take(false);
    });
    form.addEventListener("focusout", () => {
      typing = false;
    });
    clear.addEventListener("click", () => {
      clearTimeout(waiting);
      empty(false);
      words.focus();
    });
    rest.addEventListener("click", () => {
      const last = list.lastElementChild;
      unlimited = true;
      lay(asked.words.trim() !== "");
      last.nextElementSibling.querySelector("a").focus();
    });
    const back = () => {
      typing = false;
      if (here()) follow();
    };
    addEventListener("popstate", back, { signal });
    addEventListener("hashchange", back, { signal });
    signal.addEventListener("abort", () => clearTimeout(waiting));
    // A link to this very page changes the address and nothing else, where the theme takes it.
    if (window.location$) {
      const told = window.location$.subscribe(({ pathname }) => {
        if (pathname === page) queueMicrotask(back);
      });
      signal.addEventListener("abort", () => told.unsubscribe());
    }

    list.before(form);
    list.after(none, rest);
    follow();
    // The theme fetches a page anew at the first change of its address: its target is none then.
    const named = list.querySelector(`[id="${CSS.escape(decoded(location.hash.slice(1)))}"]`);
    if (named && !named.matches(":target")) location.replace(location.hash);
    const set = choices.some(({ key }) => asked[key]) || asked.sort !== "";
    more.open = (set || items.length >= MANY) && matchMedia(ROOM).matches;

    const soon = window.requestIdleCallback || ((task) => setTimeout(task, 500));
    function gather(start) {
      if (signal.aborted) return;
      items.slice(start, start + 500).forEach(textOf);
      if (start + 500 < items.length) soon(() => gather(start + 500));
    }
    if (list.dataset.words) fetchWords().catch(console.warn).finally(() => soon(() => gather(0)));
    else soon(() => gather(0));
  }

  /* From page to page. */

  let open = null;
  let ending = new AbortController();

  function start() {
    const list = document.querySelector("ul[data-finder]");
    if (list === open) return;
    ending.abort();
    ending = new AbortController();
    open = list;
    if (!list || !list.firstElementChild) return;
    const { signal } = ending;
    if (location.search) return find(list, signal); // which asks for something
    const near = new IntersectionObserver(([seen]) => {
      if (!seen.isIntersecting) return;
      near.disconnect();
      find(list, signal);
    }, { rootMargin: NEAR });
    near.observe(list);
    signal.addEventListener("abort", () => near.disconnect());
  }

  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: start, complete: start });
  else start();
})();
