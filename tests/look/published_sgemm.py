"""Published SGEMM timings against the bound of each kernel: `published_sgemm.py CHECKOUTS`.

CHECKOUTS is a folder with a clone of each repository that published_sgemm.toml names, at the commit
named there, as `owner+name`. Of each kernel one column of blocks is executed, over the whole inner
dimension, with no columns beyond where the kernel can be told so: some kernels read what lies
behind their tile, and blocks at the edge less of it. Any other column does at least as much, so
that the counts of one times the columns are a bound of those of the whole product.
The PTX is assembled for the devices' sm_86, to see which loads and stores were merged. Prints a
line for each kernel; `--record` keeps the counts in published_sgemm.json.xz, from which a test
makes the bounds anew. Run by hand, with ptxas and nvdisasm: nothing of the checkouts is kept.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpshelf.look.bound import cycle_bound, round_bound
from warpshelf.look.work import ExecutedInstruction, Work, assign_widths, count_work

TABLE = Path(__file__).with_suffix(".toml")
FILE = Path(__file__).with_suffix(".json.xz")
TARGET, ARCH = "sm_80", "sm_86"  # whose PTX is executed, and where it was timed
ONES = 8  # of each row of a, the rest zeros, so that half precision is exact
SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LINE = re.compile(r'"\.nv_debug_ptx_txt", line (\d+)')
OPCODE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
Data = dict[str, Any]


@dataclass(frozen=True)
class Timing:
    """A published timing, and the bound of what was timed, both in milliseconds."""

    name: str
    device: str
    published: float
    bound: float
    limiter: str
    half: bool


def load_table() -> Data:
    """The kernels, with the entries of their repository and device put in."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    repositories = {one["name"]: one for one in found["repository"]}
    devices = {one["name"]: one for one in found["device"]}
    kernels = []
    for one in found["kernel"]:
        repository = repositories[one["repository"]]
        device = devices[repository["device"]]
        kernels.append({**one, "of": repository, "on": device})
    return {"kernels": kernels}


