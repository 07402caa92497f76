/* Paths: a tick beside each step, and your progress. Without it a path is a plain list.

   What is ticked stays in this browser, under one name for all paths: a step that two paths share
   is done on both. Nothing is sent anywhere. */

(() => {
  "use strict";

  const NAME = "warpshelf.done";
  const STEP = "[data-step]";

  // A browser may forbid storage; the ticks then last as long as the page.
  let kept = [];
  let keeps = true;

  function done() {
    if (!keeps) return new Set(kept);
    try {
      const found = JSON.parse(localStorage.getItem(NAME) || "[]");
      if (Array.isArray(found)) kept = found.filter((name) => typeof name === "string");
    } catch {
      // What is there is no list of ours.
    }
    return new Set(kept);
  }

  function keep(names) {
    kept = [...names].sort();
    try {
      localStorage.setItem(NAME, JSON.stringify(kept));
    } catch {
      keeps = false;
    }
  }

  function make(tag, attributes, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }

  // As the lists have it: every fifth minute, and hours alone when they are many.
  function told(minutes) {
    const rounded = minutes < 20 ? minutes : 5 * Math.round(minutes / 5);
    if (rounded >= 600) return `${Math.round(rounded / 60)} h`;
    const [hours, rest] = [Math.floor(rounded / 60), rounded % 60];
    return [hours && `${hours} h`, (rest || !hours) && `${rest} min`].filter(Boolean).join(" ");
  }

  let refresh = () => {};

  function start() {
    refresh = () => {};
    const steps = [...document.querySelectorAll(STEP)];
    const total = document.querySelector("[data-walk]");
    if (!steps.length || !total || total.nextElementSibling?.matches(".ws-walked")) return;

    const bar = make("progress", { max: steps.length, "aria-label": "Steps done" });
    const count = make("span", { role: "status" });
    const none = make("button", { type: "button", class: "ws-walked-none" }, "Untick all");
    total.after(make("div", { class: "ws-walked" }, bar, count, none));

    const boxes = steps.map((step) => {
      const title = step.querySelector(".ws-reading-title");
      const box = make("input", { type: "checkbox", "aria-label": `Done: ${title.textContent}` });
      step.prepend(make("label", { class: "ws-tick" }, box));
      box.addEventListener("change", () => {
        const names = done();
        if (box.checked) names.add(step.dataset.step);
        else names.delete(step.dataset.step);
        keep(names);
        refresh();
      });
      return box;
    });
    none.addEventListener("click", () => {
      const names = done();
      for (const step of steps) names.delete(step.dataset.step);
      keep(names);
      refresh();
      boxes[0].focus();
    });

    refresh = () => {
      const names = done();
      let left = 0;
      steps.forEach((step, place) => {
        const ticked = names.has(step.dataset.step);
        boxes[place].checked = ticked;
        step.classList.toggle("ws-done", ticked);
        if (!ticked) left += Number(step.dataset.minutes) || 0;
      });
      const number = boxes.filter((box) => box.checked).length;
      bar.value = number;
      none.hidden = number === 0;
      const rest = left ? `about ${told(left)} left` : "all done";
      count.textContent = `${number} of ${steps.length} steps done, ${rest}`;
    };
    refresh();
  }

  // The same path may be open in another tab.
  addEventListener("storage", ({ key }) => {
    if (key === NAME || key === null) refresh();
  });

  // With instant navigation a page changes without being loaded; `document$` tells of each.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: start, complete: start });
  else start();
})();
