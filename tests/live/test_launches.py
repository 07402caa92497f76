"""What a reader runs in the browser: each launch is right there, under Node, by a float64 truth.

Takes 10 s, as it decodes some fifty kernels and runs each.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from conftest import exhaustive
from papergpu import build
from papergpu.kernel_cache import Module

from warpshelf.contract.snippet import discover_snippets
from warpshelf.core.project import Project
from warpshelf.live import launches
from warpshelf.look import ptx, view_store

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Project(ROOT)
SNIPPETS = {one.id: one for one in discover_snippets(PROJECT)}
ROWS, _ = launches.load_runs(PROJECT)
CHECK = """
import { readFileSync } from "node:fs";
const [engineScript, panelScript, wasm, told, folder] = process.argv.slice(2);
const { Engine, Launch, Pack } = await import(engineScript);
const { compare, encode, fill, fromHalf, toHalf } = await import(panelScript);
const run = JSON.parse(told), module = await WebAssembly.compile(readFileSync(wasm)), wrong = [];
for (let h = 0; h < 65536; ++h) if (h % 0x8000 <= 0x7c00 && toHalf(fromHalf(h)) !== h) wrong.push(`half ${h}`);
for (const one of run.variants)
  for (const k of run.sizes.keys())
    for (const kind of k ? ["random"] : ["random", "all one", "one, the rest zero", "counted up", "random, with an infinity"]) {
      if (run.finite && kind.includes("infinity")) continue;
      const pack = new Pack(new Uint8Array(readFileSync(`${folder}/${one.pack}`))), given = fill(run, run.sizes[k], kind, 3);
      pack.select(k);
      const bytes = encode(run, given), launch = new Launch(await Engine.load(module), pack, {}, pack.head.memory.map(m => bytes[m.name]));
      const said = launch.run(), at = pack.head.memory.findIndex(m => m.name === run.result);
      const found = compare(run, run.sizes[k], given, launch.contents(at), one.truth);
      if (said || found.wrong) wrong.push(`${one.name}, ${kind}: ${launch.finding?.text ?? `${found.wrong} wrong`}`);
      if (kind === "random" && one.truth !== "sum") { // a truth that nothing can miss tells nothing
        const spoilt = launch.contents(at);
        spoilt[spoilt.length - 1] ^= 0x40;
        if (!compare(run, run.sizes[k], given, spoilt, one.truth).wrong) wrong.push(`${one.name}: a spoilt result passes`);
      }
    }
const drawn = how => fill({ tensors: { t: ["int32", 9] }, drawn: { t: [how, "n"] } }, { n: 5 }, "random", 3).t;
const rises = t => t.every((one, k) => !k || one >= t[k - 1]), [cuts, rising] = [drawn("cuts"), drawn("rising")];
if (!rises(rising) || !rises(cuts) || cuts[0] !== 0 || cuts.at(-1) !== 5 || rises(drawn("below"))) wrong.push("drawn");
console.log(JSON.stringify(wrong));
"""  # noqa: E501


@pytest.mark.parametrize("name", exhaustive([*ROWS], "all kernels that pages run", light=12))
def test_every_variant_is_right_with_all_values(name: str, node: str, tmp_path: Path) -> None:
    run, findings = launches.pack_runs(SNIPPETS[name], ROWS[name])
    assert findings == []
    assert run is not None
    for file, data in run.files.items():
        assert len(data) < 60_000, "what a page loads of a kernel"
        (tmp_path / file).write_bytes(gzip.decompress(data))
    (tmp_path / "engine.wasm").write_bytes(build.load_webassembly())
    script = tmp_path / "check.mjs"
    script.write_text(CHECK)
    # Node takes a script of exports for a module by its name alone.
    panel = tmp_path / "run.mjs"
    panel.write_text((ROOT / "docs/assets/run.js").read_text())
    engine = tmp_path / "papergpu.mjs"
    engine.write_text(build.WEBASSEMBLY.with_name("papergpu.js").read_text())
    command = [
        node,
        script,
        engine,
        panel,
        tmp_path / "engine.wasm",
        json.dumps(run.told),
        tmp_path,
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_the_ptx_of_a_view_is_a_whole_module() -> None:
    """Of every view whose kernel a page runs: it decodes, and its lines are those of the source."""
    for name in ROWS:
        for view in view_store.load_views(SNIPPETS[name])[0]:
            if view["variant"] not in ROWS[name]["grids"] or view["arch"] != launches.USUAL:
                continue
            module = ptx.rebuild_module(view)
            (kernel,) = ptx.function_ranges(module.splitlines(), kernels=True)
            program = Module(module).load_program(kernel)
            lines = {place.line for place, _ in program.places if place}
            known = {int(one["at"].rpartition(":")[2]) for one in view["lines"] if ":" in one["at"]}
            assert lines
            assert lines <= known


def test_pages_get_nothing_of_what_they_do_not_embed() -> None:
    texts, sent, findings = launches.render_panels(PROJECT, SNIPPETS.values(), ())
    assert (texts, sent, findings) == ({}, {}, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("- snippet", "- snipet"), "row"),
        (("kernel: transpose_", "kernel: transport_"), "naive: no view of it is kept whole"),
        (("arguments: [x, y, m, n, n]", "arguments: [x, y, m, n]"), "arguments"),
        (("arguments: [x, y, m, n, n]", "arguments: [x, y, m, n, q]"), "q"),
        (("tolerance: 0", "tolerance: none"), "tolerance"),
        (("naive: [6, 35]", "naive: [6]"), "sizes"),
        (("x: [float32, m, n]", "x: [float9, m, n]"), "float9"),
        (("grids: {", "grids: ["), "expected"),
        (("  result: y", "  drawn: {x: [belw, 3]}\n  result: y"), "draws x by ['belw', 3]"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    text = (ROOT / launches.FILE).read_text()
    text = text[: text.index("- snippet: sgemm")]
    assert change[0] in text
    (tmp_path / "snippets").mkdir()
    (tmp_path / launches.FILE).write_text(text.replace(*change))
    rows, findings = launches.load_runs(Project(tmp_path))
    if not findings:
        findings = launches.pack_runs(SNIPPETS["transpose"], rows["transpose"])[1]
    (finding,) = findings
    assert finding.path == launches.FILE
    assert said in finding.what
    assert "\n" not in str(finding)
