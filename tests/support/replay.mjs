// node replay.mjs PAPERGPU.JS ENGINE.WASM FOLDER: each launch that packs.py wrote there, anew. Prints one line of JSON:
// how many, and those that left other bytes, took other steps or found something else. STEP=1 steps through them.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [script, wasm, folder] = process.argv.slice(2);
const { Engine, Launch, Pack } = await import(pathToFileURL(script));
const module = await WebAssembly.compile(readFileSync(wasm));
const plain = text => text.replace(/0x[0-9a-f]{5,}/g, "an address");
const other = [];
let many = 0;
for (const file of readdirSync(folder).filter(name => name.endsWith(".pack")).sort()) {
  const outcome = JSON.parse(readFileSync(`${folder}/${file.replace(".pack", ".json")}`));
  const differs = [];
  ++many;
  try {
    const pack = new Pack(new Uint8Array(readFileSync(`${folder}/${file}`)));
    const launch = new Launch(await Engine.load(module), pack);
    if (process.env.STEP && launch.begin()) while (launch.step(997) === "went on");
    else launch.run();
    const found = launch.finding;
    if (Boolean(found) !== Boolean(outcome.finding)) differs.push(`finding: ${found?.text ?? "none"}`);
    else if (found && !process.env.STEP && !plain(outcome.finding).endsWith(plain(found.text))) differs.push(`found: ${found.text}`);
    if (!found) {
      if (!process.env.STEP && launch.steps !== outcome.steps) differs.push(`steps: ${launch.steps} for ${outcome.steps}`);
      pack.head.memory.forEach((one, k) => {
        const left = launch.contents(k);
        for (const [piece, at] of pack.head.moves) if (piece === k) left.fill(0, at, at + 8);
        if (createHash("sha256").update(left).digest("hex") !== outcome.memory[k]) differs.push(`bytes: ${one.name}`);
      });
      if (!process.env.STEP && launch.output !== outcome.printed) differs.push(`printed: ${launch.output}`);
    }
    launch.end();
  } catch (error) {
    differs.push(String(error));
  }
  if (differs.length) other.push({ file, kernel: outcome.kernel, test: outcome.test, native: outcome.finding, differs });
}
console.log(JSON.stringify({ many, other }));
