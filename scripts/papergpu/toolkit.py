"""NVIDIA's compiler driver as its wheels bring it, and programs compiled by it for papergpu."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from papergpu import file_cache
from papergpu.build import find_compiler
from papergpu.compiler import SOURCES, find_includes, find_nvcc, run_compiler
from papergpu.device import parse_target

RUNTIME = "libcudart.so.13"
LANGUAGES = (".cu", ".cpp", ".cc", ".cxx", ".c")
# nvcc's options that choose architectures, with an argument behind them or after `=`.
ARCHITECTURES = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code",
                 "--gpu-code", "-cudart", "--cudart")  # fmt: skip
# Those with which it does not link.
PARTIAL = frozenset(("-c", "--compile", "-ptx", "--ptx", "-cubin", "--cubin", "-E", "--preprocess",
                     "-M", "-lib", "--lib", "--help", "-h", "--version", "-V"))  # fmt: skip
# What is compiled to be linked on the device is compiled whole: what then lacks is refused by name.
WHOLE = {"-dc": "-c", "--device-c": "-c", "-rdc=true": "", "--relocatable-device-code=true": ""}


@cache
def build_runtime() -> Path:
    """The folder of the CUDA runtime that programs are linked to, compiled if it is not kept yet.

    Raises:
        Unavailable: there is no compiler or toolkit for it.
    """
    include = find_nvcc().parents[1] / "include"
    sources = sorted(SOURCES.iterdir())
    home = Path(__file__).parents[1]
    flags = ("-std=c++20", "-O2", "-fPIC", "-shared", f"-I{include}",
             f'-DPAPERGPU_PYTHON="{sys.executable}"', f'-DPAPERGPU_HOME="{home}"')  # fmt: skip
    key = hashlib.sha256(" ".join(flags).encode())
    for path in sources:
        key.update(path.read_bytes())
    folder = file_cache.cache_dir() / "runtime" / key.hexdigest()[:24]
    if not (folder / RUNTIME).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as aside:
            versions, made = Path(aside) / "versions", Path(aside) / RUNTIME
            versions.write_text(f"{RUNTIME} {{ global: cu*; __cuda*; local: *; }};\n")
            run_compiler([
                find_compiler(), *flags, *(str(path) for path in sources if path.suffix == ".cpp"),
                f"-Wl,-soname,{RUNTIME}", f"-Wl,--version-script,{versions}", "-ldl",
                "-o", str(made),
            ])  # fmt: skip
            for name in ("cublas", "cublasLt", "cuda"):  # are in it
                Path(folder, f"lib{name}.so").write_text(f"INPUT({folder}/{RUNTIME})\n")
            made.replace(folder / RUNTIME)
    return folder


def nvcc_command(arguments: Sequence[str], target: str = "sm_90") -> list[str]:
    """nvcc's command for what was asked of it: PTX for one architecture, and our runtime."""
    given, skip = list[str](), False
    for one in arguments:
        if skip:
            skip = False
        elif one in ARCHITECTURES:
            skip = True
        elif not one.startswith(tuple(f"{name}=" for name in ARCHITECTURES)):
            given += filter(None, [WHOLE.get(one, one)])
    sm = parse_target(target)
    virtual = f"compute_{sm}{'a' * (sm >= 90)}"
    command = [str(find_nvcc()), "-gencode", f"arch={virtual},code={virtual}",
               "--compress-mode=none", "-lineinfo", f"-I{SOURCES}"]  # fmt: skip
    if PARTIAL.intersection(given):
        return [*command, *given]
    folder = build_runtime()  # comes first: `-lcublas` means what is there, not NVIDIA's
    return [*command, "-cudart", "none", "-L", str(folder), *given, f"-l:{RUNTIME}",
            "-Xlinker", "-rpath", "-Xlinker", str(folder)]  # fmt: skip


def compile_program(source: Path, target: str) -> Path:
    """An executable of a CUDA program, kept until what it is made of changes.

    Raises:
        CompileError: nvcc does not take it; its words.
    """
    command = nvcc_command([str(source)], target)
    text = source.read_text(encoding="utf-8", errors="replace")
    key = hashlib.sha256("\0".join([*command, text]).encode())
    for path in find_includes(text, [source.parent]):
        key.update(path.read_bytes())
    made = file_cache.cache_dir() / "programs" / key.hexdigest()[:24] / source.stem
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=made.parent) as aside:
            run_compiler([*command, "-o", f"{aside}/program"])
            Path(aside, "program").replace(made)
    return made
