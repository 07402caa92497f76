/* The PTX playground: a module that somebody pastes, decoded by Python in a worker and executed as the
   panels of kernels are. Its address holds all that was typed. */

import { make, Panel } from "./run.js";

const LONGEST = 7000; // characters of an address that is sent on
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
  const found = { ptx: text.replace(HEAD, "").trimStart() };
  const listed = [];
  for (const [, name, value] of text.matchAll(HEAD)) {
    if (["grid", "block", "dynamic"].includes(name)) found[name] = value;
    else listed.push(`${name} = ${value}`);
  }
  return { ...found, arguments: listed.join("\n") };
}

export class Playground extends Panel {
  inputs() {
    this.examples = Array.from(document.querySelectorAll(":is(.language-cuda, .language-ptx) code"), one => one.textContent);
    const file = make("input", { type: "file", accept: ".ptx,.cu,.txt" });
    const take = async ([one]) => one && this.set({ ptx: await one.text() });
    file.addEventListener("change", () => take(file.files));
    const example = make("select");
    this.offer(example, this.examples.map(text => text.match(/(?:\.entry|__global__ void) (\w+)/)[1]));
    example.addEventListener("change", () => this.set(readExample(this.examples[example.value])));
    const areas = [this.write("ptx", "PTX or CUDA C", 16), this.write("arguments", "Arguments, one a line", 4)];
    this.ptx.addEventListener("drop", event => {
      if (event.dataTransfer.files.length) event.preventDefault();
      take(event.dataTransfer.files);
    });
    this.begun = this.start();
    return [make("label", {}, "Example ", example), make("label", {}, "or a file ", file), ...areas,
      this.pick("kernel", "Kernel", ["the first"]), this.type("dynamic", "Dynamic shared bytes", "0")];
  }
  write(name, label, rows) {
    const area = this[name] = make("textarea", { rows, spellcheck: false });
    area.addEventListener("change", () => this.choose());
    return make("label", { className: "ws-run-text" }, label, area);
  }
  // What the address says, or else the first example.
  async start() {
    await null; // until all fields are there
    const told = location.hash.match(/^#ptx=([\w-]+)$/)?.[1];
    const given = told && await fromAddress(told).catch(() => null);
    this.put(given ?? readExample(this.examples[0]));
  }
  put(given) {
    for (const name of ["ptx", "arguments", "grid", "block", "dynamic"])
      if (typeof given[name] === "string") this[name].value = given[name];
    this.offer(this.kernel, [given.kernel || "the first"]);
  }
  set(given) {
    this.put({ dynamic: "0", ...given });
    return this.choose();
  }
  fields() {
    const texts = Object.fromEntries(["ptx", "arguments", "grid", "block", "dynamic"].map(name => [name, this[name].value]));
    const kernel = this.kernel.selectedOptions[0]?.textContent;
    return { ...texts, kernel: kernel === "the first" ? "" : kernel };
  }
  // Python makes a pack of what stands in the fields.
  async build(asked) {
    const { python, models } = this.run, address = path => new URL(path, this.home).href;
    const [dynamic] = this.read("dynamic", 0, 232448);
    const question = { ...asked, dynamic, grid: this.readSides("grid", 65535), block: this.readSides("block", 1024) };
    this.python ??= new Worker(new URL("calculators-worker.js", import.meta.url), { type: "module" });
    const { answer, failed, lost } = await new Promise(resolve => {
      this.python.onmessage = ({ data }) => resolve(data);
      this.python.onerror = ({ message }) => resolve({ failed: message || "the worker did not start", lost: true });
      this.python.postMessage({ number: 1, where: { python: address(python), models: address(models) }, question });
    });
    if (lost) this.python = null;
    if (failed || answer.error) throw new Error(failed || answer.error);
    this.offer(this.kernel, answer.kernels);
    this.kernel.value = Math.max(0, answer.kernels.indexOf(asked.kernel));
    return Uint8Array.from(atob(answer.pack), one => one.charCodeAt(0)).buffer;
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
        const what = { engine: new URL(this.run.engine, this.home).href, pack: await this.build(asked) };
        this.program = await this.asker.ask("open", what);
        if (!Object.keys(this.program.sources).length) // of PTX its own lines
          this.program.places = this.program.lines.map(line => ["", line]);
        const shown = { ...asked, kernel: this.fields().kernel };
        this.pack = JSON.stringify(shown);
        this.showSource();
        this.listOrders();
        const text = await toAddress(shown);
        if (text.length < LONGEST) history.replaceState(history.state, "", `#ptx=${text}`);
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
