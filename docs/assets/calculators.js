/* Calculators: opens the form of a page, and computes its model in this browser as you type.

   Python starts in a worker when a value is first changed, and then serves every calculator until
   the site is left. Without any of it the page has the answer to the defaults. What is asked for
   stands in the page's own address, so it can be shared, and "back" undoes it. HTML comes from our
   own renderer alone, which escapes what it is given; all else is only ever set as text. */

const PAUSE = 60; // ms after a keystroke
const LONGEST = 6000; // characters of an address that every server takes
const SLOW = 150; // ms after which the state says that something is being computed
const TWO = "two"; // what an address says where two configurations stand side by side
const SECOND = "b."; // before the name of an input of the second

/* The worker: one question at a time, and of those that wait the last. */

let worker = null;
let number = 0;
let asked = null; // the question that is being answered
let next = null; // the one that waits

function ask(where, question) {
  return new Promise((resolve, reject) => {
    next?.reject(null); // a later one stands in its place
    next = { number: ++number, where, question, resolve, reject };
    send();
  });
}

function send() {
  if (asked || !next) return;
  [asked, next] = [next, null];
  if (!worker) {
    worker = new Worker(new URL("calculators-worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = (event) => {
      event.preventDefault();
      const failed = event.message || "the worker could not be started";
      done({ number: asked?.number, failed, lost: true });
    };
  }
  const { number, where, question } = asked;
  worker.postMessage({ number, where, question });
}

let warm = false; // whether Python has answered anything yet

function done({ number, answer, took, failed, lost }) {
  if (lost) {
    worker?.terminate(); // the next question starts another
    worker = null;
    warm = false;
  }
  if (!asked || asked.number !== number) return;
  const { resolve, reject } = asked;
  asked = null;
  if (answer) {
    warm = true;
    resolve({ answer, took });
  } else reject(new Error(failed));
  send();
}

function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

/* A page. */

function open(box, signal) {
  const page = location.pathname;
  // An address is written and read only while it is that of the calculator's own page.
  const here = () => !signal.aborted && location.pathname === page;
  const at = (name) => new URL(box.dataset[name], location.href).href;
  const where = { python: at("python"), models: at("models") };
  const { calculator, root } = box.dataset;

  const form = box.querySelector("form");
  const said = box.querySelector(".ws-calc-said");
  const result = box.querySelector(".ws-calc-result");
  const state = box.querySelector(".ws-calc-state");
  const fields = [...form.querySelectorAll("[data-kind]")].map((control) => ({
    name: control.name,
    kind: control.dataset.kind,
    label: form.querySelector(`label[for="${control.id}"]`).textContent.trim(),
    normal: control.dataset.default,
    controls: [control],
    errors: [],
  }));
  const defaults = { answer: said.innerHTML, details: result.innerHTML, state: state.textContent };
  let live = null; // the last answer of Python's
  let count = 1; // configurations

  /* Values, as texts. */

  const valueOf = (control) =>
    control.type === "checkbox" ? (control.checked ? "1" : "0") : control.value;

  function set(control, value) {
    if (control.type === "checkbox") control.checked = value === "1";
    else if (control.value !== value) control.value = value;
    if (control.tagName === "SELECT" && control.selectedIndex < 0) control.value = control.dataset.default;
  }

  const texts = (place) =>
    Object.fromEntries(fields.map(({ name, controls }) => [name, valueOf(controls[place])]));

  const untouched = () =>
    count === 1 && fields.every(({ controls, normal }) => valueOf(controls[0]) === normal);

  /* The second configuration. */

  function widen(two) {
    if (two === (count === 2)) return;
    count = two ? 2 : 1;
    for (const field of fields) {
      const [first, second] = field.controls;
      if (!two) {
        second.remove();
        field.controls.pop();
        continue;
      }
      const copy = first.cloneNode(true);
      copy.id = `${first.id}-2`;
      copy.name = `${SECOND}${first.name}`;
      copy.setAttribute("aria-label", `${field.label}, second`);
      set(copy, valueOf(first));
      first.after(copy);
      field.controls.push(copy);
    }
    form.classList.toggle("ws-calc-two", two);
    compare.textContent = two ? "One configuration" : "Compare with a second";
    mark();
  }

  // What differs between the two, and what is not the default.
  function mark() {
    for (const { controls } of fields) {
      const differs = controls.length === 2 && valueOf(controls[0]) !== valueOf(controls[1]);
      controls[0].closest(".ws-calc-field").classList.toggle("ws-calc-differs", differs);
    }
    reset.hidden = untouched();
  }

  /* The address. */

  function query() {
    const asking = new URLSearchParams(location.search);
    for (const key of [...asking.keys()]) {
      const name = key.startsWith(SECOND) ? key.slice(SECOND.length) : key;
      if (key === TWO || fields.some((field) => field.name === name)) asking.delete(key);
    }
    if (count === 2) asking.set(TWO, "1");
    for (const { name, controls, normal, kind } of fields) {
      controls.forEach((control, place) => {
        const value = valueOf(control);
        if (value === normal) return;
        asking.set(place ? SECOND + name : name, kind === "config" ? compact(value) : value.trim());
      });
    }
    return asking;
  }

  function compact(text) {
    try {
      return JSON.stringify(JSON.parse(text));
    } catch {
      return text;
    }
  }

  let unshared = false;

  function write(replace) {
    if (!here()) return;
    const asking = String(query());
    const search = asking && `?${asking}`;
    unshared = search.length > LONGEST;
    if (unshared || search === location.search) return;
    try {
      const address = location.pathname + search + location.hash;
      history[replace ? "replaceState" : "pushState"](null, "", address);
    } catch {
      // If a browser forbids it, the numbers are shown all the same.
    }
  }

  // True where the address asks for something else than the defaults.
  function read() {
    const asking = new URLSearchParams(location.search);
    widen(asking.has(TWO));
    for (const { name, controls, normal } of fields) {
      set(controls[0], asking.get(name) ?? normal);
      if (controls[1]) set(controls[1], asking.get(SECOND + name) ?? normal);
    }
    mark();
    return !untouched();
  }

  /* From the form to the answer. */

  const megabytes = `${(Number(box.dataset.weight) / 1e6).toFixed(1)} MB`;
  const spoken = make("p", { class: "ws-visually-hidden", role: "status" });

  function say(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  async function calculate() {
    const configurations = Array.from({ length: count }, (_, place) => texts(place));
    const wait = setTimeout(
      () => say(warm ? "Calculating …" : `Starting Python in this page: ${megabytes}, once …`),
      warm ? SLOW : 0,
    );
    box.setAttribute("aria-busy", "true");
    try {
      const { answer, took } = await ask(where, { id: calculator, root, configurations });
      if (signal.aborted) return;
      clearTimeout(wait);
      show(answer, took);
    } catch (error) {
      clearTimeout(wait);
      if (error === null || signal.aborted) return; // a later question stands in its place
      age(true);
      say(`Not calculated: ${error.message}. Change a value to try again.`);
    }
    box.removeAttribute("aria-busy");
  }

  function show(answer, took) {
    for (const field of fields) complain(field, []);
    general.textContent = "";
    if (answer.errors) {
      const named = (error) => fields.some(({ name }) => name === error.name);
      const many = count === 2;
      for (const field of fields) {
        complain(field, answer.errors.filter(({ name }) => name === field.name));
      }
      const rest = answer.errors.filter((error) => !named(error));
      const words = ({ place, line }) => (many ? `${place ? "Second" : "First"}: ${line}` : line);
      general.textContent = rest.map(words).join(" ");
      age(true);
      say("These values cannot be calculated. The last result is below.");
      return;
    }
    live = answer;
    draw(answer);
    const shared = unshared ? " These values are too long for a link, so they cannot be shared." : "";
    say(`Calculated in this page, in ${took < 1 ? "less than 1" : Math.round(took)} ms.${shared}`);
    const lines = [...said.querySelectorAll(".ws-calc-answer")].map((one) => one.textContent);
    spoken.textContent = lines.join("; ");
  }

  function draw({ answer, details }) {
    for (const [place, html] of [[said, answer], [result, details]]) {
      const made = make("template");
      made.innerHTML = html;
      place.replaceChildren(made.content);
    }
    age(false);
  }

  // What is shown does not belong to the values in the form.
  function age(old) {
    for (const place of [said, result]) place.classList.toggle("ws-calc-old", old);
  }

  // An input's error is shown below it, and read out.
  function complain(field, errors) {
    const first = field.controls[0];
    const holder = first.closest(".ws-calc-field");
    let line = holder.querySelector(".ws-calc-error");
    if (!errors.length) {
      line?.remove();
      for (const control of field.controls) {
        control.removeAttribute("aria-invalid");
        control.removeAttribute("aria-errormessage");
      }
      return;
    }
    if (!line) {
      line = make("p", { class: "ws-calc-error", id: `${first.id}-error`, role: "alert" });
      holder.append(line);
    }
    line.textContent = errors.map((error) => error.line).join(" ");
    field.controls.forEach((control, place) => {
      const wrong = errors.some((error) => error.place === place);
      if (wrong) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      if (wrong) control.setAttribute("aria-errormessage", line.id);
      else control.removeAttribute("aria-errormessage");
    });
  }

  /* The buttons. */

  const button = (text, run) => {
    const made = make("button", { type: "button", class: "ws-calc-button" }, text);
    made.addEventListener("click", run);
    return made;
  };
  const compare = button("Compare with a second", () => {
    widen(count === 1);
    write(false);
    calculate();
  });
  const reset = button("Defaults", () => {
    widen(false);
    for (const { controls, normal } of fields) set(controls[0], normal);
    mark();
    write(false);
    rest();
    fields[0].controls[0].focus();
  });
  const csv = button("CSV", () => download("csv", "text/csv"));
  const json = button("JSON", () => download("json", "application/json"));
  csv.setAttribute("aria-label", "Download the lines as CSV");
  json.setAttribute("aria-label", "Download everything as JSON");
  const general = make("p", { class: "ws-calc-error", role: "alert" });
  const tools = make("p", { class: "ws-calc-tools" }, compare, reset, csv, json);

  async function download(kind, type) {
    clearTimeout(waiting);
    live = null;
    await calculate();
    if (!live) return;
    const link = make("a", { download: `${calculator}.${kind}` });
    link.href = URL.createObjectURL(new Blob([live[kind]], { type }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // The defaults were computed when the page was built: they need no Python.
  function rest() {
    for (const field of fields) complain(field, []);
    general.textContent = "";
    live = null;
    draw(defaults);
    say(defaults.state);
  }

  /* Following. */

  // While somebody types, the address follows in place: one step back undoes it all.
  let typing = "";
  let waiting;

  function take(name) {
    if (!here()) return;
    mark();
    write(Boolean(name) && typing === name);
    typing = name;
    calculate();
  }

  form.addEventListener("input", ({ target }) => {
    clearTimeout(waiting);
    const typed = target.matches("textarea, input[type=text]");
    if (typed) waiting = setTimeout(take, PAUSE, target.id);
    else take("");
  });
  form.addEventListener("focusout", () => {
    typing = "";
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    take("");
  });
  const follow = () => {
    if (!here()) return;
    clearTimeout(waiting);
    typing = "";
    const before = String(query());
    if (read()) calculate();
    else if (before !== String(query()) || live) rest();
  };
  addEventListener("popstate", follow, { signal });
  signal.addEventListener("abort", () => clearTimeout(waiting));
  // A link to this very page changes the address and nothing else, where the theme takes it.
  if (window.location$) {
    const told = window.location$.subscribe(({ pathname }) => {
      if (pathname === page) queueMicrotask(follow);
    });
    signal.addEventListener("abort", () => told.unsubscribe());
  }

  for (const set of form.querySelectorAll("fieldset")) set.disabled = false;
  form.prepend(tools, general);
  box.append(spoken);
  defaults.state += ` Change one, and Python starts in this page: ${megabytes}, once.`;
  say(defaults.state);
  if (read()) calculate();
}

let last = null;

function start() {
  const box = document.querySelector(".ws-calc[data-python]");
  if (box?.hasAttribute("data-opened")) return;
  last?.abort(); // the page before
  last = null;
  if (!box) return;
  box.setAttribute("data-opened", "");
  last = new AbortController();
  open(box, last.signal);
}

// With instant navigation the theme replaces pages, and says so here.
if (window.document$) window.document$.subscribe({ next: start, complete: start });
else start();
