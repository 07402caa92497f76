"""CUDA C++ to PTX by NVRTC, which needs no GPU; what it wrote once is kept on disk."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from papergpu import file_cache
from papergpu.errors import CompileError, Unavailable
from papergpu.host_code import extract_device_code, inline_includes

HEADERS = Path(__file__).parent / "headers.txt"
TARGETS = {"sm_80": "compute_80", "sm_90a": "compute_90a", "sm_100a": "compute_100a"}
FORMAT = "2"  # raise it where what is kept would be written otherwise today
LIMIT = 64 << 20  # bytes of PTX that are kept
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_LAST = re.compile(
    r"^\d+ (?:catastrophic )?errors? detected.*\n(?:Compilation terminated\.\n?)?", re.MULTILINE
)
_LACKING = re.compile(r'cannot open source file "([^"]+)"')


@dataclass(frozen=True)
class Compiled:
    """PTX, the symbol of each name that was asked for by its C++ name, and a binary if asked."""

    ptx: str
    symbols: dict[str, str]
    binary: bytes = b""


@cache
def load_bindings() -> ModuleType:
    """NVIDIA's bindings of NVRTC.

    Raises:
        Unavailable: they are not installed, or find no NVRTC.
    """
    wheels = "cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
    install = "pip install " + " ".join(f"'{wheel}==13.*'" for wheel in wheels.split())
    try:
        found = importlib.import_module("cuda.bindings.nvrtc")
        found.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise Unavailable(f"CUDA C++ is compiled by NVRTC: {install} ({error})") from None
    return found


@cache
def find_include_dirs() -> tuple[Path, ...]:
    """Where CUDA's headers are: the folders of NVIDIA's wheels, or a toolkit's."""
    roots = [wheel for site in sys.path for wheel in sorted(Path(site).glob("nvidia/*"))]
    roots.append(Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"))
    return tuple(
        folder
        for root in roots
        for folder in (root / "include", root / "include" / "cccl")
        if folder.is_dir()
    )


@cache
def stand_in_headers() -> dict[str, str]:
    """The headers that stand in for those NVRTC lacks, by their names."""
    found = {}
    parts = re.split("^// (?=std: |file: )", HEADERS.read_text("utf-8"), flags=re.MULTILINE)
    for part in parts[1:]:
        line, _, text = part.partition("\n")
        kind, *names = line.split()
        for name, _, other in (one.partition("=") for one in names):
            if kind == "std:":
                text = f"#include <cuda/std/{other or name}>\n"
                text += "namespace std { using namespace cuda::std; }\n"
            found[name] = f"#pragma once\n{text}"
    return found


def find_includes(text: str, among: Sequence[Path]) -> Iterator[Path]:
    """The files that a text includes from some folders, directly or through others."""
    waiting, seen = [(text, None)], set[Path]()
    while waiting:
        one, beside = waiting.pop()
        for name in _INCLUDE.findall(one):
            for folder in (*([beside] if beside else ()), *among):
                path = folder / name
                if path in seen:
                    break
                if path.is_file():
                    seen.add(path)
                    yield path
                    waiting.append(
                        (path.read_text(encoding="utf-8", errors="replace"), path.parent)
                    )
                    break


@dataclass(frozen=True)
class Unit:
    """What is given to NVRTC: a text with its includes resolved, and how it is compiled."""

    name: str
    text: str
    options: tuple[str, ...]
    missing: tuple[str, ...]
    own: tuple[Path, ...]  # folders of the user's headers, which come before any other


def unit(
    text: str, path: Path | None, options: Sequence[str], target: str, names: Sequence[str] = ()
) -> Unit:
    """A source made ready for NVRTC, with what the instances `names` name beside the kernels.

    Raises:
        ValueError: the target is not supported.
    """
    if target not in TARGETS:
        raise ValueError(f"there is no target {target!r}: choose {', '.join(TARGETS)}")
    own = [Path(option[2:]) for option in options if option.startswith("-I") and option[2:]]
    if path is not None:
        own.insert(0, path.parent)
    everywhere = (*own, *find_include_dirs())

    def is_available(name: str) -> bool:
        return name in stand_in_headers() or any((folder / name).is_file() for folder in everywhere)

    whole, missing = inline_includes(text, path, is_available, own)
    named = any(option.startswith(("-std", "--std")) for option in options)
    standard = () if named else ("--std=c++17",)
    given = [
        f"--gpu-architecture={TARGETS[target]}",
        "-lineinfo",
        "--disable-warnings",
        "--device-as-default-execution-space",
        "--pre-include=papergpu/prelude.h",
        *standard,
        *(f"-I{folder}" for folder in everywhere),
        *(option for option in options if not option.startswith("-I")),
    ]
    name = str(path) if path else "source.cu"
    return Unit(name, extract_device_code(whole, names), tuple(given), tuple(missing), tuple(own))


# What the PTX that this process has asked for was made of, the latest last.
_sources: dict[str, tuple[Unit, tuple[str, ...]]] = {}
REMEMBERED = 64


def compiled(one: Unit, names: Sequence[str] = ()) -> Compiled:
    """The PTX of a unit with the kernels that `names` names as C++ does, from disk if it is there.

    Raises:
        CompileError: NVRTC does not take it.
    """
    digest = hashlib.sha256(HEADERS.read_bytes())
    version = str(load_bindings().nvrtcVersion())
    parts = [FORMAT, version, one.name, one.text, *one.options, "|", *names]
    digest.update("\0".join(parts).encode())
    for path in find_includes(one.text, one.own):
        digest.update(path.read_bytes())
    place = file_cache.cache_dir() / "ptx" / f"{digest.hexdigest()[:32]}.json"
    try:
        held = json.loads(file_cache.read_cached(place) or b"")
        found: Compiled | None = Compiled(held["ptx"], held["symbols"])
    except (ValueError, KeyError):
        found = None
    if found is None:
        found = _compile_unit(one, names)
        text = json.dumps({"ptx": found.ptx, "symbols": found.symbols})
        file_cache.write_cached(place, text.encode(), LIMIT)
    _sources[found.ptx] = one, tuple(names)
    while len(_sources) > REMEMBERED:
        del _sources[next(iter(_sources))]
    return found


def knows_source(ptx: str) -> bool:
    """Whether `binary` can make one of this PTX."""
    return ptx in _sources


def describe_build(ptx: str) -> str:
    """What decides the binary of such PTX beside it: NVRTC's version and its options."""
    one, names = _sources[ptx]
    return f"{load_bindings().nvrtcVersion()} {one.options} {names}"


def binary(ptx: str, *, lines: bool = True) -> bytes:
    """The binary that NVRTC makes of the source from which `compiled` made this PTX.

    With `lines` it says of which line of PTX its instructions were made.

    Raises:
        ValueError: this process has not asked for that PTX, or long ago.
        CompileError: NVRTC does not take it.
    """
    if ptx not in _sources:
        raise ValueError("this PTX was not made from CUDA C++ here: compile its source again")
    one, names = _sources[ptx]
    real = {f"--gpu-architecture={virtual}": f"--gpu-architecture={target}"
            for target, virtual in TARGETS.items()}  # fmt: skip
    options = [real.get(option, option) for option in one.options]
    given = replace(one, options=tuple(o for o in options if lines or o != "-lineinfo"))
    return _compile_unit(given, names, "CUBIN").binary


def _compile_unit(one: Unit, names: Sequence[str], also: str = "") -> Compiled:
    """Ask NVRTC; missing headers are taken as empty, one after the other."""
    empty: list[str] = []
    while True:
        done, log = _run_nvrtc(one, names, empty, also)
        if done is not None:
            return done
        lacking = _LACKING.search(log)
        if lacking is None or lacking[1] in empty or len(empty) > 40:
            break
        empty.append(lacking[1])
    lacked = [*one.missing, *empty]
    said = _LAST.sub("", log).strip()
    if "device-side kernel launch" in said or "separate compilation mode" in said:
        said += "\nKernels that launch kernels are not supported: launch them from the host."
    if lacked:
        said += (
            f"\nNot found and taken as empty: {', '.join(dict.fromkeys(lacked))}. Add the folder "
            "of those that kernels need with -I."
        )
    raise CompileError(said)


def _precompile_options(one: Unit) -> tuple[str, ...]:
    """Options by which NVRTC keeps the headers of a text as it has parsed them, for this process.

    To keep them takes a tenth longer, and another kernel then a fifth. What is written is the same.
    """
    if not _INCLUDE.search(one.text) or tuple(load_bindings().nvrtcVersion()[1:]) < (12, 8):
        return ()
    digest = hashlib.sha256()  # for NVRTC sees no change of a header within a second
    for path in find_includes(one.text, one.own):
        digest.update(path.read_bytes() + b"\0")
    folder = file_cache.scratch_dir() / digest.hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return "--pch", f"--pch-dir={folder}"


def _run_nvrtc(
    one: Unit, names: Sequence[str], empty: Sequence[str], also: str
) -> tuple[Compiled | None, str]:
    nvrtc = load_bindings()

    def check_result(answer: tuple[Any, ...]) -> Any:
        code, *rest = answer
        if int(code):
            raise CompileError(f"{one.name}: NVRTC says {code.name}")
        return rest[0] if rest else None

    def read_bytes(what: str) -> bytes:
        size = check_result(getattr(nvrtc, f"nvrtcGet{what}Size")(program))
        # NVRTC writes into it, and Python has but one object for all that are one byte long.
        room: bytes = b" " * max(2, size)
        check_result(getattr(nvrtc, f"nvrtcGet{what}")(program, room))
        return room[:size]

    def read_text(what: str) -> str:
        return read_bytes(what).partition(b"\0")[0].decode(errors="replace")

    headers = {
        name: text
        for name, text in stand_in_headers().items()
        if not any((folder / name).is_file() for folder in one.own)
    } | dict.fromkeys(empty, "// nowhere to be found\n")
    program = check_result(nvrtc.nvrtcCreateProgram(
        one.text.encode(), one.name.encode(), len(headers),
        [text.encode() for text in headers.values()], [name.encode() for name in headers],
    ))  # fmt: skip
    try:
        for name in names:
            check_result(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [option.encode() for option in (*one.options, *_precompile_options(one))]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = read_text("ProgramLog")
        if int(code):
            return None, log if log.strip() else f"{one.name}: NVRTC says {code.name}"
        symbols = {
            name: check_result(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode()
            for name in names
        }
        return Compiled(
            drop_unused_constants(read_text("PTX")), symbols, read_bytes(also) if also else b""
        ), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


_CONSTANT = re.compile(r"^\.global [^\n]*?\b(_ZN[\w$]+)(?:\[\d*\])?(?: = [^\n]*)?;$", re.MULTILINE)
_LIBRARIES = ("_ZN4cuda3std", "_ZN3cub", "_ZN6thrust", "_ZN4cuda3__4", "_ZN7cutlass", "_ZN4cute")


def drop_unused_constants(ptx: str) -> str:
    """PTX without constants of libraries that nothing names: a header brings hundreds."""
    if len(ptx) < 20_000 and ptx.count("\n.global") < 20:
        return ptx
    counts = Counter(re.findall(r"_ZN[\w$]+", ptx))
    return _CONSTANT.sub(
        lambda m: "" if counts[m[1]] == 1 and m[1].startswith(_LIBRARIES) else m[0], ptx
    )
