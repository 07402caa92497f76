// The engine in a browser, a worker or Node: it loads packs (papergpu/pack.py), executes them and steps through them.
// A worker answers messages {id, ask, ...}, where `ask` is a method of Session, by {id, answer} or {id, error}.

const GRAIN = 256; // bytes: memory begins at a multiple of it, or as far behind one as it did where it was packed
const LINES = 128; // bytes of an argument of the engine are aligned to

export class Engine {
  // From the bytes of the module, or from it.
  static async load(source) {
    const module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
    const engine = new Engine(), imports = {};
    for (const one of WebAssembly.Module.imports(module)) (imports[one.module] ??= {})[one.name] = () => 0;
    engine.exports = (await WebAssembly.instantiate(module, imports)).exports;
    engine.exports._initialize?.();
    engine.handlers = new Map();
    return engine;
  }
  // Views of memory are made anew after it has grown.
  get bytes() { return this.renew().u8; }
  get view() { return this.renew().data; }
  renew() {
    const buffer = this.exports.memory.buffer;
    if (this.seen?.buffer !== buffer) this.seen = { buffer, u8: new Uint8Array(buffer), data: new DataView(buffer) };
    return this.seen;
  }
  text(at) {
    const bytes = this.bytes, end = bytes.indexOf(0, at);
    return new TextDecoder().decode(bytes.slice(at, end));
  }
  handler(name) {
    if (!name) return 0;
    if (!this.handlers.has(name)) {
      const bytes = new TextEncoder().encode(name + "\0"), at = this.exports.malloc(bytes.length);
      this.bytes.set(bytes, at);
      const found = this.exports.papergpu_handler(at);
      this.exports.free(at);
      if (!found) throw new Error(`the engine has no ${name}: pack and engine are of different versions`);
      this.handlers.set(name, found);
    }
    return this.handlers.get(name);
  }
}

export class Pack {
  constructor(data) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    if (view.getUint32(0) !== 0x5047504b) throw new Error("this is no pack that papergpu wrote");
    const length = view.getUint32(4, true);
    this.whole = this.head = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + length)));
    this.start = 8 + length;
    this.data = data;
  }
  // Of several launches of a kernel that one.
  select(number) {
    const { whole } = this, other = number ? whole.others[number - 1] : { params: whole.arrays.params };
    this.head = { ...whole, ...other, arrays: { ...whole.arrays, params: other.params } };
  }
  piece(number) {
    const [at, size] = this.head.pieces[number];
    return this.data.slice(this.start + at, this.start + at + size);
  }
  words(number) { return new Uint16Array(this.piece(number).buffer); }
  text(number) { return new TextDecoder().decode(this.piece(number)); }
}

