"""The engine, compiled at its first use by this machine's C++ compiler for what its processor has.

Every source is compiled on its own and kept by what it depends on, so that a change costs one of
them. `PAPERGPU_CACHE` says where; without it that is `papergpu` in the user's cache.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from papergpu.errors import Unavailable

SOURCES = Path(__file__).parent / "core"
FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off",
         "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-pthread")  # fmt: skip


def kept() -> Path:
    """The folder in which compiled engines and decoded kernels are kept."""
    given = os.environ.get("PAPERGPU_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "papergpu"


def scratch() -> Path:
    """A folder for what this process alone reads; what others left that have ended is removed."""
    root = Path(gettempdir()) / f"papergpu-{os.getuid()}"
    folder = root / str(os.getpid())
    if not folder.is_dir():
        folder.mkdir(0o700, parents=True, exist_ok=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for other in root.iterdir():  # a process may end without a word
            if not Path("/proc", other.name).exists():
                shutil.rmtree(other, ignore_errors=True)
    return folder


def compiler() -> str:
    """The machine's C++ compiler: `CXX`, g++ or clang++.

    Raises:
        Unavailable: it has none, or is no Linux.
    """
    if platform.system() != "Linux":
        raise Unavailable(
            f"papergpu runs on Linux, and this is {platform.system()}: use a container of Linux"
        )
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise Unavailable("papergpu needs a C++ compiler: install g++ (`apt install g++`) or set CXX")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise Unavailable(f"the engine does not compile: `{' '.join(command)}` says\n{said[:4000]}")


@cache
def _machine(cxx: str) -> bytes:
    """What else decides what a compiler writes: its version, and this processor."""
    version = subprocess.run([cxx, "--version"], capture_output=True).stdout
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return version + flags.encode()


def built() -> Path:
    """The engine's library, compiled if this machine has not got it yet."""
    cxx = compiler()
    flags = (*FLAGS, *os.environ.get("PAPERGPU_CXXFLAGS", "").split())
    headers = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.hpp")))
    base = hashlib.sha256(_machine(cxx) + " ".join((cxx, *flags)).encode() + headers)
    folder = kept() / "core"
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
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(cxx, flags, objects, library)
    return library


def _compile(cxx: str, flags: tuple[str, ...], objects: dict[Path, Path], library: Path) -> None:
    """Compile what is missing of `objects`, each from its source, and link them all."""
    # Written aside and moved into place, so that nobody finds half a file.
    with TemporaryDirectory(dir=library.parent) as aside:

        def compile_one(source: Path, target: Path) -> None:
            if not target.exists():
                fresh = Path(aside) / target.name
                _run([cxx, *flags, "-c", str(source), "-o", str(fresh)])
                fresh.replace(target)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(compile_one, *pair) for pair in objects.items()]:
                done.result()
        fresh = Path(aside) / library.name
        _run([cxx, *flags, "-shared", *map(str, objects.values()), "-o", str(fresh)])
        fresh.replace(library)


@cache
def core() -> ctypes.CDLL:
    """The engine, loaded."""
    library = ctypes.CDLL(str(built()))
    library.papergpu_handler.restype = ctypes.c_void_p
    library.papergpu_handler.argtypes = [ctypes.c_char_p]
    library.papergpu_names.restype = ctypes.c_char_p
    library.papergpu_sizes.argtypes = [ctypes.c_uint32]
    library.papergpu_names_of.restype = ctypes.c_char_p
    library.papergpu_names_of.argtypes = [ctypes.c_char_p]
    library.papergpu_mutant.argtypes = [ctypes.c_void_p]
    library.papergpu_launch.argtypes = [ctypes.c_void_p]
    library.papergpu_printed.restype = ctypes.c_void_p
    library.papergpu_printed.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.papergpu_forget.argtypes = [ctypes.c_void_p]
    return library


@cache
def handlers() -> frozenset[str]:
    """The names of all handlers that the engine has."""
    return frozenset(core().papergpu_names().decode().split())


def handlers_of(source: str) -> frozenset[str]:
    """The names of the handlers in one of the engine's sources: `floats.cpp`."""
    return frozenset(core().papergpu_names_of(f"/{source}".encode()).decode().split())


@cache
def handler(name: str) -> int:
    """The address of a handler.

    Raises:
        KeyError: the engine has none of that name.
    """
    found = core().papergpu_handler(name.encode())
    if not found:
        raise KeyError(name)
    return int(found)
