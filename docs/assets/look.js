/* A view: a kernel's source beside its PTX or machine code, with what was counted on each line.

   Two grids, each one stop of the Tab key, in which arrows go from cell to cell. A row whose pointer,
   focus or pin it is lights up with all that became of it, or that it came from, on the other side;
   a count opens a panel that says how it was counted. What a file holds is only ever set as text.
   Its shape: scripts/warpshelf/look/view.py. */

import { counted, make, number, pictures } from "./lanes.js";

const LANES = 32;
const CHUNK = 64; // rows that are laid out together, once they come near the screen
const COLOURS = 8;
const HINT = "Choose a line to pin the code that came from it, or a count to see how it was counted.";
const WORDS =
  "auto bool break char const constexpr continue def do double elif else extern float for half if " +
  "import in inline int long not or and return short static struct template typename unsigned using " +
  "void volatile while with __\\w+__";
const lexer = (comment) =>
  new RegExp(`(${comment}.*)|("[^"]*"|'[^']*')|\\b(${WORDS.replaceAll(" ", "|")})\\b|\\b(\\d[\\w.]*)`, "g");
const [CUDA, PYTHON] = ["//", "#"].map(lexer);
const TOKENS = ["comment", "string", "keyword", "number"];

const fetched = new Map();
const raws = new Map();
let side = "PTX"; // as it was last chosen

// A view is one compressed file. Some of its lists have each number as the difference from the one
// before, and PTX its registers so: scripts/warpshelf/look/view_store.py.
async function load(url) {
  if (!fetched.has(url)) {
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
    fetched.set(url, parsed(await unpacked(await answer.blob())));
  }
  return fetched.get(url);
}