// One launch in the engine's memory. `settings` may give checks, profile, schedule, seed, limit, fatal, grid and block;
// `given[k]` are bytes that piece k of memory begins with instead of its own.
export class Launch {
  constructor(engine, pack, settings = {}, given = []) {
    const head = pack.head;
    this.engine = engine;
    this.pack = pack;
    this.held = [];
    const code = this.code = this.put(pack.piece(head.arrays.code)), which = pack.words(head.which);
    this.instructions = which.length;
    which.forEach((number, k) => engine.view.setUint32(code + 64 * k, engine.handler(head.handlers[number]), true));
    this.memory = head.memory.map((one, k) => {
      const at = this.put(new Uint8Array(one.size + GRAIN + one.behind), GRAIN) + one.behind;
      engine.bytes.set((given[k] ?? pack.piece(one.data)).subarray(0, one.size), at);
      return at;
    });
    const params = this.put(pack.piece(head.arrays.params));
    for (const [piece, at, to, behind] of head.moves)
      engine.view.setBigUint64((piece < 0 ? params : this.memory[piece]) + at, BigInt(this.memory[to] + behind), true);
    const written = head.memory.map(one => one.written == null ? 0 : this.put(pack.piece(one.written)));
    const allocs = this.put(new Uint8Array(32 * this.memory.length)), { view } = engine;
    const order = head.memory.map((_, k) => k).sort((a, b) => this.memory[a] - this.memory[b]);
    order.forEach((k, row) => {
      const one = head.memory[k], at = allocs + 32 * row;
      view.setBigUint64(at, BigInt(this.memory[k]), true);
      view.setBigUint64(at + 8, BigInt(this.memory[k] + one.size), true);
      view.setUint32(at + 16, (written[k] ? 1 : 0) | (one.read_only ? 2 : 0), true);
      view.setUint32(at + 20, k, true);
      view.setBigUint64(at + 24, BigInt(written[k]), true);
    });
    this.counts = this.put(new Uint8Array(head.count[""] * this.instructions));
    const samples = this.put(new Uint8Array(2 * head.sample[""] * this.instructions));
    const own = this.memory[head.memory.findIndex(one => one.own)];
    this.at = this.put(pack.piece(head.launch));
    const pointers = { code, params, allocs, samples, counts: this.counts, globals: own, consts: own };
    for (const name of ["lists", "constants", "specials", "shared_constants"])
      pointers[name] = this.put(pack.piece(head.arrays[name]));
    for (const [name, to] of Object.entries(pointers)) this.set(name, to);
    this.set("threads", 1);
    for (const [name, value] of Object.entries(settings)) this.set(name, value);
  }
  field(name) {
    const at = this.pack.head.fields[name];
    if (at === undefined) throw new Error(`a launch has no ${name}`);
    return this.at + at;
  }
  set(name, value) {
    const { view } = this.engine, at = this.field(name);
    if (Array.isArray(value)) value.forEach((one, k) => view.setUint32(at + 4 * k, one, true));
    else if (name === "seed" || name === "limit") view.setBigUint64(at, BigInt(value), true);
    else view.setUint32(at, value, true);
  }
  number(name, k = 0) { return this.engine.view.getUint32(this.field(name) + 4 * k, true); }
  three(name) { return [0, 1, 2].map(k => this.number(name, k)); }
  get steps() { return Number(this.engine.view.getBigUint64(this.field("steps"), true)); }
  // A copy of bytes in the engine's memory, or room for them.
  put(data, align = LINES) {
    const { exports } = this.engine, size = Math.max(16, data.byteLength), got = exports.malloc(size + align);
    if (!got) throw new Error(`no memory for ${size} bytes`);
    const at = Math.ceil(got / align) * align, { bytes } = this.engine;
    bytes.fill(0, at, at + size);
    bytes.set(data, at);
    this.held.push(got);
    return at;
  }
  contents(k) { return this.engine.bytes.slice(this.memory[k], this.memory[k] + this.pack.head.memory[k].size); }

