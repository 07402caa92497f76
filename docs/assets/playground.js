/* The playground: CUDA C or PTX that somebody types, read by Python in a worker and executed as the
   panels of kernels are. Its address holds all that was typed. */

import { Asker, make, Panel, readNumbers } from "./run.js";

const LONGEST = 7000; // characters of an address that is sent on
const TYPED = ["text", "arguments", "grid", "block", "dynamic"];
const HEAD = /^\/\/ (\w+) ?= ?(.*)$/gm; // of an example: // grid = 2

async function convert(bytes, Kind, how) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new Kind(how))).arrayBuffer();
}

async function toAddress(value) {
  const packed = new Uint8Array(await convert(JSON.stringify(value), CompressionStream, "deflate-raw"));
  const text = btoa(Array.from(packed, one => String.fromCharCode(one)).join(""));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

async function fromAddress(text) {
  const packed = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), one => one.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await convert(packed, DecompressionStream, "deflate-raw")));
}

// What is in an example of the page: its first lines tell what stands in the fields.
function readExample(text) {
  const found = { text: text.replace(HEAD, "").trimStart() };
  const listed = [];
  for (const [, name, value] of text.matchAll(HEAD)) {
    if (TYPED.includes(name)) found[name] = value;
    else listed.push(`${name} = ${value}`);
  }
  return { ...found, arguments: listed.join("\n") };
}

const nameOf = text => text.match(/(?:\.entry|__global__ void) (\w+)/)?.[1];

// Python, which is asked by number: answers to several questions may be waited for.
class Python {
  constructor(where) {
    this.where = where;
    this.waiting = new Map();
    this.last = 0;
  }
  start() {
    this.worker = new Worker(new URL("calculators-worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => this.tell(data);
    this.worker.onerror = ({ message }) => this.tell({ failed: message || "the worker did not start", lost: true });
  }
  tell({ number, answer, failed, lost }) {
    for (const [asked, { resolve, reject }] of this.waiting) {
      if (!lost && asked !== number) continue;
      this.waiting.delete(asked);
      if (failed || answer.error) reject(new Error(failed || answer.error));
      else resolve(answer);
    }
    if (lost) this.worker = null; // the next question starts another
  }
  ask(question) {
    if (!this.worker) this.start();
    const number = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(number, { resolve, reject });
      this.worker.postMessage({ number, where: this.where, question });
    });
  }
}

