"""The binary that a GPU would get of PTX which was executed here, by its own compiler.

That it is so is seen when it is made: the binary holds the PTX that it was made of, and without the
information on lines its code is the same byte for byte. Then it is kept, by all that decides it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from warpshelf.contract import architectures
from warpshelf.look import elf
from warpshelf.look.binary import compiler_release

FORMAT = 1  # of what is kept: raise it where it would be made otherwise today
LIMIT = 1 << 20  # bytes of each of the 256 folders that it is spread over
TRIES = 16
ASK, FIXED = 0xFFFFFFFF, 0x0040000  # of personality(2): what holds, ADDR_NO_RANDOMIZE


@dataclass(frozen=True)
class KernelBinary:
    """A binary with information on lines, and who made it: `compiler` in words."""

    binary: bytes
    language: str
    compiler: str


def assemble_kernel(ptx: str, symbol: str, target: str) -> KernelBinary:
    """The binary of a kernel whose module is `ptx`, for `target`.

    Raises:
        RuntimeError: its code depends on the information on lines, or it was made of other PTX.
    """
    from papergpu import nvrtc

    language = "CUDA C++" if nvrtc.knows(ptx) else "Triton"

    def make_binary(lines: bool) -> bytes:
        if language == "Triton":
            return compile_cubin(triton_compiler(target), ptx, lines=lines)
        return nvrtc.binary(ptx, lines=lines)

    def retry_until(lines: bool, fits: Callable[[bytes], bool], otherwise: str) -> bytes:
        # A compiler may write something else the next time: NVRTC one of several texts of a large
        # kernel, also in one process; an assembler goes by where its own memory lies.
        for turn in range(TRIES):
            with nullcontext() if turn else at_fixed_addresses():
                made = make_binary(lines)
            if fits(made):
                return made
        raise RuntimeError(f"{symbol}: {otherwise}")

    def make_verified() -> bytes:
        executed = ptx.splitlines()
        made = retry_until(
            True,
            lambda one: same_ptx(elf.embedded_ptx(one), executed),
            f"its binary for {target} was made of other PTX",
        )
        code = elf.kernel_code(made, symbol)
        retry_until(
            False,
            lambda one: elf.kernel_code(one, symbol) == code,
            f"{target}: no code without line information is like it",
        )
        return made

    by = triton_compiler(target).hash() if language == "Triton" else nvrtc.made_by(ptx)
    made = load_or_make("binaries", (target, symbol, by, ptx), make_verified)
    if language == "Triton":
        import triton

        return KernelBinary(made, language, f"Triton {triton.__version__}")
    return KernelBinary(made, language, f"NVRTC {compiler_release(made)}")


def load_or_make(folder: str, decides: Sequence[object], make: Callable[[], bytes]) -> bytes:
    """What was made before of the same, or is made and kept from now on."""
    from papergpu import build, store

    text = "\0".join(map(str, (FORMAT, *decides))).encode()
    key = hashlib.blake2b(text, digest_size=20).hexdigest()
    path = build.kept() / folder / key[:2] / key[2:]
    with suppress(zlib.error):
        return zlib.decompress(store.read(path) or b"")
    made = make()
    store.write(path, zlib.compress(made), LIMIT)
    return made


@contextmanager
def at_fixed_addresses() -> Iterator[None]:
    """Programs that are started inside have their memory where they had it before, on Linux.

    ptxas 13.1 writes one of several binaries of a few kernels, by where its memory happens to lie.
    """
    personality = getattr(ctypes.CDLL(None), "personality", None) if os.name == "posix" else None
    before = personality(ASK) if personality is not None else -1
    if personality is None or before < 0:
        yield
        return
    personality(before | FIXED)
    try:
        yield
    finally:
        personality(before)


def same_ptx(made: Sequence[str], executed: Sequence[str]) -> bool:
    """Whether a binary was made of the PTX that was executed, line by line.

    The binary holds it without what is for debuggers; what was executed may lack constants that
    nothing names.
    """

    def strip_comment(line: str) -> str:
        return " ".join(line.partition("//")[0].split())

    pairs = [
        (strip_comment(one), strip_comment(other))
        for one, other in zip(made, executed, strict=False)
    ]
    return any(one for one, _ in pairs) and all(
        one == other or not other or (not one and other.startswith((".", "$")))
        for one, other in pairs
    )


def triton_compiler(target: str) -> Any:
    """Triton's own compiler for a target. papergpu puts one in its place that makes no binary."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    number = architectures.sm_version(target)
    asked: Any = GPUTarget("cuda", number, 32)
    (found,) = [one.compiler for one in backends.values() if one.compiler.supports_target(asked)]
    real = next(one for one in found.__mro__ if one.__module__.startswith("triton."))
    return real(asked)


def compile_cubin(
    compiler: Any, ptx: str, options: Mapping[str, Any] | None = None, lines: bool = True
) -> bytes:
    """The binary that Triton's compiler makes of PTX, with the `options` of a launch."""
    import triton

    parsed = compiler.parse_options(dict(options or {}))
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = not lines
        made: bytes = compiler.make_cubin(ptx, {}, parsed, compiler.target.arch)
    return made
