"""The engine: as a wheel brings it, or compiled at its first use for what this processor has.

Every source is compiled on its own and kept by what it depends on, so that a change costs one of
them. The first build says on stderr what it does, how long it will take, and how far it is.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import lzma
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from papergpu.errors import Unavailable
from papergpu.file_cache import cache_dir

SOURCES = Path(__file__).parent / "core"
BUNDLED = Path(__file__).parent / "engine"  # what a wheel brings, a library for each of LEVELS
# By processor: what GCC calls a level, the best one first, and the flags of Linux that it needs.
LEVELS = {
    "x86_64": {"x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
               "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}},
    "aarch64": {"armv8-a": {"asimd"}},
}  # fmt: skip
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off",
         "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-pthread")  # fmt: skip


def find_compiler() -> str:
    """The machine's C++ compiler: `CXX`, g++ or clang++.

    Raises:
        Unavailable: it has none, or does not run Linux.
    """
    if platform.system() != "Linux":
        raise Unavailable(
            f"papergpu needs Linux, but this is {platform.system()}: use a Linux container"
        )
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise Unavailable("papergpu needs a C++ compiler: install g++ (`apt install g++`) or set CXX")


def _run_compiler(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise Unavailable(f"the engine does not compile: `{' '.join(command)}` says\n{said[:4000]}")


@cache
def _describe_machine(cxx: str) -> bytes:
    """What else decides what a compiler writes: its version, and this processor."""
    version = subprocess.run([cxx, "--version"], capture_output=True).stdout
    return version + _read_features().encode()


def _read_features() -> str:
    """What this processor has, in Linux's words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def find_bundled() -> Path | None:
    """The library in this package that makes the most of this processor, if it has one."""
    if os.environ.get("PAPERGPU_CXXFLAGS"):
        return None
    features = set(_read_features().split())
    levels = LEVELS.get(platform.machine(), {})
    files = (BUNDLED / f"{level}.so" for level, needs in levels.items() if needs <= features)
    return next((file for file in files if file.is_file()), None)


def compile_levels(folder: Path) -> list[Path]:
    """The engine for all processors of this machine's kind, a library a level, for a wheel.

    `PAPERGPU_LEVELS` names some of them.
    """
    made = []
    for level in os.environ.get("PAPERGPU_LEVELS", "").split() or LEVELS[platform.machine()]:
        made.append(folder / f"{level}.so")
        _print_line(f"for {level}")
        shutil.copyfile(compile_engine(level), made[-1])
    return made


def compile_engine(level: str = "native") -> Path:
    """The engine's library for a level of processors, compiled if it is not kept yet."""
    cxx = find_compiler()
    flags = (*FLAGS, f"-march={level}", *os.environ.get("PAPERGPU_CXXFLAGS", "").split())
    headers = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.hpp")))
    base = hashlib.sha256(
        _describe_machine(cxx) + f"{cxx} {' '.join(flags)} {EASIER}".encode() + headers
    )
    folder = cache_dir() / "core"
    folder.mkdir(parents=True, exist_ok=True)
    objects: dict[Path, Path] = {}
    for source in sorted(SOURCES.glob("*.cpp")):
        digest = base.copy()
        digest.update(source.read_bytes())
        objects[source] = folder / f"{source.stem}-{digest.hexdigest()[:24]}.o"
    name = hashlib.sha256(" ".join(path.name for path in objects.values()).encode())
    library = folder / f"core-{name.hexdigest()[:24]}.so"
    if not library.exists():
        # Of several processes one compiles, and the others wait for it.
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _print_line("waiting for another process to compile the engine")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile_sources(cxx, flags, objects, library)
    return library


# Seconds of one core that a source takes where that is not two; the longest are begun first.
SECONDS = {"loads": 5, "integers": 4, "conversions": 3, "approximate": 3} | dict.fromkeys(
    ("addresses", "async", "barriers", "copies", "counters", "global_races", "mbarriers",
     "shared_races", "small", "tcgen05_issue", "tcgen05_mma", "tensor_memory", "tensors", "turn"),
    1)  # fmt: skip