// Some servers say that a .gz is encoded, and then the browser has unpacked it by itself.
async function unpacked(blob) {
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  if (first !== 0x1f || second !== 0x8b) return blob.text();
  return new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function parsed(text) {
  const view = JSON.parse(text);
  const lists = view.accesses.map((one) => one.addresses);
  for (const list of [view.sass.ptx, view.sass.live, view.ptx.line, ...lists]) {
    let before = 0;
    list.forEach((one, at) => (list[at] = one === null ? one : (before += one)));
  }
  const before = {};
  const register = (_, name, far) => `%${name}${(before[name] = (before[name] || 0) + Number(far))}`;
  view.ptx.text = view.ptx.text.replace(/%([a-z]+)([+-]\d+)/g, register).split("\n");
  view.sass.text = view.sass.text.split("\n");
  return view;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const ran = (tally) => sum(Object.values(tally.classes));
const percent = (part, all) => `${((100 * part) / all).toFixed(1)} %`;
const unequal = (count, ideal) => count > ideal;

// The view as JSON to keep, made when it is first shown.
function rawOf(view) {
  if (!raws.has(view)) {
    const type = "application/json";
    raws.set(view, URL.createObjectURL(new Blob([JSON.stringify(view, null, 1)], { type })));
  }
  return raws.get(view);
}

/* What a source line's columns hold: its text, whether it is worse than ideal, how it was counted. */

const memory = (passes, requests, place, otherwise) => ({
  width: "5.6em",
  of: (line) => line[passes],
  text: (line) => `${number(line[passes] / line[requests])} / ${number(line[`ideal_${passes}`] / line[requests])}`,
  worse: (line) => unequal(line[passes], line[`ideal_${passes}`]),
  said: (line) =>
    `${counted(line[requests], "request")} to ${place} memory took ${number(line[passes])} ${passes}; ${number(line[`ideal_${passes}`])} would do ${otherwise}. The column shows both per request.`,
  space: place,
});
const COLUMNS = {
  share: {
    title: "run",
    width: "4.1em",
    of: ran,
    text: (line, view) => percent(ran(line), ran(view.total)),
    worse: () => false,
    said: (line, view) =>
      `${number(ran(line))} of ${number(ran(view.total))} warp instructions: one for each time that a warp executed an instruction of PTX. By kind: ${kinds(line.classes)}.`,
  },
  lanes: {
    title: "lanes",
    width: "3.6em",
    of: (line) => line.lanes,
    text: (line) => number(Math.round((10 * line.lanes) / ran(line)) / 10),
    worse: (line) => unequal(LANES * ran(line), line.lanes),
    said: (line) =>
      `On average ${number(line.lanes / ran(line))} of a warp's ${LANES} lanes took part in its ${number(ran(line))} warp instructions.`,
  },
  sectors: {
    title: "sectors",
    ...memory("sectors", "requests", "global", "if all bytes of each sector were used"),
  },
  wavefronts: {
    title: "wavefronts",
    ...memory("wavefronts", "shared_requests", "shared", "if no two words were in one bank"),
  },
  live: {
    title: "live",
    width: "2.9em",
    of: (line) => line.live,
    text: (line) => number(line.live),
    worse: () => false,
    said: (line, view) =>
      `Live registers of a thread: at most ${number(line.live)} at one of its machine instructions for ${view.arch}, of ${view.registers} allocated. Read from the code, not from a run.`,
  },
};

const kinds = (found) =>
  Object.entries(found)
    .sort(([, a], [, b]) => b - a)
    .map(([kind, count]) => `${number(count)} ${kind.replace(/ (\d+)$/, " of $1 B")}`)
    .join(", ");

/* A control code, as its notation has it and in words; bits as scripts/warpshelf/look/binary.py. */
function control(code) {
  const [write, read, waits] = [(code >> 5) & 7, (code >> 8) & 7, (code >> 11) & 63];
  const [stall, yields] = [code & 15, !((code >> 4) & 1)];
  const boards = [0, 1, 2, 3, 4, 5];
  const waited = boards.filter((board) => (waits >> board) & 1);
  const shown = (board) => (board === 7 ? "-" : board);
  const mask = boards.map((board) => (waited.includes(board) ? board : "-")).join("");
  const words = [`stalls its warp for ${counted(stall, "cycle")}`];
  if (yields) words.push("lets another warp go first");
  if (write !== 7) words.push(`holds scoreboard ${write} until its result is ready`);
  if (read !== 7) words.push(`holds scoreboard ${read} until its operands are read`);
  if (waited.length) words.unshift(`waits for scoreboard ${waited.join(" and ")}`);
  const text = `B${mask}:R${shown(read)}:W${shown(write)}:${yields ? "Y" : "-"}:S${`${stall}`.padStart(2, "0")}`;
  return { text, said: `This instruction ${words.join(", ")}.` };
}

/* Text in colours: of the source by words, of an instruction by its name. */
function painted(text, words) {
  if (!words) {
    const [, guard, name, rest] = /^(\s*(?:@\S+\s+)?)([\w.:]+)(.*)$/s.exec(text) || [];
    return name && !/^[.$%]/.test(text) ? [guard, make("span", { class: "ws-keyword" }, name), rest] : [text];
  }
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(words)) {
    const kind = TOKENS[match.slice(1).findIndex((one) => one !== undefined)];
    parts.push(text.slice(end, match.index), make("span", { class: `ws-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

/* Rows of cells, of which one at a time can be tabbed to. `act` is told of a cell that is chosen. */
class Grid {
  constructor(label, titles, act, over) {
    this.rows = [];
    this.box = make("div", { class: `ws-pane ws-of-${label}`, role: "grid", "aria-label": label });
    this.box.style.setProperty("--cols", titles.map(([, width]) => width).join(" "));
    const heads = titles.map(([title]) => make("span", { role: "columnheader" }, title));
    this.box.append(make("div", { role: "rowgroup", class: "ws-heads" }, make("div", { role: "row" }, ...heads)));
    const cellOf = (event) => event.target.closest?.("[role=gridcell]");
    this.box.addEventListener("click", (event) => {
      const cell = cellOf(event);
      if (!cell || String(getSelection())) return;
      this.reach(cell);
      act(cell);
    });
    this.box.addEventListener("keydown", (event) => {
      const cell = cellOf(event);
      if (!cell || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "Enter" || event.key === " ") act(cell);
      else if (!this.move(cell, event.key)) return;
      event.preventDefault();
    });
    for (const kind of ["pointerover", "focusin"]) {
      this.box.addEventListener(kind, (event) => over(cellOf(event)?.parentElement));
    }
    this.box.addEventListener("pointerleave", () => over(null));
  }

  add(row, about) {
    Object.assign(row, { about, place: this.rows.length });
    if (this.rows.length % CHUNK === 0) {
      this.chunk = this.box.appendChild(make("div", { role: "rowgroup", class: "ws-chunk" }));
    }
    this.rows.push(row);
    this.chunk.append(row);
    return row;
  }

  done() {
    this.box.lastElementChild.style.setProperty("--rows", this.rows.length % CHUNK || CHUNK);
    this.reach(this.rows[0].lastElementChild);
    return this.box;
  }

  reach(cell) {
    this.now?.removeAttribute("tabindex");
    this.now = cell;
    cell.tabIndex = 0;
  }

  move(cell, key) {
    const row = cell.parentElement;
    const at = [...row.children].indexOf(cell);
    const goes = { ArrowDown: 1, ArrowUp: -1, PageDown: 16, PageUp: -16 }[key];
    let next = null;
    if (goes) {
      const place = Math.max(0, Math.min(this.rows.length - 1, row.place + goes));
      const cells = this.rows[place].children;
      next = cells[Math.min(at, cells.length - 1)];
    } else if (key === "ArrowLeft" || key === "ArrowRight") {
      next = row.children[at + (key === "ArrowLeft" ? -1 : 1)] || cell;
    } else if (key === "Home" || key === "End") {
      next = key === "Home" ? row.firstElementChild : row.lastElementChild;
    }
    if (!next) return false;
    this.reach(next);
    next.focus();
    return true;
  }
}

function cell(text, what, worse) {
  const parts = Array.isArray(text) ? text : [text];
  const made = make("span", { role: "gridcell", class: `ws-${what}${worse ? " ws-mark" : ""}` }, ...parts);
  made.what = what;
  return made;
}

const rowOf = (line, ...cells) => {
  const row = make("div", { role: "row" }, ...cells);
  if (line >= 0) row.style.setProperty("--c", `var(--ws-s${line % COLOURS})`);
  return row;
};

/* Where a loop starts and ends in the text of PTX: a branch back to a label. */
function loopsOf(text) {
  const found = [];
  text.forEach((one, last) => {
    const target = /\bbra\S*\s+(\$?\w+)/.exec(one)?.[1];
    const first = target ? text.findIndex((other) => other.trim() === `${target}:`) : -1;
    if (first >= 0 && first < last) found.push({ first, last });
  });
  return found;
}

class View {
  constructor(own, names, home) {
    Object.assign(this, { own, names, home, pinned: -1 });
    this.root = make("dialog", { class: "ws-view", "aria-labelledby": "ws-view-title" });
    this.sheet = make("link", { rel: "stylesheet", href: new URL("assets/look.css", home).href });
    this.head = make("header", {});
    this.panes = make("div", { class: "ws-panes" });
    this.panel = make("section", { class: "ws-panel", "aria-label": "How it was counted", hidden: "" });
    this.root.append(this.sheet, this.head, this.panes, this.panel);
    this.root.addEventListener("close", () => this.root.remove());
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.panel.hidden) return;
      event.preventDefault();
      this.hide();
    });
  }

  async show() {
    const address = new URL(`views/${this.own}.json.gz`, this.home).href;
    const turn = (this.turn = (this.turn || 0) + 1);
    const view = await load(address);
    if (turn !== this.turn) return; // another was chosen in the meantime
    Object.assign(this, { view, text: view[side.toLowerCase()].text });
    this.lay();
  }

  // A group of buttons of which one is chosen; the one that had the focus has it again.
  choice(label, names, now, choose) {
    const buttons = names.map((name) => {
      const button = make("button", { type: "button", "aria-pressed": `${name === now}` }, name);
      button.addEventListener("click", async () => {
        try {
          await choose(name);
        } catch (error) {
          this.status.textContent = `not loaded: ${error.message}`;
        }
        const again = [...this.head.querySelectorAll("button")];
        again.find((one) => one.textContent === name)?.focus();
      });
      return button;
    });
    return make("div", { role: "group", "aria-label": label, class: "ws-choice" }, ...buttons);
  }

  lay() {
    const { view } = this;
    const arch = (name) => name.slice(name.lastIndexOf(".") + 1);
    const close = make("button", { type: "button", class: "ws-close" }, "Close");
    close.addEventListener("click", () => this.root.close());
    const title = make("h2", { id: "ws-view-title" }, view.variant, " ", make("small", {}, view.kernel));
    const archs = this.choice("Architecture", this.names.map(arch), view.arch, async (name) => {
      this.own = this.names.find((one) => arch(one) === name);
      await this.show();
    });
    const sides = this.choice("Code", ["PTX", "SASS"], side, (name) => {
      side = name;
      return this.show();
    });
    const raw = make("a", { download: `${this.own.split("/").pop()}.json`, href: rawOf(view) }, "raw data");
    this.status = make("span", { role: "status" }, HINT);
    const bar = make("div", { class: "ws-bar" }, title, archs, sides, raw, close);
    this.head.replaceChildren(bar, this.facts());
    const at = this.pinned >= 0 ? this.pinnedAt : null;
    this.opener = null;
    this.hide();
    this.panes.replaceChildren(this.source().done(), this.code().done());
    this.pinned = -1;
    const again = at === null ? -1 : view.lines.findIndex((line) => line.at === at);
    if (again >= 0) this.pin(again, null);
  }

  /* Above both sides: what the whole kernel did, and what bounds it. */
  facts() {
    const { view } = this;
    const { bound, occupancy: room, total } = view;
    const button = (text, ...inside) => {
      const made = make("button", { type: "button" }, text);
      made.addEventListener("click", () => this.tell(made, text, ...inside));
      return made;
    };
    const bars = bound.pipes.map(({ pipe, cycles, of }) => {
      const bar = make("span", { class: "ws-share" }, number(cycles));
      bar.style.setProperty("--w", `${(100 * cycles) / bound.cycles}%`);
      return make("li", {}, bar, ` ${pipe}: ${of}`);
    });
    const changes = room.changes.map(({ change, warps, most, limiters }) =>
      make("li", {}, `${change}: ${warps} of ${most} warps, by ${limiters.join(" and ")}`),
    );
    const [grid, block] = [view.grid, view.block].map((sides) => sides.join(" × ").replace(/( × 1)+$/, ""));
    return make(
      "p",
      { class: "ws-facts" },
      `${view.language}, ${view.compiler}; executed from its PTX for ${view.arch} on a CPU: counts, no times. `,
      `${counted(view.launches, "launch").replace("launchs", "launches")} of ${grid} blocks of ${block} threads, ${number(ran(total))} warp instructions. `,
      button(
        `At least ${number(bound.cycles)} SM cycles, by ${bound.limiter}`,
        "A bound, not a time: the fewest cycles that each pipe is busy, from executed counts and its published rate.",
        make("ul", {}, ...bars),
      ),
      " ",
      button(
        `${room.warps} of ${room.most} warps resident, by ${room.limiters.join(" and ")}`,
        `${counted(room.blocks, "block")} of ${view.threads} threads, ${view.registers} registers each, ${number(view.shared_bytes)} bytes of shared memory a block, ${number(view.spilled_bytes)} bytes spilled. With a change:`,
        make("ul", {}, ...changes),
      ),
      " ",
      this.status,
    );
  }

  grid(label, titles) {
    return new Grid(label, titles, (cell) => this.act(cell), (row) => this.light(row?.about?.line ?? -1));
  }

  source() {
    const { view } = this;
    const index = new Map(view.lines.map((line, at) => [line.at, at]));
    const used = Object.keys(COLUMNS).filter((name) => view.lines.some((line) => COLUMNS[name].of(line)));
    const titles = used.map((name) => [COLUMNS[name].title, COLUMNS[name].width]);
    const grid = this.grid("Source", [["line", "2.9em"], ...titles, ["source", "minmax(0, 1fr)"]]);
    const most = Math.max(...view.lines.map(ran));
    this.bySource = new Map();
    const add = (at, place, text, words) => {
      const line = index.get(at) ?? -1;
      const cells = used.map((name) => this.count(name, view.lines[line], most));
      const shown = cell(words ? painted(text, words) : text, "text");
      shown.style.setProperty("--in", `${Math.min(12, text.search(/\S|$/)) + 2}ch`);
      const row = grid.add(rowOf(line, cell(place, "place"), ...cells, shown), { line });
      if (line >= 0) this.bySource.set(line, row);
      index.delete(at);
    };
    for (const piece of view.source) {
      grid.add(make("div", { role: "row", class: "ws-title" }, cell(piece.file, "file")), { line: -1 });
      const words = piece.file.endsWith(".py") ? PYTHON : CUDA;
      piece.text.forEach((text, at) => {
        add(`${piece.file}:${piece.from + at}`, `${piece.from + at}`, text, words);
      });
    }
    const rest = [...index.keys()];
    if (rest.length) grid.add(make("div", { role: "row", class: "ws-title" }, cell("elsewhere", "file")), { line: -1 });
    rest.forEach((at) => add(at, "", at));
    return grid;
  }

  count(name, line, most) {
    const column = COLUMNS[name];
    if (!line || !column.of(line)) return cell("", name);
    const worse = column.worse(line);
    const made = cell(column.text(line, this.view), name, worse);
    made.dataset.k = column.title;
    if (name === "share") made.style.setProperty("--w", `${(100 * ran(line)) / most}%`);
    return made;
  }

  code() {
    const { view, text } = this;
    const { ptx, sass } = view;
    const machine = side === "SASS";
    const loops = machine ? view.loops : loopsOf(text);
    const titles = machine
      ? [["live", "2.6em"], ["control", "12.5em"], ["machine code", "minmax(max-content, 1fr)"]]
      : [["run", "5em"], ["passes", "4.6em"], ["PTX", "minmax(max-content, 1fr)"]];
    const grid = this.grid(side, titles);
    const labels = new Map(Object.entries(sass.labels).map(([name, at]) => [at, name]));
    const access = new Map(view.accesses.map((one) => [one.ptx, one]));
    const busiest = Math.max(...ptx.run, 1);
    this.byCode = view.lines.map(() => []);
    let inside = [];
    text.forEach((one, at) => {
      if (machine && labels.has(at)) grid.add(rowOf(-1, cell("", "live"), cell("", "control"), cell(`${labels.get(at)}:`, "text")), { line: -1 });
      const begins = loops.filter((loop) => loop.first === at);
      inside = [...inside.filter((loop) => loop.last >= at), ...begins];
      if (machine) for (const loop of begins) grid.add(make("div", { role: "row", class: "ws-title" }, cell(noted(loop), "loop")), { line: -1 });
      const from = machine ? sass.ptx[at] : at;
      const line = from < 0 ? -1 : ptx.line[from];
      const rails = inside.map((loop) => make("i", { class: at === loop.first ? "ws-first" : at === loop.last ? "ws-last" : "" }));
      const shown = cell([...rails, ...painted(one)], "text");
      const row = rowOf(line, ...(machine ? this.machine(at) : this.virtual(at, access.get(at), busiest)), shown);
      grid.add(row, { line, at, from });
      if (line >= 0) this.byCode[line].push(row);
    });
    this.grids = { code: grid };
    return grid;
  }

  machine(at) {
    const { live, control: codes } = this.view.sass;
    return [cell(`${live[at]}`, "live"), cell(control(codes[at]).text, "control")];
  }

  virtual(at, access, busiest) {
    const times = this.view.ptx.run[at];
    const run = cell(times ? number(times) : "", "run");
    if (times) run.style.setProperty("--w", `${(100 * times) / busiest}%`);
    run.classList.toggle("ws-share", times > 0);
    if (!access) return [run, cell("", "passes")];
    const text = `${number(access.passes)} / ${number(access.ideal)}`;
    return [run, cell(text, "passes", unequal(access.passes, access.ideal))];
  }

  /* What belongs together. */

  light(line) {
    const now = line >= 0 ? line : this.pinned;
    for (const row of this.lit || []) row.classList.remove("ws-lit");
    this.lit = now < 0 ? [] : [this.bySource.get(now), ...this.byCode[now]].filter(Boolean);
    for (const row of this.lit) row.classList.add("ws-lit");
  }

  // Pins a line, and scrolls to what belongs to it on the other side; a second time unpins it.
  pin(line, from) {
    for (const row of this.root.querySelectorAll("[aria-selected]")) row.removeAttribute("aria-selected");
    this.pinned = from && line === this.pinned ? -1 : line;
    this.light(-1);
    if (this.pinned < 0) return void (this.status.textContent = HINT);
    const { at } = this.view.lines[line];
    this.pinnedAt = at;
    const [own, code] = [this.bySource.get(line), this.byCode[line]];
    own?.setAttribute("aria-selected", "true");
    this.status.textContent = `${at} is pinned: ${counted(code.length, "line")} of ${side} came from it.`;
    if (code.length) this.grids.code.reach(from?.about.at === undefined ? code[0].lastElementChild : from.lastElementChild);
    const other = from?.about.at === undefined ? code[0] : own;
    other?.scrollIntoView({ block: "center", inline: "start" });
  }

  // Scrolls to the line that most instructions belong to, and to what became of it.
  reveal() {
    const costs = this.view.lines.map(ran);
    const most = costs.indexOf(Math.max(...costs));
    for (const row of [this.bySource.get(most), this.byCode[most]?.[0]])
      row?.scrollIntoView({ block: "center", inline: "start" });
  }

  act(cell) {
    const row = cell.parentElement;
    const { line, at, from } = row.about;
    const { what } = cell;
    const { view } = this;
    const said = cell.textContent;
    const accesses = (test) => pictures(view.accesses.filter(test));
    const name = at === undefined ? view.lines[line]?.at : row.lastElementChild.textContent;
    if (said && COLUMNS[what] && at === undefined) {
      const { title, said: how, space } = COLUMNS[what];
      const drawn = space ? accesses((one) => one.space === space && view.ptx.line[one.ptx] === line) : [];
      this.tell(cell, `${name}, ${title}: ${said}`, how(view.lines[line], view), ...drawn);
    } else if (said && what === "control") {
      this.tell(cell, name, control(view.sass.control[at]).said);
    } else if (what === "live" && said) {
      this.tell(cell, name, `Live registers of a thread here: ${number(Number(said))}, of ${view.registers} allocated.`);
    } else if (said && (what === "run" || what === "passes")) {
      const how = `A warp executed it ${number(view.ptx.run[at])} times, of ${number(ran(view.total))} warp instructions in all.`;
      this.tell(cell, name, how, ...accesses((one) => one.ptx === from));
    } else if (line >= 0) this.pin(line, row);
  }

  tell(opener, title, ...inside) {
    const close = make("button", { type: "button" }, "Close panel");
    close.addEventListener("click", () => this.hide());
    const head = make("h3", {}, title);
    const words = inside.map((one) => (typeof one === "string" ? make("p", {}, one) : one));
    this.opener = opener;
    this.panel.replaceChildren(make("div", { class: "ws-bar" }, head, close), ...words);
    this.panel.hidden = false;
    this.panel.scrollTop = 0;
    close.focus();
    opener.scrollIntoView({ block: "nearest", inline: "nearest" }); // there is less room now
  }

  hide() {
    this.panel.hidden = true;
    this.opener?.focus();
    this.opener = null;
  }
}

function noted({ kinds: found, loads, bytes, operations }) {
  const flight = loads
    ? `; ${counted(loads, "load")} and ${number(bytes)} bytes of a warp in flight, with ${counted(operations, "operation")} meanwhile`
    : "";
  return `loop of ${kinds(found)}${flight}`;
}

/* Opens the view `own` of those that the table names. */
export async function open(own, table, home) {
  const stem = (name) => name.slice(0, name.lastIndexOf("."));
  const all = [...table.querySelectorAll("[data-look]")].map((row) => row.dataset.look);
  const view = new View(own, all.filter((name) => stem(name) === stem(own)), home);
  const styled = new Promise((done) => (view.sheet.onload = view.sheet.onerror = done));
  document.body.append(view.root);
  try {
    await Promise.all([view.show(), styled]);
  } catch (error) {
    view.root.remove();
    throw error;
  }
  view.root.showModal();
  view.reveal();
}
