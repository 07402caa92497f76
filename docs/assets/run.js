/* Run it here: a kernel of this page, executed in this browser by papergpu as WebAssembly.

   The panel asks a worker (papergpu.js), which holds the engine and one launch. Its memory is filled here,
   and what it leaves is compared with a truth that is computed here in double. What a file holds is only
   ever set as text. */

/* Numbers as the kernels have them: how bytes are read and written, and to what a number is rounded. */

const typed = (Kind, read, write) => ({
  decode: bytes => Float64Array.from(new Kind(bytes.slice().buffer), read),
  encode: values => new Uint8Array(Kind.from(values, write).buffer),
  round: value => read(write(value)),
});
const FORMATS = {
  float32: typed(Float32Array, one => one, Math.fround),
  float16: typed(Uint16Array, bits => fromHalf(bits), value => toHalf(value)),
  bfloat16: typed(Uint16Array, bits => fromBrain(bits), value => toBrain(value)),
  float8: typed(Uint8Array, bits => fromEighth(bits), value => toEighth(value)),
  int16: typed(Int16Array, one => one, Math.trunc),
  int32: typed(Int32Array, one => one, Math.trunc),
  int64: typed(BigInt64Array, Number, value => BigInt(Math.trunc(value))),
  ...Object.fromEntries(Object.entries({
    float64: Float64Array, int8: Int8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
    uint64: BigUint64Array,
  }).map(([name, Kind]) => [name, typed(Kind, Number)])),
};

export const readNumbers = (format, bytes) => FORMATS[format].decode(bytes);

export function fromHalf(h) {
  const sign = h & 0x8000 ? -1 : 1, exponent = h >> 10 & 31, rest = h & 1023;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + rest) * 2 ** (exponent - 25) : rest * 2 ** -24);
}

export function toHalf(value) { // the nearest, of two the even one
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0, size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  const power = Math.max(-14, Math.floor(Math.log2(size || 1e-30))), unit = 2 ** (power - 10);
  const whole = Math.floor(size / unit), left = size / unit - whole;
  const near = whole + (left > 0.5 || (left === 0.5 && whole % 2) ? 1 : 0);
  return sign | (near + (power + 14) * 1024); // what carries, carries into the exponent
}

const WORD = new DataView(new ArrayBuffer(4));

function fromBrain(bits) {
  WORD.setUint32(0, bits << 16);
  return WORD.getFloat32(0);
}

function toBrain(value) {
  WORD.setFloat32(0, value);
  const bits = WORD.getUint32(0);
  return Number.isNaN(value) ? 0x7fff : bits + 0x7fff + (bits >>> 16 & 1) >>> 16;
}

const EIGHTHS = Array.from({ length: 127 }, (_, bits) => // e4m3, which has no infinity
  bits >> 3 ? (8 + bits % 8) * 2 ** ((bits >> 3) - 10) : bits * 2 ** -9);

const fromEighth = bits => (bits & 128 ? -1 : 1) * (EIGHTHS[bits & 127] ?? NaN);

function toEighth(value) { // the nearest, of two the even one; what is too large becomes the largest
  const sign = value < 0 || Object.is(value, -0) ? 128 : 0, size = Math.abs(value);
  if (Number.isNaN(value)) return 127;
  const above = EIGHTHS.findIndex(one => one >= size);
  if (above < 1) return sign | (above < 0 ? 126 : 0);
  const middle = (EIGHTHS[above - 1] + EIGHTHS[above]) / 2;
  return sign | (size > middle || (size === middle && above % 2 === 0) ? above : above - 1);
}

/* The values that memory begins with; what is none of the kernel's numbers stays zero. */