# Sources that are no faster with more work of the compiler: what runs once a launch, a copy or a
# barrier, not once a lane. Time `tests/papergpu/benchmark.py` before another is put here.
EASIER = {"-O1": ("async", "barriers", "launch", "mbarriers", "tcgen05_issue", "tensor_memory"),
          "-O2": ("calls", "copies", "matrix_group", "tensors")}  # fmt: skip
FIRST = 4  # sources: of fewer, as where one has changed, nothing is said


def _print_line(what: str) -> None:
    print(f"papergpu: {what}", file=sys.stderr, flush=True)


def _compile_sources(
    cxx: str, flags: tuple[str, ...], objects: dict[Path, Path], library: Path
) -> None:
    """Compile what is missing of `objects`, each from its source, and link them all."""
    began, cores = time.monotonic(), len(os.sched_getaffinity(0))
    missing = {one: SECONDS.get(one.stem, 2) for one in objects if not objects[one].exists()}
    whole, done = sum(missing.values()), 0
    told = len(missing) >= FIRST
    if told:
        about = max(*missing.values(), whole / min(cores, len(missing)))
        over = f"{len(missing)} files on {cores} core{'s' * (cores > 1)}, about {about:.0f} s"
        _print_line(f"compiling the engine with {cxx}, once: {over}")
    # Written aside and moved into place, so that nobody finds half a file.
    with TemporaryDirectory(dir=library.parent) as aside:

        def compile_source(source: Path) -> Path:
            fresh = Path(aside) / objects[source].name
            given = common.result() if source.stem != WIDER else []
            level = next((one for one, names in EASIER.items() if source.stem in names), "-O3")
            ours = [level if flag == "-O3" else flag for flag in flags]
            _run_compiler([cxx, *ours, *given, "-c", str(source), "-o", str(fresh)])
            fresh.replace(objects[source])
            return source

        with ThreadPoolExecutor(cores) as pool:
            common = pool.submit(_precompile_header, cxx, flags, Path(aside), told)
            # The one that does not wait for it, then the longest.
            order = sorted(missing, key=lambda one: (one.stem != WIDER, -missing[one]))
            quarter = 1
            for future in as_completed([pool.submit(compile_source, one) for one in order]):
                done += missing[future.result()]
                if told and quarter < 4 and done >= quarter * whole / 4:
                    quarter = 4 * done // whole + 1
                    _print_line(
                        f"{100 * done // whole} % compiled, {time.monotonic() - began:.0f} s"
                    )
        fresh = Path(aside) / library.name
        _run_compiler([cxx, *flags, "-shared", *map(str, objects.values()), "-o", str(fresh)])
        fresh.replace(library)
    if told:
        _print_line(
            f"the engine is compiled, in {time.monotonic() - began:.0f} s, and kept for next time"
        )


WIDER = "approximate"  # its vectors are wider than what is precompiled