def count_blocks(kernel: Data) -> tuple[int, int]:
    """Rows and columns of blocks of the whole product."""
    down, across = (-(-kernel["of"]["size"] // side) for side in kernel["tile"])
    return down, across


def bound_timing(kernel: Data, rows: Iterable[ExecutedInstruction]) -> Timing:
    """A kernel's published timing, and its bound from the counts of one column of blocks.

    The bound is that of a device at its highest clock, all of its SMs at work to the end.
    """
    found = cycle_bound(rows, ARCH)
    times = count_blocks(kernel)[1]
    device = kernel["on"]
    least = found["cycles"] * times / device["sms"] / (device["mhz"] * 1e3)
    published = 2 * kernel["of"]["size"] ** 3 / (kernel["gflops"] * 1e6)
    return Timing(
        kernel["name"], device["name"], published, least, found["limiter"], bool(kernel.get("half"))
    )


def read_kept_rows(kernel: Data) -> list[ExecutedInstruction]:
    """The rows of a kernel that are kept in FILE."""
    for one in json.loads(lzma.decompress(FILE.read_bytes()))["kernels"]:
        if (one["repository"], one["name"]) == (kernel["repository"], kernel["name"]):
            return [
                ExecutedInstruction(row["form"], row["counts"], width=row["width"])
                for row in one["rows"]
            ]
    raise KeyError(f"{kernel['name']}: not in {FILE.name}; run {Path(__file__).name} --record")


def execute_column(kernel: Data, checkouts: Path, scratch: Path) -> list[ExecutedInstruction]:
    """What one column of a kernel's blocks did, instruction by instruction of PTX."""
    import numpy as np
    import papergpu
    import torch
    from papergpu.cuda import Settings, Source

    folder = checkouts / kernel["repository"].replace("/", "+")
    (scratch / "cublas_v2.h").touch()  # is included, and not used by a kernel
    options = (f"-I{scratch}", f"-I{folder / 'include'}", *kernel.get("options", ()))
    source = Source(folder / kernel["of"]["folder"] / kernel["file"], options, target=TARGET)
    size = kernel["of"]["size"]
    columns = kernel["tile"][1]
    down = count_blocks(kernel)[0]
    kind = torch.float16 if kernel.get("half") else torch.float32
    one, nothing = (np.float16(value) if kernel.get("half") else value for value in (1.0, 0.0))
    values = {
        "m": size, "n": columns, "k": size, "lda": size, "ldb": size, "ldc": size,
        "alpha": one, "beta": nothing, "a": torch.zeros(size, size, dtype=kind),
        "b": torch.ones(size, size, dtype=kind), "c": torch.zeros(size, size, dtype=kind),
    }  # fmt: skip
    values["a"][:, :ONES] = 1
    if "ldb" not in kernel["of"]["arguments"] or kernel.get("strided"):  # n is a stride as well
        values["n"] = size
    grid = (down, 1) if kernel.get("rows") == "x" else (1, down)
    launches: list[Any] = []
    with papergpu.on_launch(launches.append):
        source.launch(
            kernel["kernel"], grid, tuple(kernel["block"]),
            *[values[name] for name in kernel["of"]["arguments"]],
            settings=Settings(profile=True, checks=False),
        )  # fmt: skip
    made = values["c"][:, :columns]
    if not torch.equal(made, torch.full_like(made, ONES)):
        raise ValueError(f"{kernel['name']}: the product of {ONES} ones is not {ONES} everywhere")
    (launched,) = launches
    ptx = source.ptx
    symbol = _find_symbol(ptx, launched.program.name)
    return assign_widths(_list_rows(launched), _disassemble_kernel(ptx, symbol, scratch))


def _list_rows(launched: Any) -> Iterator[ExecutedInstruction]:
    counts = launched.result.counts
    program = launched.program
    for pc, (form, count) in enumerate(zip(program.forms, counts, strict=True)):
        if form and count["run"]:
            tally = {name: int(count[name]) for name in counts.dtype.names if count[name]}
            tally["executed"] = tally.pop("run")
            yield ExecutedInstruction(form, tally, program.find_place(pc)[1])


def _find_symbol(ptx: str, name: str) -> str:
    """The name in the module of the kernel that papergpu calls by the function's own."""
    bare = name.partition("<")[0]
    found = [one for one in re.findall(r"\.entry\s+([\w$]+)", ptx) if bare in one]
    return min(found, key=len)


def _disassemble_kernel(ptx: str, symbol: str, scratch: Path) -> list[tuple[int, str]]:
    """Machine instructions of a kernel: the line of PTX that each was made from, and its opcode."""
    text, cubin = scratch / "kernel.ptx", scratch / "kernel.cubin"
    text.write_text(ptx, encoding="utf-8")
    _run_tool("ptxas", f"-arch={ARCH}", "-lineinfo", str(text), "-o", str(cubin))
    found, line, inside = [], 0, False
    for one in _run_tool("nvdisasm", "-c", "-gp", str(cubin)).splitlines():
        if match := SECTION.match(one):
            inside = match[1] == symbol
        elif match := LINE.search(one):
            line = int(match[1])
        elif inside and (match := OPCODE.match(one)):
            found.append((line, match[1]))
    if not found:
        raise ValueError(f"nvdisasm shows no code of {symbol}")
    return found


def _run_tool(tool: str, *words: str) -> str:
    """What a tool of CUDA's toolkit prints, by the newest of those at hand."""
    import triton

    wheel = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", tool)
    for path in (home, shutil.which(tool), wheel):
        if path and Path(path).is_file():
            run = subprocess.run([path, *words], capture_output=True, text=True, check=True)
            return run.stdout
    raise FileNotFoundError(f"there is no {tool}: install CUDA's toolkit or Triton")


def merge_rows(rows: Iterable[ExecutedInstruction]) -> list[ExecutedInstruction]:
    """Rows that matter to the bound; those alike in all but how often they ran are added up."""
    found: dict[tuple[Any, ...], ExecutedInstruction] = {}
    for row in rows:
        if count_work([row], ARCH) == Work():
            continue
        runs = row.tally["executed"]
        key = (row.form, row.width, *(sorted((n, c / runs) for n, c in row.tally.items())))
        if before := found.get(key):
            summed = {name: count + before.tally[name] for name, count in row.tally.items()}
            found[key] = replace(before, tally=summed)
        else:
            found[key] = replace(row, line=0)
    return sorted(found.values(), key=lambda row: (row.form, row.width, sorted(row.tally.items())))


def main(arguments: list[str]) -> int:
    folders = [one for one in arguments if one != "--record"]
    if len(folders) != 1:
        print(__doc__)
        return 2
    made = []
    for kernel in load_table()["kernels"]:
        with tempfile.TemporaryDirectory() as scratch:
            rows = merge_rows(execute_column(kernel, Path(folders[0]), Path(scratch)))
        one = bound_timing(kernel, rows)
        print(
            f"{one.device}  {one.name:36} published {one.published:8.3f} ms, bound "
            f"{one.bound:7.3f} ms, {one.published / one.bound:5.2f} times  {one.limiter}",
            flush=True,
        )
        made.append({
            "repository": kernel["repository"],
            "name": kernel["name"],
            "source": f"{kernel['of']['figures'].rpartition('/')[0]}/{kernel['of']['folder']}/"
            f"{kernel['file']}",
            "figures": kernel["of"]["figures"],
            "device": kernel["on"],
            "size": kernel["of"]["size"],
            "gflops": kernel["gflops"],
            "columns_of_blocks": count_blocks(kernel)[1],
            "cycles": round_bound(cycle_bound(rows, ARCH))["cycles"],
            "rows": [
                {"form": row.form, "width": row.width, "counts": dict(sorted(row.tally.items()))}
                for row in rows
            ],
        })  # fmt: skip
    if "--record" in arguments:
        rows = [json.dumps(one, separators=(",", ":"), sort_keys=True) for one in made]
        text = f'{{"arch":"{ARCH}","kernels":[\n' + ",\n".join(rows) + "\n]}\n"
        FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