function random(seed) { // mulberry32
  let a = seed >>> 0;
  return () => {
    a = a + 0x6d2b79f5 | 0;
    let t = Math.imul(a ^ a >>> 15, 1 | a);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

const draw = (next, whole) =>
  whole ? Math.floor(next() * 201) - 100 : (next() + next() + next() + next() - 2) * 2;
const VALUES = {
  "random": (count, next, whole) => Array.from({ length: count }, () => draw(next, whole)),
  "all one": count => new Array(count).fill(1),
  "one, the rest zero": (count, next) => instead(new Array(count).fill(0), next, 1),
  "counted up": count => Array.from({ length: count }, (_, k) => k % 1024),
  "random, with an infinity": (count, next, whole) =>
    instead(VALUES.random(count, next, whole), next, whole ? 2 ** 31 - 1 : Infinity),
  "typed in": (count, next, whole, typed) => Array.from({ length: count }, (_, k) => typed[k % typed.length]),
};

function instead(values, next, other) {
  values[Math.floor(next() * values.length)] = other;
  return values;
}

const rise = numbers => numbers.sort((one, other) => one - other);
const below = (count, next, end) => Array.from({ length: count }, () => Math.floor(next() * end));
const DRAWN = { // whatever the kind of values
  below,
  rising: (count, next, end) => rise(below(count, next, end)),
  given: (count, next, values) => values, // by the size
  cuts: (count, next, end) => [0, ...rise(below(count - 2, next, end + 1)), end],
  fraction: (count, next) => Array.from({ length: count }, next),
};

export function fill(run, size, kind, seed, typed = [0]) {
  const next = random(seed), given = {};
  for (const [name, [format, ...sides]] of Object.entries(run.tensors)) {
    const count = sides.reduce((all, side) => all * (size[side] ?? side), 1), [how, end] = run.drawn[name] ?? [];
    if (name === run.result || (format === "int64" && !how)) continue;
    const values = how ? DRAWN[how](count, next, size[end] ?? end)
      : VALUES[kind](count, next, format === "int32", typed);
    given[name] = values.map(FORMATS[format].round);
  }
  return given;
}

export function encode(run, given) {
  const bytes = ([name, values]) => [name, FORMATS[run.tensors[name][0]].encode(values)];
  return Object.fromEntries(Object.entries(given).map(bytes));
}

/* What each kernel has to leave, in double. */

const total = values => values.reduce((all, one) => all + one, 0);

// The rows of n numbers at these places.
const take = (x, n, places) => Array.from(places, place => x.slice(place * n, place * n + n));

// What `one` makes of each row of n numbers, and of which it is, one after the other.
function byRow(x, n, one) {
  const rows = take(x, n, Array(x.length / n).keys()).map(one);
  return Float64Array.from(rows.flatMap(row => Array.from(row)));
}

// The weights of scores: their powers of e, of which all are 1 together.
function weigh(scores) {
  const top = scores.reduce((all, one) => Math.max(all, one), -Infinity);
  const powers = scores.map(one => Math.exp(one - top)), whole = total(powers);
  return powers.map(one => one / whole);
}

// How far each lies from their mean, in deviations.
function standardize(row) {
  const mean = total(row) / row.length, off = row.map(one => one - mean);
  const scale = 1 / Math.sqrt(total(off.map(one => one * one)) / row.length + Math.fround(1e-5));
  return off.map(one => one * scale);
}

// a (m, k) by b, whose element of row `step` and column `column` stands at `place`.
function multiply({ a, b }, { m, n, k }, place) {
  const c = new Float64Array(m * n);
  for (let row = 0; row < m; ++row)
    for (let step = 0; step < k; ++step)
      for (let column = 0; column < n; ++column)
        c[row * n + column] += a[row * k + step] * b[place(step, column)];
  return c;
}

// What a query has of the values of keys, which have n numbers.
function look(query, keys, values, n, scale, weight = weigh) {
  const weights = weight(keys.map(key => scale * total(key.map((one, k) => one * query[k]))));
  const out = new Float64Array(n);
  values.forEach((value, key) => value.forEach((one, k) => out[k] += weights[key] * one));
  return out;
}

// What each query has of the keys up to its own, and of so many more behind it.
function attend({ q, k, v }, { s, d }, more) {
  const [keys, values] = [k, v].map(x => take(x, d, Array(s).keys()));
  return byRow(q, d, (query, row) => {
    const [seen, held] = [keys, values].map(rows => rows.slice(0, row + 1 + more));
    return look(query, seen, held, d, d ** -0.5);
  });
}

// What `one` makes of each query (b, t, h), of the places of the rows that it sees, in pages of 16, and of its head.
function decode({ q, table, lengths }, { b, t, h, w }, one) {
  return byRow(q, q.length / (b * t * h), (query, k) => {
    const sequence = Math.floor(k / (h * t)), token = Math.floor(k / h) % t;
    const seen = Array(Math.max(0, lengths[sequence] - t + 1 + token)).keys();
    return one(query, Array.from(seen, at => table[sequence * w + (at >> 4)] * 16 + at % 16), k % h);
  });
}

// The largest element that each block has read, where blocks take `many` elements in turn.
function topsOf(a, blocks, many) {
  const tops = new Array(blocks).fill(-Infinity);
  a.forEach((one, at) => {
    const block = Math.floor(at / many) % blocks;
    tops[block] = Math.max(tops[block], one);
  });
  return tops;
}

export const TRUTHS = {
  transpose: ({ x }, { m, n }) => x.map((_, k) => x[k % m * n + Math.floor(k / m)]),
  product: (given, size) => multiply(given, size, (step, column) => step * size.n + column),
  transposed: (given, size) => multiply(given, size, (step, column) => column * size.k + step),
  softmax: ({ x }, { n }) => byRow(x, n, weigh),
  attention: (given, size) => attend(given, size, size.s),
  causal: (given, size) => attend(given, size, 0),
  rows: ({ x }, { n }) => byRow(x, n, row => [total(row)]),
  rms: ({ x, w }, { n }) => byRow(x, n, row => {
    const scale = 1 / Math.sqrt(total(row.map(one => one * one)) / n + Math.fround(1e-6));
    return row.map((one, k) => one * scale * w[k]);
  }),
  series: ({ x }) => x.map(one => Array.from({ length: 8 }).reduce(sum => sum * one / 2 + 1, 1)),
  scan: ({ x }) => {
    let sum = 0;
    return x.map(one => sum += one);
  },
  stencil: ({ before }, { z, y, x }) => before.map((value, at) => {
    const i = at % x, j = Math.floor(at / x) % y, k = Math.floor(at / (x * y));
    if (!i || !j || !k || i === x - 1 || j === y - 1 || k === z - 1) return value;
    const around = [1, -1, x, -x, x * y, -x * y].map(step => before[at + step]);
    return Math.fround(0.4) * value + Math.fround(0.1) * total(around);
  }),
  sum: ({ x }) => [total(x) | 0],
  scaled: ({ a, b, a_scale, b_scale }, size) =>
    TRUTHS.transposed({ a, b }, size).map(one => one * a_scale[0] * b_scale[0]),
  slabs: ({ a, b, a_scale, b_scale }, size) => { // a scale of 128 of a row of a, and of 128 x 128 of b
    const { m, k, slabs } = size, slab = at => Math.floor(at % k / 128), row = at => Math.floor(at / k);
    const scaled = {
      a: a.map((one, at) => one * a_scale[slab(at) * m + row(at)]),
      b: b.map((one, at) => one * b_scale[Math.floor(row(at) / 128) * slabs + slab(at)]),
    };
    return TRUTHS.transposed(scaled, size);
  },
  grouped: ({ x, w, ends }, { n, k }) => byRow(x, k, (row, at) => { // by the matrix of its group, if it has one
    const group = ends.findIndex(end => at < end), place = (step, column) => (group * n + column) * k + step;
    return group < 0 ? new Float64Array(n) : multiply({ a: row, b: w }, { m: 1, n, k }, place);
  }),
  quantised: ({ x, codes, steps }, { m, n, k, words }) => { // a word has four codes, of weights that are 64 apart
    const b = Float64Array.from({ length: n * k }, (_, at) => {
      const row = Math.floor(at / k), column = at % k, step = 2 * (Math.floor(column / 128) * n + row);
      const word = codes[row * words + Math.floor(column / 256) * 64 + column % 64];
      return ((word >> 4 * Math.floor(column % 256 / 64) & 15) - steps[step + 1]) * steps[step];
    });
    return TRUTHS.transposed({ a: x, b }, { m, n, k });
  },
  exponentials: ({ x }, { n }) => byRow(x, n, row => {
    const top = Math.max(...row);
    return [total(row.map(one => Math.exp(one - top)))];
  }),
  permuted: ({ x, sources }, { h, k }) => byRow(sources, 1, ([copy]) => { // a token has k copies
    const token = Math.floor(copy / k);
    return x.slice(token * h, token * h + h);
  }),
  convolution: ({ x, taps, bias, gamma, beta }, { b, c, t, k, s, groups }) => {
    const sums = Float64Array.from({ length: b * k * t }, (_, at) => {
      const i = at % t, row = Math.floor(at / t) % k, image = Math.floor(at / (t * k));
      let sum = bias[row];
      for (let step = 0; step < c; ++step)
        for (let tap = 0, from = i - (s - 1) / 2; tap < s; ++tap, ++from)
          if (from >= 0 && from < t) sum += taps[(row * c + step) * s + tap] * x[(image * c + step) * t + from];
      return sum;
    });
    return byRow(sums, k / groups * t, standardize).map((one, at) => { // and Mish
      const value = one * gamma[Math.floor(at / t) % k] + beta[Math.floor(at / t) % k];
      return value * Math.tanh(Math.log1p(Math.exp(value)));
    });
  },
  gradient: ({ y, dy }, { n }) => { // of a softmax
    const dots = byRow(y.map((one, at) => one * dy[at]), n, row => [total(row)]);
    return y.map((one, at) => one * (dy[at] - dots[Math.floor(at / n)]));
  },
  NT: ({ a_rows: a, b_columns: b }, size) => TRUTHS.transposed({ a, b }, size),
  TN: ({ a_columns: x, b_rows: b }, size) =>
    TRUTHS.product({ a: TRUTHS.transpose({ x }, { m: size.k, n: size.m }), b }, size),
  "tops by 256": ({ a }, { blocks }) => topsOf(a, blocks, 256),
  "tops by 4096": ({ a }, { blocks }) => topsOf(a, blocks, 4096),
  gated: ({ gate, up }) => gate.map((one, at) => one / (1 + Math.exp(-one)) * up[at]),
  rotation: ({ q, cos, sin }, { s, h, d }) => q.map((one, at) => {
    const half = d / 2, angle = Math.floor(at / (h * d)) % s * half + at % half;
    const other = at % d < half ? -q[at + half] : q[at - half];
    return one * cos[angle] + other * sin[angle];
  }),
  "layer norm": ({ x, w, b }, { n }) => byRow(x, n, standardize).map((one, at) => one * w[at % n] + b[at % n]),
  segments: ({ x, offsets }, { s }) =>
    Array.from({ length: s }, (_, k) => total(x.slice(offsets[k], offsets[k + 1]))),
  recurrence: ({ x, gates, offsets }) => {
    const opens = new Set(offsets);
    let h = 0;
    return x.map((one, at) => h = (opens.has(at) ? 0 : gates[at] * h) + one);
  },
  latent: (given, size) => decode(given, size, (query, rows) => {
    const keys = take(given.cache, 80, rows);
    return look(query, keys, keys.map(key => key.slice(0, 64)), 64, 1 / 8);
  }),
  paged: ({ k, v, ...given }, size) => decode(given, size, (query, rows, head) => {
    const [keys, values] = [k, v].map(x => take(x, size.d, rows.map(row => row * 2 + (head >> 2))));
    return look(query, keys, values, size.d, size.d ** -0.5);
  }),
  pointwise: ({ q, k, v, cu }, { d }) => byRow(q, d, (query, row) => { // what begins with its sequence, up to it
    const first = cu.findLast(one => one <= row), [keys, values] = [k, v].map(x =>
      take(x.slice(first * d, (row + 1) * d), d, Array(row + 1 - first).keys()));
    return look(query, keys, values, d, d ** -0.5, scores => scores.map(one => one / (1 + Math.exp(-one)) / 256));
  }),
  axpy: ({ w, v }) => w.map((one, k) => one - 2 * v[k]),
  swiglu: ({ x, gates, w }, { k, f }) => {
    const sums = (row, x) => total(row.map((one, at) => one * x[at])), z = byRow(gates, k, row => [sums(row, x)]);
    const h = z.slice(0, f).map((one, at) => one / (1 + Math.exp(-one)) * z[f + at]); // and those of `up` behind
    return byRow(w, f, row => [sums(row, h)]);
  },
  merged: ({ out1, lse1, out2, lse2 }, { d }) => out1.map((one, at) => {
    const row = Math.floor(at / d), [first, second] = weigh([lse1[row], lse2[row]]);
    return first * one + second * out2[at];
  }),
};

// What a launch left, beside the truth of that name: the largest error, and what is wrong.
export function compare(run, size, given, bytes, name) {
  const [format] = run.tensors[run.result];
  let found = readNumbers(format, bytes);
  if (name === "sum") found = Float64Array.of(total(found) | 0); // of all blocks
  let truth = Float64Array.from(TRUTHS[name](given, size));
  if (format === "float16") truth = truth.map(one => Math.abs(one) >= 65520 ? one * Infinity : one);
  const largest = truth.reduce((all, one) => Number.isFinite(one) ? Math.max(all, Math.abs(one)) : all, 0);
  let worst = 0, wrong = 0, at = -1;
  truth.forEach((one, k) => {
    const off = Object.is(one, found[k]) || one === found[k] ? 0 : Math.abs(one - found[k]);
    if (off > worst) worst = off;
    if (off <= run.tolerance * largest) return; // what is no number is not
    if (!wrong++) at = k;
  });
  return { truth, found, worst, wrong, at, largest };
}

/* The panel. */

export function make(tag, given = {}, ...inside) {
  const one = Object.assign(document.createElement(tag), given);
  one.append(...inside);
  return one;
}

const cell = (tag, textContent, className = "") => make(tag, { textContent, className });

function table(head, rows, className = "") {
  const line = cells => make("tr", {}, ...cells);
  const top = make("thead", {}, line(head.map(text => cell("th", text))));
  const whole = make("table", { className }, top, make("tbody", {}, ...rows.map(line)));
  return make("div", { className: "ws-run-scroll" }, whole);
}

const count = (many, what) => `${many.toLocaleString("en")} ${what}${many === 1 ? "" : "s"}`;
const several = many => many.toLocaleString("en");

function number(value, digits = 6) {
  const near = Number.isFinite(value) && !Number.isInteger(value) ? +value.toPrecision(digits) : value;
  return String(near).replace("-", "\u2212");
}

// What a worker answers, question by question.
export class Asker {
  constructor(script) {
    this.worker = new Worker(script, { type: "module" });
    this.waiting = new Map();
    this.last = 0;
    this.worker.onmessage = ({ data }) => {
      const { resolve, reject } = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.error) reject(new Error(data.error));
      else resolve(data.answer);
    };
    this.worker.onerror = ({ message }) => this.refuse(message || "the worker did not start");
  }
  ask(what, rest = {}) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, ask: what, ...rest });
    });
  }
  refuse(why) {
    for (const { reject } of this.waiting.values()) reject(new Error(why));
    this.waiting.clear();
  }
  stop() {
    this.worker.terminate();
    this.refuse("stopped");
  }
}