  // All of it: 0, or 1 if a finding ended it, or 2 if it went on to its end.
  run() {
    const said = this.engine.exports.papergpu_launch(this.at);
    this.printed();
    return said;
  }
  printed() {
    const { engine } = this, { exports } = engine, length = this.put(new Uint8Array(8));
    const at = exports.papergpu_printed(this.at, length), size = Number(engine.view.getBigUint64(length, true));
    this.output = size ? new TextDecoder().decode(this.engine.bytes.slice(at, at + size)) : "";
    exports.papergpu_forget(this.at);
  }
  // What was found: {text, pc, place, block, thread}, or null. Numbers behind $ name memory, behind @ instructions.
  get finding() {
    const text = this.engine.text(this.field("error"));
    if (!text) return null;
    const { memory } = this.pack.head;
    return { pc: this.number("fault_pc"), block: this.three("fault_block"), thread: this.three("fault_thread"),
      text: text.replace(/\$(\d+)/g, (_, k) => memory[k].name).replace(/@(\d+)/g, (_, pc) => this.where(+pc)) };
  }
  // The place of an instruction: its line of PTX, and [file, line] with its callers.
  place(pc) {
    const place = this.engine.view.getUint32(this.code + 64 * pc + 56, true);
    const [ptx, ...rest] = this.pack.head.places[place], callers = [];
    for (let k = 0; k < rest.length; k += 2) callers.push([this.pack.head.files[rest[k]], rest[k + 1]]);
    return { ptx, callers };
  }
  where(pc) {
    const { ptx, callers } = this.place(pc);
    if (!callers.length) return `PTX line ${ptx}`;
    const [first, outer] = [callers[0], callers.at(-1)], said = ([file, line]) => `${file.split("/").pop()}:${line}`;
    return first[0] === outer[0] ? said(first) : `${said(first)} (from ${said(outer)})`;
  }
  // ---- step by step
  begin() {
    this.stepper = this.engine.exports.papergpu_step_begin(this.at);
    return Boolean(this.stepper);
  }
  // At most so many instructions, of warp `only` if it is not -1; STATES[...] says how it ended.
  step(most, only = -1, breaks = 0) {
    return STATES[this.engine.exports.papergpu_step(this.stepper, most, only, breaks)];
  }
  get last() { return this.engine.exports.papergpu_step_last(this.stepper); }
  warps() {
    const { exports } = this.engine, count = exports.papergpu_step_warps(this.stepper), found = [];
    for (let k = 0; k < count; ++k) {
      const at = exports.papergpu_step_warp(this.stepper, k), { view } = this.engine, groups = [];
      const word = n => view.getUint32(at + n, true);
      for (let g = 0; g < Math.min(8, word(48)); ++g) {
        const from = at + 52 + 16 * g;
        groups.push({ pc: view.getUint32(from, true), lanes: view.getUint32(from + 4, true),
          state: view.getUint32(from + 8, true), barrier: view.getUint32(from + 12, true) });
      }
      found.push({ registers: word(0), shared: word(8), steps: word(16), pc: word(24), lanes: word(28), live: word(32),
        done: Boolean(word(36)), block: word(40), warp: word(44), groups });
    }
    return found;
  }
  // What instruction `pc` accessed when it was executed last, in global or in shared memory.
  access(pc, shared) {
    const { exports } = this.engine, at = exports.papergpu_step_access(this.stepper, pc, shared ? 1 : 0);
    if (!at) return null;
    const { sample } = this.pack.head, { view } = this.engine, word = name => view.getUint32(at + sample[name], true);
    const mask = word("mask"), lanes = [];
    for (let k = 0; k < 32; ++k)
      lanes.push(mask >>> k & 1 ? Number(view.getBigUint64(at + sample.addresses + 8 * k, true)) : null);
    return { lanes, size: word("size"), passes: word("passes"), ideal: word("ideal") };
  }
  // How often each instruction was executed, by a warp.
  runs() {
    const { count } = this.pack.head, { view } = this.engine, found = new Uint32Array(this.instructions);
    for (let k = 0; k < found.length; ++k) found[k] = view.getUint32(this.counts + count[""] * k + count.run, true);
    return found;
  }
  end() {
    if (this.stepper) this.engine.exports.papergpu_step_end(this.stepper);
    this.stepper = 0;
    for (const at of this.held) this.engine.exports.free(at);
    this.held = [];
  }
}
export const STATES = ["went on", "at a breakpoint", "waits", "ended", "found"];

// ---- in a worker

