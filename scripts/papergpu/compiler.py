"""CUDA C++ to PTX, which needs no GPU: by NVRTC in 50 ms, or by nvcc what NVRTC does not take.

NVRTC knows kernels alone. A file with a host's part, or with headers of the host, is nvcc's. What
was written once is kept on disk.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from papergpu import file_cache
from papergpu.errors import CompileError, Unavailable

SOURCES = Path(__file__).parent / "runtime"  # has headers of cuBLAS
WHEELS = ("nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl "
          "nvidia-cuda-profiler-api")  # fmt: skip
TARGETS = {"sm_80": "compute_80", "sm_90a": "compute_90a", "sm_100a": "compute_100a",
           "sm_120a": "compute_120a"}  # fmt: skip
FORMAT = "3"  # raise it where what is kept would be written otherwise today
LIMIT = 64 << 20  # bytes of PTX that are kept
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_LAST = re.compile(
    r"^\d+ (?:catastrophic )?errors? detected.*\n(?:Compilation terminated\.\n?)?", re.MULTILINE
)


@dataclass(frozen=True)
class Compiled:
    """PTX, the symbol of each name that was asked for by its C++ name, who wrote it, and a binary
    if asked."""

    ptx: str
    symbols: dict[str, str]
    by: str = "NVRTC"  # or nvcc
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
    """A text of CUDA C++, and how it is compiled."""

    name: str
    text: str
    target: str
    options: tuple[str, ...]  # of the user's, without folders of headers
    own: tuple[Path, ...]  # folders of the user's headers, which come before any other

    @property
    def nvrtc_options(self) -> tuple[str, ...]:
        """What NVRTC is told."""
        named = any(option.startswith(("-std", "--std")) for option in self.options)
        return (
            f"--gpu-architecture={TARGETS[self.target]}",
            "-lineinfo",
            "--disable-warnings",
            "--device-as-default-execution-space",
            *(() if named else ("--std=c++17",)),
            *(f"-I{folder}" for folder in (*self.own, *find_include_dirs())),
            *self.options,
        )


def unit(text: str, path: Path | None, options: Sequence[str], target: str) -> Unit:
    """A source as it is given to a compiler; headers beside it are found.

    Raises:
        ValueError: the target is not supported.
    """
    if target not in TARGETS:
        raise ValueError(f"there is no target {target!r}: choose {', '.join(TARGETS)}")
    own = [Path(option[2:]) for option in options if option.startswith("-I") and option[2:]]
    if path is not None:
        own.insert(0, path.parent)
    given = tuple(option for option in options if not option.startswith("-I"))
    return Unit(str(path) if path else "source.cu", text, target, given, tuple(own))


# ---- nvcc


@cache
def find_nvcc() -> Path:
    """NVIDIA's compiler driver: of the wheels, of `CUDA_HOME`, or on the path.

    Raises:
        Unavailable: there is none.
    """
    homes = [Path(site) / "nvidia" / "cu13" for site in sys.path]
    homes += [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")]
    for home in homes:
        if (home / "bin" / "nvcc").is_file():
            return home / "bin" / "nvcc"
    if found := shutil.which("nvcc"):
        return Path(found).resolve()
    wheels = " ".join(f"'{wheel}==13.*'" for wheel in WHEELS.split())
    raise Unavailable(f"programs are compiled by nvcc, which is not here: pip install {wheels}")


def run_compiler(command: Sequence[str]) -> None:
    """Run a compiler, whose words are the error if it fails."""
    # What this process was started with in front of its libraries is not for others.
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise CompileError((done.stderr or done.stdout).strip())


# A kernel whose own name holds that of another, so that this one's symbol is found.
_PROBES = """
template <auto> struct papergpu_name {{}};
{}
"""
_PROBED = re.compile(r"papergpu_(\d+)\(papergpu_name<&\((.*)\)>\)")


def _run_nvcc(one: Unit, names: Sequence[str], kind: str, target: str) -> bytes:
    """What nvcc makes of a unit, host's part and all: its `kind`, ptx or cubin, for a target."""
    probes = "".join(
        f"__global__ void papergpu_{k}(papergpu_name<&{name}>) {{}}\n"
        for k, name in enumerate(names)
    )
    command = [str(find_nvcc()), f"-{kind}", f"-arch={target}", "-lineinfo", "-w",
               "--expt-relaxed-constexpr", *one.options,
               *(f"-I{folder}" for folder in (*one.own, SOURCES, *_torch_includes()))]  # fmt: skip
    with TemporaryDirectory() as aside:
        source, made = Path(aside, "source.cu"), Path(aside, "made")
        line = f'#line 1 "{one.name}"\n'
        source.write_text(line + one.text + (_PROBES.format(probes) if names else ""))
        run_compiler([*command, str(source), "-o", str(made)])
        return made.read_bytes()


