/* A memory access of a warp as a picture: which of its 32 lanes meet in a bank of shared memory, or
   which sectors of global memory they touch. Beside it, in words, what the file says of it. */

const LANES = 32;
const BANKS = 32;
const WORD = 4; // bytes that a bank gives at once
const SECTOR = 32; // bytes

export function make(tag, attributes, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...inside.filter((one) => one !== null));
  return element;
}

// 12345 with thin spaces, as pages write it; others to two places.
export function number(value) {
  const rounded = Math.abs(value) < 1000 ? Math.round(100 * value) / 100 : Math.round(value);
  const text = rounded.toLocaleString("en");
  return Math.abs(value) < 10000 ? text.replace(",", "") : text.replaceAll(",", "\u202f");
}

export const counted = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;

// The words of 4 bytes that lanes touch, in order, each with its lanes.
function words({ addresses, size }) {
  const found = new Map();
  addresses.forEach((address, lane) => {
    if (address === null) return;
    const last = Math.floor((address + size - 1) / WORD);
    for (let word = Math.floor(address / WORD); word <= last; word++) {
      if (!found.has(word)) found.set(word, []);
      found.get(word).push(lane);
    }
  });
  return [...found].sort(([a], [b]) => a - b);
}

const lanesOf = (lanes) => (lanes.length > 1 ? `${lanes[0]}+${lanes.length - 1}` : `${lanes[0]}`);

// A column for each bank: as many cells as it has different words to give.
function banks(access) {
  const columns = Array.from({ length: BANKS }, () => []);
  for (const [word, lanes] of words(access)) columns[word % BANKS].push(lanes);
  const most = Math.max(...columns.map((column) => column.length));
  const free = Math.max(1, Math.ceil(access.size / WORD)); // words that a bank must give anyway
  const drawn = columns.map((column, bank) => {
    const cells = column.map((lanes, place) =>
      make("span", { class: place < free ? "ws-lane" : "ws-lane ws-worse" }, lanesOf(lanes)),
    );
    return make("span", { class: "ws-bank" }, make("b", {}, `${bank}`), ...cells);
  });
  const used = columns.filter((column) => column.length).length;
  const said = `${counted(used, "bank")} of ${BANKS} used; the busiest has ${counted(most, "different word")} to give`;
  return [said, make("div", { class: "ws-banks", role: "img", "aria-label": said }, ...drawn)];
}

// A box for each sector, with its eight words, and who asks for each.
function sectors(access) {
  const boxes = new Map();
  for (const [word, lanes] of words(access)) {
    const sector = Math.floor((word * WORD) / SECTOR);
    if (!boxes.has(sector)) boxes.set(sector, Array(SECTOR / WORD).fill(null));
    boxes.get(sector)[word % (SECTOR / WORD)] = lanes;
  }
  let asked = 0;
  const drawn = [...boxes].map(([sector, inside]) => {
    const cells = inside.map((lanes) => {
      asked += lanes ? 1 : 0;
      return make("span", { class: lanes ? "ws-lane" : "ws-idle" }, lanes ? lanesOf(lanes) : "");
    });
    const head = make("b", {}, `+${number(sector * SECTOR)}`);
    return make("span", { class: "ws-sector" }, head, ...cells);
  });
  const all = boxes.size * (SECTOR / WORD);
  const said = `${counted(boxes.size, "sector")} of 32 bytes; ${number(asked)} of their ${number(all)} words are asked for`;
  return [said, make("div", { class: "ws-boxes", role: "img", "aria-label": said }, ...drawn)];
}

/* The pictures of some of a view's accesses: one for those that are alike but for where they start. */
export function pictures(accesses) {
  const found = new Map();
  for (const access of accesses) {
    const { addresses, ptx, block, warp, ...rest } = access;
    const start = Math.min(...addresses.filter((one) => one !== null));
    const key = JSON.stringify([rest, addresses.map((one) => (one === null ? one : one - start))]);
    found.set(key, [...(found.get(key) || []), access]);
  }
  return [...found.values()].map((alike) => picture(alike[0], alike.length));
}

function picture(access, alike) {
  const shared = access.space === "shared";
  const [said, drawn] = shared ? banks(access) : sectors(access);
  const active = access.addresses.filter((address) => address !== null).length;
  const where = `block (${access.block.join(", ")}), warp ${access.warp}`;
  const what = `The most expensive ${access.does} is by ${where}: ${active} of ${LANES} lanes, ${counted(access.size, "byte")} each, `;
  const passes = counted(access.passes, shared ? "wavefront" : "sector");
  const worse = access.passes > access.ideal;
  const took = worse ? `${passes} where ${number(access.ideal)} would do` : `${passes}, the ideal`;
  const from = shared ? "the block's shared memory" : "a multiple of 128 bytes";
  const rows = access.addresses.map((address, lane) =>
    make("li", {}, `lane ${lane}: ${address === null ? "takes no part" : number(address)}`),
  );
  const more = alike > 1 ? ` ${alike} of its instructions do this, each from another start.` : "";
  const list = make("details", {}, make("summary", {}, `Addresses, in bytes from ${from}`));
  list.append(make("ol", { class: "ws-addresses" }, ...rows));
  return make(
    "figure",
    { class: "ws-access" },
    make("figcaption", {}, what, make("strong", { class: worse ? "ws-mark" : "" }, took), `. ${said}.${more}`),
    make("div", { class: "ws-wide", tabindex: "0", role: "group", "aria-label": "Lanes" }, drawn),
    list,
  );
}
