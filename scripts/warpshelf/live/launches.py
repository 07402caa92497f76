"""What a reader runs of a kernel in the browser: launches of its variants, and the engine for them.

`snippets/runs.yml` says with which arguments; the kernels are the PTX of the views that the
checkout keeps, decoded here. A page loads none of it before its panel is opened.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import Finding
from warpshelf.core.pages import LOADER
from warpshelf.core.project import Project
from warpshelf.live import runtime
from warpshelf.look import ptx, view_store
from warpshelf.look.view import View

FILE = "snippets/runs.yml"
USUAL = view_store.USUAL
# Bytes of an element.
SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int16": 2, "int32": 4, "int64": 8}
ROW = {
    "snippet": str, "kernel": (str, dict), "sizes": list, "tensors": {"*": list},
    "arguments": (list, dict), "result": str, "truth": (str, dict), "tolerance": files.NUMBER,
    "grids": {"*": list}, "finite?": bool, "drawn?": {"*": list},
}  # fmt: skip
DRAWN = ("below", "rising", "cuts", "fraction", "given")  # as run.js names them
ELEMENTS = {"float8": 0, "float16": 6, "float32": 7, "bfloat16": 9}  # as CUDA numbers them
SWIZZLED = 3


PANEL = """<details class="ws-fold ws-run" data-run="{told}">
<summary>{kernels} of {arch}: run, break and step through {them} in this browser ({weight} KB)
</summary>
<noscript><p>This needs JavaScript and WebAssembly. <code>python snippets/{id}/{id}.py</code>
runs the same, and needs no GPU either.</p></noscript>
</details>
"""
OWN = """<details class="ws-fold ws-run" data-run="{told}">
<summary>Open a launch of your own ({weight} KB)</summary>
<noscript><p>This needs JavaScript and WebAssembly.</p></noscript>
</details>
"""
PLAY = """<details class="ws-fold ws-run" data-run="{told}">
<summary>Open the {name} ({weight} KB)</summary>
<noscript><p>This needs JavaScript and WebAssembly.</p></noscript>
</details>
"""
UNPLAYED = '<p class="ws-absent">This build found no Python for browsers; it is needed here.</p>\n'
TYPED = ("playground", "puzzles")  # where kernels are typed
ALONE = ("own", "home", *TYPED)  # what is embedded and is of no row
# What the front page steps through by itself: a kernel with bank conflicts, and one without.
WATCHED, SHOWN = "transpose", ("tiled", "padded")
WATCH = """<div class="ws-watch" data-watch="{told}">
<noscript><p>With JavaScript a kernel steps through itself here.</p></noscript>
</div>
"""
WITHHELD = (
    '<p class="ws-absent">What runs here is withheld: no record of the present code has its '
    "kernels. <code>shelf run {id}</code> makes one.</p>\n"
)


class Run(NamedTuple):
    """What the page of a snippet is told, as `run.js` reads it, and the files that it loads."""

    told: dict[str, Any]
    files: dict[str, bytes]


def load_runs(project: Project) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """The rows of `runs.yml` by their snippets, and what is wrong with the file."""
    path = project.root / FILE
    if not path.is_file():
        return {}, []
    mend = "write it as the others are written"
    try:
        rows = yaml.load(path.read_text("utf-8"), LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "is no YAML"
        return {}, [Finding(FILE, mark and mark.line + 1, what, mend)]
    wrong = None if isinstance(rows, list) else "is no list"
    for number, row in enumerate(rows if wrong is None else ()):
        where = f"row {number}"
        if not isinstance(row, dict):
            wrong = wrong or f"{where} is no table"
            continue
        wrong = wrong or files.shape_problem(row, ROW, where)
        if not wrong and {*map(len, row["grids"].values())} != {len(row["sizes"])}:
            wrong = f"{where} has grids for another number of sizes"
        for name, how in () if wrong else row.get("drawn", {}).items():
            if name not in row["tensors"] or len(how) != 2 or how[0] not in DRAWN:
                wrong = f"{where} draws {name} by {how}: name a tensor, one of {DRAWN}, and a limit"
    if wrong:
        return {}, [Finding(FILE, None, wrong, mend)]
    return {row["snippet"]: row for row in rows}, []


def pack_runs(snippet: Snippet, row: Mapping[str, Any]) -> tuple[Run | None, list[Finding]]:
    """A pack a variant, with a launch at each size, and what is wrong with its row."""
    from papergpu.pack import join_packs

    views = [one for one in view_store.load_views(snippet)[0] if one["arch"] == USUAL]
    if not views:  # the record is not current, and the page says so
        return None, []
    variants, packs = [], dict[str, bytes]()
    for variant, grids in row["grids"].items():
        try:
            kernel, truth = (_choose(row[key], variant) for key in ("kernel", "truth"))
            alike = [one for one in views if one["variant"] == variant]
            alike = [one for one in alike if one["kernel"].startswith(kernel)]
            view = min(alike, key=lambda one: one["kernel"] != kernel, default=None)
            if view is None:
                raise ValueError(f"no view of it is kept whole whose kernel is {kernel}...")
            module = ptx.rebuild_module(view)
            texts = dict(_read_sources(snippet, view))
            pairs = zip(row["sizes"], grids, strict=True)
            launches = [_pack_view(row, view, module, texts, *pair) for pair in pairs]
            data = gzip.compress(join_packs(launches), mtime=0)
        except (ValueError, KeyError) as error:
            what = f"{snippet.id}, {variant}: {error}"
            return None, [Finding(FILE, None, what, "give what the kernel takes")]
        name = f"{snippet.id}.{hashlib.sha256(data).hexdigest()[:12]}.pack.gz"
        packs[name] = data
        variants.append({"name": variant, "truth": truth, "pack": name})
    told = {key: row[key] for key in ("sizes", "tensors", "result", "tolerance")}
    told |= {"finite": row.get("finite", False), "drawn": row.get("drawn", {})}
    return Run({**told, "variants": variants}, packs), []


def _choose(value: Any, variant: str) -> Any:
    """What a row says of a variant, where it may say it of each."""
    return value[variant] if isinstance(value, dict) else value


def _pack_view(
    row: Mapping[str, Any], view: View, module: str, sources: Mapping[str, str],
    sizes: Mapping[str, Any], grid: int,
) -> bytes:  # fmt: skip
    """One launch of the kernel of a view, all of its memory zero: a page fills it."""
    from papergpu.kernel_cache import Module
    from papergpu.launch import Memory, Settings, aligned_zeros
    from papergpu.pack import pack_launch
    from papergpu.tensormap import tiled

    (name,) = ptx.function_ranges(module.splitlines(), kernels=True)
    program = Module(module).load_program(name)
    memory = dict[str, Memory]()
    held = []  # it has to live until all is packed
    for name, (dtype, *sides) in row["tensors"].items():
        count = math.prod(sizes.get(side, side) for side in sides)
        held.append(aligned_zeros(count * SIZE[dtype]))
        written = aligned_zeros(held[-1].size) if name == row["result"] else None
        memory[name] = Memory(held[-1].ctypes.data, held[-1].size, name, written=written)
    arguments = _choose(row["arguments"], view["variant"])
    if len(program.parameters) != len(arguments):
        many = f"{len(arguments)} arguments for {len(program.parameters)} parameters"
        raise ValueError(many)

    def encode(value: Any, width: int) -> bytes:
        if isinstance(value, float):
            return struct.pack("<f", value)
        if isinstance(value, dict):
            if "map" not in value:
                return encode(value[view["variant"]], width)
            # Of a tensor, or as it is told, for the copy engine, in lines of 128 bytes.
            stored, *sides = row["tensors"][value["map"]]
            shape, at = [sizes.get(side, side) for side in sides], memory[value["map"]].at
            dtype = value.get("as", stored)  # of wider elements there are fewer
            shape[-1] = shape[-1] * SIZE[stored] // SIZE[dtype]
            shape = value.get("shape", shape)
            packed = [math.prod(shape[side:]) for side in range(1, len(shape) + 1)]
            strides = value.get("strides", packed)
            kind = ELEMENTS[dtype]
            return tiled(at, SWIZZLED, SIZE[dtype], kind, value["box"], shape, strides)
        number = memory[value].at if value in memory else sizes.get(value, value)
        return int(number).to_bytes(width, "little")

    pairs = zip(arguments, program.parameters, strict=True)
    given = [encode(value, width) for value, (_, _, width) in pairs]
    x, y, z = view["block"]
    a, b, c = view["cluster"]
    return pack_launch(
        program, aligned_zeros(64), module, (grid, 1, 1), (x, y, z), given, [*memory.values()],
        sources, dynamic=max(0, view["shared_bytes"] - program.shared), cluster=(a, b, c),
        settings=Settings(profile=True, fatal=True, limit=20_000_000),
    )  # fmt: skip


def _read_sources(snippet: Snippet, view: View) -> Iterator[tuple[str, str]]:
    for name in sorted({line["at"].rpartition(":")[0] for line in view["lines"]} - {""}):
        path = snippet.folder / name
        if path.is_file():
            yield name, path.read_text("utf-8")


def render_panels(
    project: Project, snippets: Iterable[Snippet], wanted: Collection[str]
) -> tuple[dict[str, str], dict[str, bytes], list[Finding]]:
    """The panels that pages embed, by their fragments, what they load, and what is wrong."""
    rows, findings = load_runs(project)
    snippets = list(snippets)
    unknown = rows.keys() - {one.id for one in snippets}
    findings += [Finding(FILE, None, f"no snippet {id_}", "name one") for id_ in sorted(unknown)]
    texts, sent = dict[str, str](), dict[str, bytes]()
    names, held, weight = engine_files() if wanted else ({}, {}, 0)
    addresses = {name: f"runtime/{file}" for name, file in names.items()}
    if "own" in wanted:
        told = html.escape(json.dumps({"own": True, **addresses}))
        texts["runs/own.md"] = OWN.format(told=told, weight=-(-weight // 1000))
        sent |= held
    for name in {*TYPED} & {*wanted}:
        texts[f"runs/{name}.md"], files = _render_playground(project, name, addresses, weight)
        sent |= files | held
    for one in snippets:
        named = {one.id, "home"} if one.id == WATCHED else {one.id}
        if one.id not in rows or not named & {*wanted}:
            continue
        run, wrong = pack_runs(one, rows[one.id])
        findings += wrong
        texts |= {f"runs/{name}.md": WITHHELD.format(id=one.id) for name in named}
        if run is None:
            continue
        sent |= run.files | held
        if "home" in named:
            shown = [each for each in run.told["variants"] if each["name"] in SHOWN]
            told = html.escape(json.dumps(run.told | addresses | {"variants": shown}))
            texts["runs/home.md"] = WATCH.format(told=told)
        told = json.dumps(run.told | addresses, separators=(",", ":"))
        largest = max(map(len, run.files.values()))
        many = len(run.told["variants"])
        kernels, them = ("A kernel", "it") if many == 1 else (f"{many} kernels", "them")
        texts[f"runs/{one.id}.md"] = PANEL.format(
            id=one.id, told=html.escape(told), weight=-(-(weight + largest) // 1000), arch=USUAL,
            kernels=kernels, them=them,
        )  # fmt: skip
    return texts, sent, findings


def _render_playground(
    project: Project, name: str, addresses: Mapping[str, str], weight: int
) -> tuple[str, dict[str, bytes]]:
    """Where kernels are typed and run: its fragment, and what it loads beside the engine."""
    python = runtime.cached_runtime(project)
    if python is None:
        return UNPLAYED, {}
    file, text = runtime.decoder_file()
    where = {"python": f"runtime/{python.name}/", "models": f"runtime/{file}"}
    kind = {"own": True, "puzzles": name == "puzzles"}
    told = html.escape(json.dumps({**kind, **addresses, **where}))
    weight += runtime.transfer_bytes(python) + len(gzip.compress(text.encode()))
    files = {f"{python.name}/{path.name}": path.read_bytes() for path in python.iterdir()}
    shown = PLAY.format(name=name, told=told, weight=-(-weight // 1000))
    return shown, {**files, file: text.encode()}


def engine_files() -> tuple[dict[str, str], dict[str, bytes], int]:
    """The names of the engine's files, the files, and how many bytes of them a browser loads."""
    from papergpu import build

    data = gzip.compress(build.load_webassembly(), 9, mtime=0)
    script = build.WEBASSEMBLY.with_name("papergpu.js").read_bytes()
    names = {
        "engine": f"papergpu.{hashlib.sha256(data).hexdigest()[:12]}.wasm.gz",
        "script": f"papergpu.{hashlib.sha256(script).hexdigest()[:12]}.js",
    }
    held = {names["engine"]: data, names["script"]: script}
    return names, held, len(data) + len(script)