def _compile_whole(one: Unit, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The PTX of a unit by nvcc, and the symbol of each name, maybe a template's instance."""
    ptx = drop_unused_constants(_run_nvcc(one, names, "ptx", TARGETS[one.target]).decode())
    entries = re.findall(r"\.entry (\w+)\(", ptx)
    said = _demangle(entries)
    symbols = {}
    for each in said:
        if probed := _PROBED.fullmatch(each):
            found = probed[2] if probed[2] in said else probed[2].partition("(")[0]  # of C
            symbols[names[int(probed[1])]] = entries[said.index(found)]
    return ptx, symbols


@cache
def _torch_includes() -> tuple[str, ...]:
    """Where the headers of torch and Python are, which a file for torch includes."""
    home = next((Path(site, "torch", "include") for site in sys.path
                 if Path(site, "torch", "include").is_dir()), None)  # fmt: skip
    if home is None:
        return ()
    return str(home), f"{home}/torch/csrc/api/include", sysconfig.get_paths()["include"]


def _demangle(symbols: Sequence[str], *options: str) -> list[str]:
    program = shutil.which("c++filt")
    if program is None:
        raise Unavailable("symbols of C++ are read by c++filt: apt install binutils")
    text = "\n".join(symbols)
    done = subprocess.run([program, *options], input=text, capture_output=True, text=True)
    return done.stdout.split("\n")[: len(symbols)]


@cache
def demangle(symbol: str) -> str:
    """`scale<float>` of a symbol of C++, by what the C++ compiler brings; else the symbol."""
    with suppress(Unavailable):
        return _demangle([symbol], "-p")[0]
    return symbol


# ---- one or the other

# What the PTX that this process has asked for was made of, the latest last.
_sources: dict[str, tuple[Unit, tuple[str, ...]]] = {}
REMEMBERED = 64


def compiled(one: Unit, names: Sequence[str] = ()) -> Compiled:
    """The PTX of a unit with the kernels that `names` names as C++ does, from disk if it is there.

    Raises:
        CompileError: neither NVRTC nor nvcc takes it; the words of nvcc, if it is here.
    """
    version = str(load_bindings().nvrtcVersion())
    parts = [FORMAT, version, one.name, one.text, *one.nvrtc_options, "|", *names]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in find_includes(one.text, one.own):
        digest.update(path.read_bytes())
    place = file_cache.cache_dir() / "ptx" / f"{digest.hexdigest()[:32]}.json"
    try:
        held = json.loads(file_cache.read_cached(place) or b"")
        found: Compiled | None = Compiled(held["ptx"], held["symbols"], held["by"])
    except (ValueError, KeyError):
        found = None
    if found is None:
        found = _compile_unit(one, names)
        text = json.dumps({"ptx": found.ptx, "symbols": found.symbols, "by": found.by})
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
    return f"{load_bindings().nvrtcVersion()} {one.nvrtc_options} {names}"


def binary(ptx: str, *, lines: bool = True) -> bytes:
    """The binary that the compiler which made this PTX makes of its source.

    With `lines` it says of which line of PTX its instructions were made.

    Raises:
        ValueError: this process has not asked `compiled` for that PTX, or long ago.
        CompileError: the compiler does not take it.
    """
    if ptx not in _sources:
        raise ValueError("this PTX was not made from CUDA C++ here: compile its source again")
    one, names = _sources[ptx]
    virtual = TARGETS[one.target]
    real = {f"--gpu-architecture={virtual}": f"--gpu-architecture={one.target}"}
    options = [real.get(option, option) for option in one.nvrtc_options]
    given = [option for option in options if lines or option != "-lineinfo"]
    try:
        return _run_nvrtc(one, names, given, "CUBIN").binary
    except CompileError:
        return _run_nvcc(one, names, "cubin", one.target)


def _compile_unit(one: Unit, names: Sequence[str]) -> Compiled:
    try:
        return _run_nvrtc(one, names, one.nvrtc_options)
    except CompileError as error:
        said = str(error)
    try:
        return Compiled(*_compile_whole(one, names), "nvcc")
    except Unavailable as lacking:
        raise CompileError(f"{said}\nA file with a host's part: {lacking}") from None


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


def _run_nvrtc(one: Unit, names: Sequence[str], options: Sequence[str], also: str = "") -> Compiled:
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

    program = check_result(
        nvrtc.nvrtcCreateProgram(one.text.encode(), one.name.encode(), 0, [], [])
    )
    try:
        for name in names:
            check_result(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        given = [option.encode() for option in (*options, *_precompile_options(one))]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        if int(code):
            log = _LAST.sub("", read_text("ProgramLog")).strip()
            raise CompileError(log or f"{one.name}: NVRTC says {code.name}")
        symbols = {
            name: check_result(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode()
            for name in names
        }
        ptx = drop_unused_constants(read_text("PTX"))
        return Compiled(ptx, symbols, binary=read_bytes(also) if also else b"")
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
