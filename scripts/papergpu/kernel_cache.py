"""Decoded kernels kept on disk, so that a kernel is decoded once and then read in a millisecond.

A file is named by the digest of its PTX and of this package's own sources: whatever could decode it
otherwise makes another name. It is a pickle, no less trusted than the engine in the same cache. One
that is cut short or altered is decoded anew. All of them take half a gigabyte at most: see `LIMIT`.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from papergpu import file_cache, syntax_tree
from papergpu.decode import decode
from papergpu.launch import Kernel, bind_memory
from papergpu.parse import parse
from papergpu.program import Program
from papergpu.variables import Globals, Outline, layout_globals, outline_module

LIMIT = 2 << 20  # bytes of each of the 256 folders that files are spread over by their digests
T = TypeVar("T")


def load_kernel(ptx: str, name: str) -> Kernel:
    """The kernel `name` of a module, with memory of its own for the module's variables.

    Raises:
        Unreadable: it is no PTX.
        Unsupported: something in it is not executed.
    """

    def decode_kernel() -> tuple[Program, Globals]:
        module = parse(ptx)
        return decode(module, name), layout_globals(module)

    return bind_memory(*_load_or_make(cache_key(name, ptx), decode_kernel), ptx)


class Module:
    """A module of PTX, read only when something is needed that is not kept yet.

    `before` is the module whose place it takes: the variables of that one stay where they are.
    """

    def __init__(self, ptx: str, before: Module | None = None) -> None:
        self.ptx, self.before = ptx, before
        self.key: str = cache_key("", before.key if before else "", ptx)

    @cached_property
    def tree(self) -> syntax_tree.Module:
        """All of it."""
        return parse(self.ptx)

    @cached_property
    def outline(self) -> Outline:
        """What it declares."""
        before = self.before.outline.memory if self.before else None
        return _load_or_make(self.key, lambda: outline_module(self.tree, before))

    def load_program(self, name: str) -> Program:
        """Its kernel `name`, decoded.

        Raises:
            Unsupported: something in it is not executed.
        """
        key = cache_key(name, self.key)
        return _load_or_make(key, lambda: decode(self.tree, name, self.outline.memory))


def cache_key(*parts: str) -> str:
    """The name of a file that is decided by texts, and by this package."""
    found = hashlib.blake2b(digest_sources(), digest_size=20)
    for part in parts:
        found.update(part.encode() + b"\0")
    return found.hexdigest()


@cache
def digest_sources() -> bytes:
    """A digest of all that decides what a decoded kernel is."""
    digest = hashlib.blake2b()
    here = Path(__file__).parent
    for path in sorted([*here.rglob("*.py"), *(here / "core").iterdir()]):
        if path.is_file():
            digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _load_or_make(name: str, make: Callable[[], T]) -> T:
    """What is kept under a name, or else made now and kept."""
    path = file_cache.cache_dir() / "decoded" / name[:2] / name[2:]
    data = file_cache.read_cached(path)
    # What is cut short or altered, or of another numpy, may raise anything.
    with suppress(Exception):
        if data is not None:
            found: T = pickle.loads(zlib.decompress(data))
            return found
    made = make()
    file_cache.write_cached(path, zlib.compress(pickle.dumps(made), 1), LIMIT)
    return made