export class Playground extends Panel {
  inputs() {
    const blocks = document.querySelectorAll(":is(.language-cuda, .language-ptx) code");
    this.examples = this.pickExamples(Array.from(blocks, one => one.textContent));
    const file = make("input", { type: "file", accept: ".ptx,.cu,.txt" });
    const take = async ([one]) => one && this.set({ text: await one.text() });
    file.addEventListener("change", () => take(file.files));
    const example = this.example = make("select");
    this.nameExamples();
    example.addEventListener("change", () => this.set(readExample(this.examples[example.value])));
    const areas = [this.write("text", "PTX or CUDA C", 16), this.write("arguments", "Arguments, one a line", 4)];
    this.text.addEventListener("drop", event => {
      if (event.dataTransfer.files.length) event.preventDefault();
      take(event.dataTransfer.files);
    });
    const { python, models } = this.run;
    this.python = new Python({ python: this.address(python), models: this.address(models) });
    this.begun = this.start();
    return [make("label", {}, `${this.kind} `, example), make("label", {}, "or a file ", file), ...areas,
      this.pick("kernel", "Kernel", ["the first"]), this.type("dynamic", "Dynamic shared bytes", "0")];
  }
  get kind() { return "Example"; }
  pickExamples(blocks) { return blocks; }
  nameExamples() { this.offer(this.example, this.examples.map(nameOf)); }
  write(name, label, rows) {
    const area = this[name] = make("textarea", { rows, spellcheck: false });
    area.addEventListener("change", () => this.choose());
    return make("label", { className: "ws-run-text" }, label, area);
  }
  // What the address says, or else the first example.
  async start() {
    await null; // until all fields are there
    const told = location.hash.match(/^#kernel=([\w-]+)$/)?.[1];
    const given = told && await fromAddress(told).catch(() => null);
    this.put(given ?? readExample(this.examples[this.example.value]));
  }
  put(given) {
    for (const name of TYPED)
      if (typeof given[name] === "string") this[name].value = given[name];
    this.offer(this.kernel, [given.kernel || "the first"]);
  }
  set(given) {
    this.put({ dynamic: "0", ...given });
    return this.choose();
  }
  fields() {
    const texts = Object.fromEntries(TYPED.map(name => [name, this[name].value]));
    const kernel = this.kernel.selectedOptions[0]?.textContent;
    return { ...texts, kernel: kernel === "the first" ? "" : kernel };
  }
  address(path) { return new URL(path, this.home).href; }
  // A launch of what was typed, as an engine opens it, and the names of the kernels there.
  async build(asked) {
    const [dynamic] = this.read("dynamic", 0, 232448), grid = this.readSides("grid", 65535);
    const answer = await this.python.ask({ ...asked, dynamic, grid, block: this.readSides("block", 1024) });
    const pack = Uint8Array.from(atob(answer.pack), one => one.charCodeAt(0)).buffer;
    return { kernels: answer.kernels, launch: { engine: this.address(this.run.engine), pack } };
  }
  async choose() {
    await this.begun;
    const asked = this.fields();
    if (this.loading) return; // what changes meanwhile is seen when that is over
    try {
      if (JSON.stringify(asked) !== this.pack) {
        this.loading = true;
        for (const button of Object.values(this.buttons)) button.disabled = true;
        this.say("Loading Python and the engine, decoding \u2026");
        const { kernels, launch } = await this.build(asked);
        this.offer(this.kernel, kernels);
        this.kernel.value = Math.max(0, kernels.indexOf(asked.kernel));
        this.program = await this.asker.ask("open", launch);
        if (!Object.keys(this.program.sources).length) // of PTX its own lines
          this.program.places = this.program.lines.map(line => ["", line]);
        const shown = { ...asked, kernel: this.fields().kernel };
        this.pack = JSON.stringify(shown);
        this.showSource();
        this.listOrders();
        const text = await toAddress(shown);
        if (text.length < LONGEST) history.replaceState(history.state, "", `#kernel=${text}`);
      }
    } catch (error) {
      this.pack = null;
      this.buttons.run.disabled = false; // to try again
      return this.say(error.message, true);
    } finally {
      this.loading = false;
    }
    await this.act("run").catch(error => this.say(error.message, true));
  }
  // What was typed since is decoded first.
  act(name) {
    return JSON.stringify(this.fields()) === this.pack ? super.act(name) : this.choose();
  }
  showResult({ memory }) {
    for (const [name, tensor] of Object.entries(this.program.tensors)) this.showTensor(name, tensor, memory);
  }
}

const KEPT = "ws-puzzles"; // names of those that are solved

// Puzzles of a page: of each its kernel, whose lines with a mark are to be written, and one way to write them.
export class Puzzles extends Playground {
  get kind() { return "Puzzle"; }
  pickExamples(blocks) {
    this.solutions = blocks.filter((_, k) => k % 2).map(text => text.trimEnd().split("\n"));
    this.truths = new Map();
    return blocks.filter((_, k) => k % 2 === 0);
  }
  get solved() {
    try {
      return new Set(JSON.parse(localStorage.getItem(KEPT)));
    } catch {
      return new Set(); // what is there is not ours, or nothing may be kept
    }
  }
  nameExamples() {
    const { solved } = this, now = this.example.value, names = this.examples.map(nameOf);
    this.offer(this.example, names.map((name, k) => `${solved.has(name) ? "\u2713 " : ""}${k + 1}. ${name}`));
    this.example.value = now || Math.max(0, names.findIndex(name => !solved.has(name)));
  }
  // What the solution leaves, under the arguments that are given.
  async truth(number) {
    const lines = [...this.solutions[number]], asked = this.fields();
    const { text } = readExample(this.examples[number].replace(/\S.*\/\/ \?$/gm, () => lines.shift()));
    const key = JSON.stringify({ ...asked, text });
    if (!this.truths.has(key)) {
      const { launch } = await this.build({ ...asked, text, kernel: "" });
      const asker = new Asker(this.address(this.run.script));
      try {
        await asker.ask("open", launch);
        this.truths.set(key, (await asker.ask("run")).memory);
      } finally {
        asker.stop();
      }
    }
    return this.truths.get(key);
  }
  async show(answer) {
    const name = nameOf(this.text.value), number = this.examples.findIndex(text => nameOf(text) === name);
    const whole = !answer.finding && this.isOver(answer) && !+this.without.value && number >= 0;
    this.wanted = whole ? await this.truth(number) : null;
    await super.show(answer);
    const { text, ...given } = number < 0 ? {} : readExample(this.examples[number]);
    const own = Object.entries(given).every(([field, value]) => this[field].value === value);
    if (!this.wanted || !own || this.said.classList.contains("ws-run-bad")) return;
    this.say(`Solved. ${this.said.textContent}`);
    try {
      localStorage.setItem(KEPT, JSON.stringify([...this.solved.add(name)]));
    } catch { /* nothing may be kept */ }
    this.nameExamples();
  }
  judge({ memory, ...answer }) {
    super.judge({ memory, ...answer });
    if (!this.wanted) return;
    for (const [name, tensor] of Object.entries(this.program.tensors)) {
      const [found, truth] = [memory, this.wanted].map(held => readNumbers(tensor[0], held[name]));
      const at = truth.findIndex((one, k) => !(Object.is(one, found[k]) || Math.abs(one - found[k]) <= 1e-5 * Math.abs(one)));
      if (at >= 0) return this.say(`Not yet: ${name}[${at}] is ${found[at]}, and should be ${truth[at]}.`, true);
    }
  }
}