class Session {
  // The engine's address, and a pack's, or a file or bytes that are one, and which of its launches.
  async open({ engine, pack, number = 0 }) {
    const unpack = async body => new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    const read = async url => {
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
      return unpack(answer.body);
    };
    this.loading ??= read(engine).then(bytes => Engine.load(bytes));
    this.loading.catch(() => this.loading = null); // to be asked for again
    const data = pack instanceof ArrayBuffer ? pack
      : pack instanceof Blob ? await unpack(pack.stream()).catch(() => new ArrayBuffer(8)) : await read(pack);
    this.pack = new Pack(new Uint8Array(data));
    this.pack.select(number);
    this.engine = await this.loading;
    const { head } = this.pack;
    this.start({});
    const texts = Object.entries(head.sources).map(([name, k]) => [name, this.pack.text(k)]);
    const places = Array.from({ length: this.launch.instructions }, (_, pc) => this.launch.place(pc));
    return {
      forms: Array.from(this.pack.words(head.form), k => head.forms[k]),
      lines: places.map(one => one.ptx), places: places.map(one => one.callers.at(-1) ?? null),
      ptx: this.pack.text(head.ptx), sources: Object.fromEntries(texts), tensors: head.tensors,
      ...Object.fromEntries(["grid", "block", "cluster"].map(name => [name, this.launch.three(name)])),
    };
  }
  // A launch whose memory holds `given`, by name, and of which the instructions `without` do nothing.
  start({ given = {}, without = [], settings = {} }) {
    this.launch?.end();
    this.question = { given, without, settings };
    const bytes = this.pack.head.memory.map(one => given[one.name]);
    this.launch = new Launch(this.engine, this.pack, settings, bytes);
    for (const pc of without) {
      const at = this.launch.code + 64 * pc;
      this.engine.view.setUint32(at, this.engine.handler("nop"), true);
      this.engine.bytes[at + 53] = 0;
    }
  }
  run(question) {
    this.start(question);
    const began = performance.now();
    this.launch.run();
    return { ...this.outcome(), ms: performance.now() - began };
  }
  outcome() {
    const { launch } = this, memory = {};
    this.pack.head.memory.forEach((one, k) => memory[one.name] = launch.contents(k));
    const found = launch.finding, finding = found && { ...found, where: launch.where(found.pc) };
    return { steps: launch.steps, finding, memory, runs: launch.runs() };
  }
  begin(question) {
    this.start(question);
    this.ran = null; // the instruction and the warp that were executed last, and what was accessed meanwhile
    this.log = []; // what was asked for since then: [warp or -1, instructions]
    return this.state(this.launch.begin() ? "went on" : "found");
  }
  // So many instructions, of `only` or of all warps in turn; with `line` until that warp leaves its line of source.
  step({ most = 1, only = -1, breaks = [], line = false }) {
    const { launch } = this, bits = new Uint8Array((launch.instructions + 7) >> 3), before = launch.steps;
    for (const pc of breaks) bits[pc >> 3] |= 1 << (pc & 7);
    const at = breaks.length ? launch.put(bits) : 0;
    let state = "went on";
    if (line && only >= 0) {
      const source = () => JSON.stringify(launch.place(launch.warps()[only].pc).callers.at(-1)), first = source();
      this.ran = null;
      for (let k = 0; k < 10_000 && state === "went on" && source() === first; ++k)
        state = this.single(only, at, this.ran ?? {});
    } else {
      if (most > 1) state = launch.step(most - 1, only, at);
      if (state === "went on") state = this.single(only, at);
    }
    this.log.push([only, launch.steps - before]);
    return this.state(state);
  }
  single(only, breaks, accessed = {}) {
    const { launch } = this, before = launch.warps(), state = launch.step(1, only, breaks), { pc } = before[launch.last];
    const { shared, global } = accessed;
    const now = { shared: launch.access(pc, true) ?? shared, global: launch.access(pc, false) ?? global };
    this.ran = { warp: launch.last, pc, ...now };
    return state;
  }
  // As it was some instructions ago: all is executed again in the same order, up to there.
  back({ most = 1 }) {
    const log = this.log.map(one => [...one]);
    for (let left = most; left && log.length; ) {
      const last = log.at(-1), taken = Math.min(left, last[1]);
      left -= taken;
      last[1] -= taken;
      if (!last[1]) log.pop();
    }
    const first = this.begin(this.question);
    return log.reduce((_, [only, most]) => this.step({ most, only }), first);
  }
  state(state = "went on") {
    return { state, ...this.outcome(), warps: this.launch.warps(), ran: this.ran };
  }
  // What the lanes of a warp hold of the registers that are wanted where it stands: {name, type, values}.
  registers({ warp }) {
    const one = this.launch.warps()[warp], { engine } = this, found = [];
    for (const [name, type, at, first, last] of this.pack.head.named) {
      if (one.pc < first || one.pc > last + 1) continue;
      const { view } = engine, values = [], start = one.registers + at;
      if (type === "pred") {
        const mask = view.getUint32(start, true);
        for (let k = 0; k < 32; ++k) values.push(mask >>> k & 1);
      } else if (/64/.test(type)) for (let k = 0; k < 32; ++k) values.push(view.getBigUint64(start + 8 * k, true));
      else if (/128/.test(type)) continue;
      else for (let k = 0; k < 32; ++k) values.push(view.getUint32(start + 4 * k, true));
      found.push({ name, type, values });
    }
    return found;
  }
}

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const session = new Session();
  let turn = Promise.resolve();
  self.onmessage = ({ data: { id, ask, ...rest } }) => {
    turn = turn.then(async () => {
      try {
        self.postMessage({ id, answer: await session[ask](ask === "state" ? undefined : rest) });
      } catch (error) {
        self.postMessage({ id, error: String(error.message ?? error) });
      }
    });
  };
}