def _precompile_header(cxx: str, flags: tuple[str, ...], aside: Path, many: bool) -> list[str]:
    """Options by which g++ reads the header of `many` sources once; other compilers get none."""
    if not many or "clang" in Path(cxx).name:
        return []
    header = aside / "core.hpp"
    header.write_text(f'#include "{SOURCES / "core.hpp"}"\n#include <algorithm>\n')
    _run_compiler([cxx, *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    return ["-include", str(header)]


# ---- the engine as WebAssembly, which a browser executes: committed, so that only who changes the
# core needs a compiler for it

WEBASSEMBLY = Path(__file__).parent / "browser" / "engine.wasm.xz"
EXPORTS = ("malloc", "free", "papergpu_handler", "papergpu_launch", "papergpu_printed",
           "papergpu_forget", "papergpu_step_begin", "papergpu_step_end",
           "papergpu_step", "papergpu_step_warps", "papergpu_step_last", "papergpu_step_warp",
           "papergpu_step_access")  # fmt: skip
# Loops that are not unrolled cost no speed here, and a quarter less to load.
PORTABLE = ("-std=c++20", "-O2", "-fno-unroll-loops", "-msimd128", "-fwasm-exceptions",
            "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
            "-fvisibility=hidden", "-w")  # fmt: skip
LINKED = ("-sSTANDALONE_WASM", "--no-entry", "-sALLOW_MEMORY_GROWTH", "-sINITIAL_MEMORY=33554432",
          "-sMAXIMUM_MEMORY=2147483648")  # fmt: skip
SECTION = "sources"  # of the module: the digest of what it was compiled from


def digest_core() -> str:
    """The digest of all that the engine is compiled from."""
    files = sorted(SOURCES.glob("*.[ch]pp"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def load_webassembly() -> bytes:
    """The engine as a module of WebAssembly."""
    return lzma.decompress(WEBASSEMBLY.read_bytes())


def compile_webassembly() -> Path:
    """Compile `WEBASSEMBLY` anew, with emscripten (`apt install emscripten`).

    Raises:
        Unavailable: there is no emscripten, or it refuses a source.
    """
    if not shutil.which("em++"):
        raise Unavailable("WebAssembly needs emscripten: `apt install emscripten`")
    with TemporaryDirectory() as folder:

        def compile_source(source: Path) -> str:
            made = f"{folder}/{source.stem}.o"
            _run_compiler(["em++", *PORTABLE, "-c", str(source), "-o", made])
            return made

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = [*pool.map(compile_source, sorted(SOURCES.glob("*.cpp")))]
        module = Path(folder) / "engine.wasm"
        exported = ",".join(f"_{name}" for name in EXPORTS)
        link = ["em++", *PORTABLE, *objects, *LINKED, f"-sEXPORTED_FUNCTIONS={exported}"]
        _run_compiler([*link, "-o", str(module)])
        payload = bytes([len(SECTION)]) + SECTION.encode() + digest_core().encode()
        WEBASSEMBLY.write_bytes(
            lzma.compress(
                module.read_bytes() + bytes([0, len(payload)]) + payload,
                check=lzma.CHECK_CRC32,
                preset=9 | lzma.PRESET_EXTREME,
            )
        )
    return WEBASSEMBLY


@cache
def load_library() -> ctypes.CDLL:
    """The engine, loaded."""
    library = ctypes.CDLL(str(find_bundled() or compile_engine()))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, returned in (("handler", pointer), ("names", text), ("names_of", text),
                           ("printed", pointer), ("step_begin", pointer), ("step_warp", pointer),
                           ("step_access", pointer)):  # fmt: skip
        getattr(library, f"papergpu_{name}").restype = returned
    for name, taken in (("handler", [text]), ("names_of", [text]), ("sizes", [ctypes.c_uint32]),
                        ("mutant", [pointer]), ("launch", [pointer]), ("forget", [pointer]),
                        ("printed", [pointer, pointer]),
                        ("step", [pointer, ctypes.c_uint32, ctypes.c_int32, pointer])):  # fmt: skip
        getattr(library, f"papergpu_{name}").argtypes = taken
    return library


@cache
def list_handlers() -> frozenset[str]:
    """The names of all handlers that the engine has."""
    return frozenset(load_library().papergpu_names().decode().split())


def list_source_handlers(source: str) -> frozenset[str]:
    """The names of the handlers in one of the engine's sources: `floats.cpp`."""
    return frozenset(load_library().papergpu_names_of(f"/{source}".encode()).decode().split())


@cache
def get_handler(name: str) -> int:
    """The address of a handler.

    Raises:
        KeyError: the engine has none of that name.
    """
    found = load_library().papergpu_handler(name.encode())
    if not found:
        raise KeyError(name)
    return int(found)