// What may be left out, by its form.
const ORDERS = [
  [/^bar(rier)?\.(?!cluster\.arrive)/, "barrier"],
  [/^(cp\.async|wgmma)\.wait|^cp\.async\.bulk\.wait/, "wait"],
  [/^(fence|wgmma\.fence|membar)/, "fence"],
];
const BUTTONS = [ // what they say, what they do, and whether only while stepping
  ["Run", "run"], ["Step through", "begin"], ["Instruction", "one", true], ["Line", "line", true],
  ["To a breakpoint", "go", true], ["Back", "back", true], ["Stop", "stop"],
];
const SAID = {
  "went on": "Execution stands before the marked line.",
  "at a breakpoint": "At a breakpoint.",
  "waits": "This warp waits for others: choose another one, or all.",
  "ended": "This warp has ended: choose another one, or all.",
};
const UNMISSED = " It was not missed: this order of warps and this size do without, or no check can tell.";
const PACE = 900; // ms a line of what steps by itself
const FAR = 2_000_000; // instructions to a breakpoint
const SHOWN = [0, 1, 2, 3, 31]; // lanes of a register
const MOST = 48; // registers

export class Panel {
  constructor(fold, home) {
    this.run = JSON.parse(fold.dataset.run);
    this.home = home;
    this.breaks = new Set(); // lines of the source
    const { own, tensors = {}, sizes = [], variants = [], finite } = this.run;
    const sides = new Set(Object.values(tensors).flatMap(([, ...names]) => names));
    const describe = size => Object.entries(size)
      .filter(([side]) => sides.has(side)).map(side => side.join(" ")).join(", ");
    const kinds = Object.keys(VALUES).filter(kind => !finite || !kind.includes("infinity"));
    const choices = [
      ...own ? this.inputs() : [this.pick("variant", "Kernel", variants.map(one => one.name)),
        this.pick("size", "Size", sizes.map(describe)), this.pick("values", "Values", kinds),
        this.type("seed", "Seed", "1"), this.type("typed", "Numbers, over and over", "1, 2, 3")],
      this.type("grid", "Blocks"), this.type("block", "Threads"),
      this.pick("order", "Order of warps", ["in turn", "one as far as it goes", "at random"]),
      this.pick("without", "Break it", ["as it is"]),
    ];
    this.buttons = Object.fromEntries(BUTTONS.map(([text, name]) => [name, this.button(text, name)]));
    this.buttons.run.classList.add("md-button--primary");
    this.said = make("p", { className: "ws-run-said" });
    this.said.setAttribute("role", "status");
    this.source = make("ol", { className: "ws-run-code", tabIndex: 0 });
    this.source.setAttribute("aria-label", "the source, with how often a warp executed a line");
    this.state = make("div", { className: "ws-run-state" });
    fold.append(make("div", { className: "ws-run-body" },
      make("div", { className: "ws-run-choices" }, ...choices),
      make("div", { className: "ws-run-buttons" }, ...Object.values(this.buttons)),
      this.said, this.source, this.state));
    this.asker = new Asker(new URL(this.run.script, home));
    this.choose();
  }
  pick(name, label, options) {
    const choice = this[name] = make("select");
    this.offer(choice, options);
    choice.setAttribute("aria-label", label); // without the options, which a label around it would name
    choice.addEventListener("change", () => this.choose());
    return make("label", {}, `${label} `, choice);
  }
  type(name, label, value = "") {
    const typed = this[name] = make("input", { type: "text", value, size: 8 });
    typed.addEventListener("change", () => this.choose());
    return make("label", {}, `${label} `, typed);
  }
  // The numbers that stand in a field; the first of them must be one.
  read(name, least = -Infinity, most = Infinity) {
    const field = this[name], all = field.value.split(/[\s,;x\u00d7]+/).filter(Boolean).map(Number);
    const wrong = !all.length || all.some(one => Number.isNaN(one) || one < least || one > most);
    field.setAttribute("aria-invalid", wrong);
    if (wrong) throw new Error(`${field.parentNode.textContent.trim()}: ${field.value || "nothing"} cannot be`);
    return all;
  }
  // A grid or a block, of one number to three.
  readSides(name, most) {
    const sides = [...this.read(name, 1, most).map(Math.floor), 1, 1].slice(0, 3), all = sides.reduce((x, y) => x * y);
    if (all > most) throw new Error(`${all} ${name === "grid" ? "blocks" : "threads"} are more than ${most}`);
    return sides;
  }
  offer(choice, options) {
    choice.replaceChildren(...options.map((textContent, value) => make("option", { value, textContent })));
  }
  inputs() {
    this.picked = make("input", { type: "file", accept: ".gz" });
    this.picked.addEventListener("change", () => this.choose());
    return [make("label", {}, "Pack ", this.picked)];
  }
  button(textContent, name) {
    const button = make("button", { type: "button", className: "md-button", textContent, disabled: true });
    const act = () => this.act(name).catch(error => this.say(error.message, true));
    button.addEventListener("click", name === "stop" ? () => this.stop() : act);
    return button;
  }
  stop() {
    this.asker.stop();
    this.asker = new Asker(new URL(this.run.script, this.home));
    this.pack = null; // Run loads it again
  }
  say(text, bad = false) {
    this.said.textContent = text;
    this.said.classList.toggle("ws-run-bad", bad);
  }
  // Another kernel, size or value: the program is loaded, and run.
  async choose() {
    const { own, variants, engine } = this.run, address = path => new URL(path, this.home).href;
    const pack = own ? this.picked.files[0] : variants[this.variant.value].pack, number = own ? 0 : +this.size.value;
    if (!pack) return this.say("Choose a file that papergpu run --pack FOLDER has written.");
    if (!own) {
      const kind = this.values.selectedOptions[0].textContent;
      this.seed.parentNode.hidden = !/random|one,/.test(kind);
      this.typed.parentNode.hidden = kind !== "typed in";
    }
    try {
      if (pack !== this.pack || number !== this.number) {
        this.say("Loading the engine and the kernel \u2026");
        for (const button of Object.values(this.buttons)) button.disabled = true;
        const what = { engine: address(engine), pack: own ? pack : address(`runtime/${pack}`), number };
        this.program = await this.asker.ask("open", what);
        Object.assign(this, { pack, number });
        this.showSource();
        for (const name of ["grid", "block"])
          this[name].value = this.program[name].join(" \u00d7 ").replace(/( \u00d7 1)+$/, "");
        this.block.parentNode.hidden = !/\.cuh?$/.test(this.file); // Triton's are compiled in
        this.listOrders();
      }
    } catch (error) {
      return this.say(`It does not run here: ${error.message}`, true);
    }
    await this.act("run").catch(error => this.say(error.message, true));
  }
  // Of the source the lines around those that became instructions.
  showSource() {
    const { places, sources, ptx } = this.program;
    this.file = places.find(one => one?.[0] in sources)?.[0] ?? "";
    const text = (sources[this.file] ?? ptx).replace(/^[ \t]*(?:#|\/\/)[ \t]*-+8<-+.*$/gm, "");
    const held = new Set(places.filter(one => one?.[0] === this.file).map(one => one[1]));
    const near = line => [-3, -2, -1, 0, 1, 2].some(far => held.has(line + far));
    this.rows = new Map();
    this.breaks.clear();
    this.source.replaceChildren(...text.split("\n").flatMap((code, k) => {
      const line = k + 1;
      if (near(line)) return [this.sourceRow(line, code, held.has(line))];
      return near(k) ? [make("li", { className: "ws-run-gap", textContent: "\u22ee" })] : [];
    }));
  }
  sourceRow(line, code, runs) {
    const button = make("button", { type: "button", textContent: line, disabled: !runs });
    button.title = "a breakpoint here, or none";
    const row = make("li", { value: line }, button, make("b"), make("code", { textContent: code || " " }));
    button.addEventListener("click", () => {
      if (!this.breaks.delete(line)) this.breaks.add(line);
      row.classList.toggle("ws-run-break", this.breaks.has(line));
    });
    this.rows.set(line, row);
    return row;
  }
  // What orders threads or waits for copies, to be left out: those of one line, unrolled or inlined, together.
  listOrders() {
    this.orders = new Map([["as it is", []]]);
    this.program.forms.forEach((form, pc) => {
      const kind = ORDERS.find(([of]) => of.test(form))?.[1];
      if (!kind || !this.program.places[pc]) return;
      const name = `without the ${kind} of ${this.where(pc)}`;
      this.orders.set(name, [...this.orders.get(name) ?? [], pc]);
    });
    this.offer(this.without, [...this.orders.keys()]);
  }
  where(pc) {
    const place = this.program.places[pc];
    if (!place) return `PTX line ${this.program.lines[pc]}`;
    return place[0] === this.file ? `line ${place[1]}` : `${place[0].split("/").pop()}:${place[1]}`;
  }
  // What a launch begins with.
  question() {
    const { run } = this, order = +this.order.value, settings = { schedule: order, seed: order === 2 ? 1 : 0 };
    settings.grid = this.readSides("grid", 4096);
    if (!this.block.parentNode.hidden) settings.block = this.readSides("block", 1024);
    const group = this.program.cluster, whole = settings.grid.every((blocks, k) => blocks % group[k] === 0);
    if (!whole) throw new Error(`blocks come in clusters of ${group.join(" \u00d7 ")}`);
    const without = [...this.orders.values()][this.without.value];
    if (run.own) return { without, settings: { ...settings, profile: 1, fatal: 1 } };
    const kind = this.values.selectedOptions[0].textContent;
    const typed = this.typed.parentNode.hidden ? [] : this.read("typed"), [seed] = this.read("seed");
    this.given = fill(run, run.sizes[this.size.value], kind, seed, typed);
    return { without, settings, given: encode(run, this.given) };
  }
  async act(name) {
    if (!this.pack) return this.choose();
    for (const [key, button] of Object.entries(this.buttons)) button.disabled = key !== "stop";
    const only = this.warp ?? -1, broken = one => one && one[0] === this.file && this.breaks.has(one[1]);
    const asked = {
      run: () => ["run", this.question()],
      begin: () => ["begin", this.question()],
      back: () => ["back", { most: 1 }],
      stay: () => ["state"],
      one: () => ["step", { only }],
      line: () => ["step", { only: Math.max(0, only), line: true }],
      go: () => {
        const breaks = this.program.places.flatMap((one, pc) => broken(one) ? [pc] : []);
        return ["step", { most: FAR, breaks }];
      },
    };
    let answer = null;
    try {
      answer = await this.asker.ask(...asked[name]());
      if (name === "begin") this.warp = 0;
      this.stepping = name !== "run";
      await this.show(answer);
    } finally {
      const over = answer && this.isOver(answer);
      for (const [, key, late] of BUTTONS) {
        const idle = late && (!this.stepping || (over && key !== "back"));
        this.buttons[key].disabled = key === "stop" || idle;
      }
    }
  }
  isOver(answer) {
    return !this.stepping || Boolean(answer.finding) || answer.warps.every(one => one.done);
  }
  async show(answer) {
    const { finding } = answer;
    for (const row of this.rows.values()) row.classList.remove("ws-run-at", "ws-run-wrong");
    this.showCounts(answer.runs);
    this.state.replaceChildren();
    if (finding) {
      const thread = `block (${finding.block}), thread (${finding.thread})`;
      this.mark(finding.pc, "ws-run-wrong");
      this.say(`Found at ${finding.where}, ${thread}: ${finding.text}.`, true);
    } else if (this.isOver(answer)) this.judge(answer);
    else this.say(SAID[answer.state]);
    if (this.stepping) await this.look(answer);
    else if (!finding) this.showResult(answer);
  }
  showCounts(runs) {
    const totals = new Map();
    runs.forEach((many, pc) => {
      const place = this.program.places[pc];
      if (place?.[0] === this.file) totals.set(place[1], (totals.get(place[1]) ?? 0) + many);
    });
    const most = Math.max(1, ...totals.values());
    for (const [line, { children: [, bar] }] of this.rows) {
      const many = totals.get(line) ?? 0;
      bar.textContent = many ? several(many) : "";
      bar.style.setProperty("--share", `${100 * many / most}%`);
    }
  }
  // In words what a launch did that found nothing, and how right its result is.
  judge({ steps, ms, memory }) {
    const { run } = this, spent = ms === undefined ? "" : ` in ${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
    const done = `${count(steps, "warp-instruction")}${spent}. No race, nothing out of bounds.`;
    if (run.own) return this.say(done);
    const { truth: name } = run.variants[this.variant.value], size = run.sizes[this.size.value];
    const { truth, found, worst, wrong, at, largest } =
      compare(run, size, this.given, memory[run.result], name);
    if (wrong) {
      const first = `the first at ${at}: ${number(found[at])} for ${number(truth[at])}`;
      const many = `${count(wrong, "number")} of ${several(truth.length)} are wrong`;
      return this.say(`${done} ${many}, ${first}.`, true);
    }
    const error = `The largest error is ${number(worst)}, of numbers up to ${number(largest)}`;
    const what = name === "sum" ? `The sum is ${number(found[0])}` : error;
    this.say(`${done} ${what}: right, by a float64 truth.${+this.without.value ? UNMISSED : ""}`);
  }
  mark(pc, name) {
    const place = this.program.places[pc], row = place?.[0] === this.file ? this.rows.get(place[1]) : null;
    if (!row) return;
    row.classList.add(name);
    this.source.scrollTop = row.offsetTop - this.source.clientHeight / 2;
  }
  // The first numbers of what a run left.
  showResult({ memory }) {
    const { run } = this, size = run.sizes?.[this.size.value];
    if (!run.own) this.showTensor(run.result, run.tensors[run.result].map(side => size[side] ?? side), memory);
  }
  showTensor(name, [format, ...sides], memory) {
    const values = readNumbers(format, memory[name]);
    const wide = sides.length > 1 ? sides.at(-1) : values.length, rows = [];
    for (let at = 0; at < Math.min(8 * wide, values.length); at += wide)
      rows.push(Array.from(values.slice(at, at + Math.min(6, wide)), one => cell("td", number(one, 4))));
    const what = `${name}, ${sides.join(" \u00d7 ")} ${format}: its first numbers`;
    this.state.append(make("div", {}, cell("p", what, "ws-label"), table([], rows)));
  }
  // Where all warps stand; of the chosen one its registers, and what was executed last.
  async look({ warps, ran }) {
    if (!(this.warp < warps.length)) this.warp = 0;
    const standing = warps[this.warp] && !warps[this.warp].done ? warps[this.warp] : ran && warps[ran.warp];
    if (standing) this.mark(standing.pc, "ws-run-at");
    const chosen = this.warp >= 0 ? this.warp : ran?.warp ?? 0;
    const held = await this.asker.ask("registers", { warp: chosen });
    this.state.append(
      make("div", {}, this.pickWarp(warps), ...ran ? this.describe(warps[ran.warp], ran) : []),
      make("div", {}, this.describeWarp(warps[chosen]), ...this.showRegisters(held)),
    );
  }
  pickWarp(warps) {
    const place = one => one.done ? "ended" : one.lanes ? this.where(one.pc) : "waits";
    const names = warps.map(one => `warp ${one.warp} of block ${one.block}: ${place(one)}`);
    const choice = make("select");
    this.offer(choice, ["all in turn", ...names]);
    choice.value = this.warp + 1;
    choice.setAttribute("aria-label", "Step");
    choice.addEventListener("change", () => {
      this.warp = choice.value - 1;
      this.act("stay");
    });
    return make("label", {}, "Step ", choice);
  }
  // The instruction that was executed last, and what it accessed.
  describe({ warp, block }, { pc, shared, global }) {
    const form = this.program.forms[pc], who = `warp ${warp} of block ${block}`;
    const found = [cell("p", `Executed last, by ${who}: ${form} (${this.where(pc)}).`)];
    if (shared) found.push(...showBanks(shared));
    if (global) {
      const lanes = count(global.lanes.filter(at => at !== null).length, "lane");
      const cost = `${count(global.passes, "sector")} of 32 bytes for ${lanes}; ${global.ideal} would do`;
      found.push(cell("p", `Global memory: ${cost}.`));
    }
    return found;
  }
  describeWarp({ warp, block, done, lanes, live, pc, groups }) {
    const form = this.program.forms[pc];
    const together = `${count(bits(lanes), "lane")} of ${bits(live)} go on together`;
    const what = done ? "It has ended" : lanes ? `${together}; ${form} comes next` : `It waits at ${form}`;
    // Where the warp has parted, or waits, its other lanes stand elsewhere.
    const apart = lanes ? groups.map(one => ` ${count(bits(one.lanes), "lane")}: ${this.where(one.pc)}.`) : [];
    return cell("p", `Warp ${warp} of block ${block}. ${what}.${apart.join("")}`, "ws-label");
  }
  showRegisters(held) {
    const floats = make("input", { type: "checkbox", checked: Boolean(this.floats) });
    floats.addEventListener("change", () => {
      this.floats = floats.checked;
      this.act("stay");
    });
    const shown = type => this.floats && type === "b32" ? "f32" : type;
    const rows = held.slice(0, MOST).map(({ name, type, values }) =>
      [cell("th", name), ...SHOWN.map(lane => cell("td", format(values[lane], shown(type))))]);
    const some = held.some(one => one.type === "b32");
    const choice = some ? [make("label", {}, floats, " registers of 32 bits as floats")] : [];
    return [...choice, table(["register", "lane 0", ...SHOWN.slice(1)], rows)];
  }
}

function bits(mask) {
  let many = 0;
  for (let left = mask >>> 0; left; left &= left - 1) ++many;
  return many;
}

// What a lane has of a register of a type.
function format(value, type) {
  const view = new DataView(new ArrayBuffer(8));
  if (type === "pred") return value ? "yes" : "no";
  if (type === "f64") {
    view.setBigUint64(0, value);
    return number(view.getFloat64(0));
  }
  if (typeof value === "bigint") return value > 0xffffffffn ? `0x${value.toString(16)}` : String(value);
  view.setUint32(0, value);
  return number(type === "f32" ? view.getFloat32(0) : view.getInt32(0), 5);
}

// The lanes of an access of shared memory by the bank that they touch, as a table.
function showBanks({ lanes, size, passes, ideal }) {
  const by = Array.from({ length: 32 }, () => []);
  lanes.forEach((at, lane) => {
    for (let b = 0; at !== null && b < Math.max(4, size); b += 4) by[at + b >> 2 & 31].push(lane);
  });
  const look = one => one.length > 1 && passes > ideal ? "ws-run-wrong" : one.length ? "ws-run-hit" : "";
  const deep = Math.min(8, Math.max(...by.map(one => one.length)));
  const rows = Array.from({ length: deep }, (_, row) => by.map(one => cell("td", one[row] ?? "", look(one))));
  const said = `Shared memory: ${count(passes, "wavefront")} of ${ideal} that would do. Lanes by bank:`;
  return [cell("p", said), table(by.map((_, bank) => bank), rows, "ws-run-banks")];
}

// One warp of a kernel that steps through itself, line by line: its source, and what it accessed last.
class Watch {
  constructor(box, home) {
    this.run = JSON.parse(box.dataset.watch);
    this.address = path => new URL(path, home).href;
    this.asker = new Asker(new URL(this.run.script, home));
    this.source = make("ol", { className: "ws-run-code", tabIndex: 0 });
    this.source.setAttribute("aria-label", "the source of the kernel, with the line that is next");
    this.said = make("p", { className: "ws-run-said" });
    this.state = make("div", { className: "ws-run-state" });
    this.toggle = make("button", { type: "button", className: "md-button", textContent: "Pause" });
    this.toggle.addEventListener("click", () => this.play(!this.playing));
    const once = make("button", { type: "button", className: "md-button", textContent: "One line" });
    once.addEventListener("click", () => {
      this.play(false);
      this.tick();
    });
    box.replaceChildren(this.said, make("div", { className: "ws-watch-parts" }, this.source, this.state),
      make("div", { className: "ws-run-buttons" }, this.toggle, once));
    this.box = box;
    this.number = -1;
    this.play(true);
  }
  play(on) {
    this.playing = on;
    this.toggle.textContent = on ? "Pause" : "Go on";
    if (on) this.tick();
  }
  // The next line; behind the last one the next kernel.
  async tick() {
    if (this.busy) return;
    this.busy = true;
    try {
      const over = !this.answer || this.answer.warps[0].done;
      if (over) await this.begin();
      for (let lines = 0; lines < 40; ++lines) { // to one that accesses memory
        this.answer = await this.asker.ask("step", { only: 0, line: true });
        // At a barrier the others have their turn.
        if (this.answer.state === "waits") this.answer = await this.asker.ask("step", { most: 400 });
        const { ran, warps: [warp] } = this.answer;
        if (warp.done || ran?.shared || ran?.global) break;
      }
      this.show();
    } catch (error) {
      this.play(false);
      this.said.textContent = error.message;
    }
    this.busy = false;
    if (this.playing && this.box.isConnected) setTimeout(() => this.playing && this.tick(), PACE);
    else if (!this.box.isConnected) this.asker.stop();
  }
  async begin() {
    const { run } = this, { variants, sizes, engine } = run;
    this.number = (this.number + 1) % variants.length;
    const what = { engine: this.address(engine), pack: this.address(`runtime/${variants[this.number].pack}`) };
    const { places, sources } = await this.asker.ask("open", what);
    const [[file, text]] = Object.entries(sources), lines = text.split("\n");
    const held = [...new Set(places.filter(one => one?.[0] === file).map(one => one[1]))].sort((a, b) => a - b);
    this.places = places;
    this.rows = new Map(held.map(line => [line, make("li", {}, make("code", { textContent: lines[line - 1] }))]));
    this.source.replaceChildren(...this.rows.values());
    const given = encode(run, fill(run, sizes[0], "random", 1));
    this.answer = await this.asker.ask("begin", { given, settings: { profile: 1, fatal: 1 } });
  }
  show() {
    const { ran, warps } = this.answer, { name } = this.run.variants[this.number];
    for (const [line, row] of this.rows) row.classList.toggle("ws-run-at", line === this.places[ran?.pc]?.[1]);
    const row = this.source.querySelector(".ws-run-at");
    if (row) this.source.scrollTop = row.offsetTop - this.source.clientHeight / 2;
    const { shared, global } = ran ?? {}, lanes = global?.lanes.filter(at => at !== null).length;
    const cost = global ? `${count(lanes, "lane")} in ${count(global.passes, "sector")} of global memory.` : "";
    const who = `A transpose, \u201c${name}\u201d, is executed here: the first of ${warps.length} warps, line by line.`;
    this.said.textContent = `${who} ${cost}`;
    if (shared) this.state.replaceChildren(...showBanks(shared));
    else if (!this.state.hasChildNodes()) this.state.textContent = "The banks that its lanes touch appear here.";
  }
}

// It begins when it is in sight, unless nothing is to move, or be loaded, unasked.
export function watch(box, home) {
  if (box.querySelector("button")) return;
  const begin = () => {
    seen.disconnect();
    new Watch(box, home);
  };
  const seen = new IntersectionObserver(([one]) => one.isIntersecting && begin());
  const button = make("button", { type: "button", className: "md-button", textContent: "Watch a kernel, line by line" });
  button.addEventListener("click", begin);
  addStyle(box, home).replaceChildren(button);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches || navigator.connection?.saveData) return;
  seen.observe(box);
}

function addStyle(box, home) {
  document.head.append(make("link", { rel: "stylesheet", href: new URL("assets/run.css", home).href }));
  return box;
}

export async function open(fold, home) {
  const { python, puzzles } = JSON.parse(fold.dataset.run);
  const { Playground, Puzzles } = python ? await import("./playground.js") : {};
  const Kind = python ? (puzzles ? Puzzles : Playground) : Panel;
  return new Kind(addStyle(fold, home), home);
}
