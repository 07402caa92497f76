"""What papergpu refuses, and what it finds."""

from __future__ import annotations

import re
from typing import Any

from papergpu.lexer import Unreadable
from papergpu.syntax_tree import Place

Three = tuple[int, int, int]
PAGE = "https://warpshelf.github.io/warpshelf/about/papergpu/findings/"
# Kinds of findings by what the engine's own words have, the first that fits; PAGE explains each.
KINDS = {
    "assertion": "^the assertion|the kernel traps",  # whose text is the user's
    "hang": "no thread can go on|has not ended",  # which tells where the threads wait
    "race": "with no barrier between|nothing orders the two",
    "lanes": "than lane|its lanes do not agree|lane 0 at",
    "unwritten": "nobody .*written|nobody wrote",
    "asynchronous": "not yet delivered|may still read|not landed|when the copy at|in flight|fence"
                    "|still to (?:read|write)|has not waited",
    "tensor-map": "tensor map|bounding box|box that begins",
    "mbarrier": "mbarrier|^arrives|long over|of its cluster: it must be its own|was canceled",
    "tensor-memory": r"tensor memory|tcgen05|cta_group|instruction descriptor|^the descriptor of",
    "barrier": r"barrier \d|execute[sd]? the wgmma|wgmma is of four warps",
    "mask": "the mask|does not take part",
    "alignment": "not a multiple of|must be multiples of|aligned bytes",
    "heap": "^frees",
    "bounds": "which has|before the start|in no tensor|null pointer|no block's shared|not its own"
              "|only read|of a cluster of|nothing is allocated|a table of|no block .* in a cluster"
              "|where none is",
}  # fmt: skip
OPERAND = "operand"  # what an instruction does not take: any other
HOST = "host"  # a fault of a program's host, in a call of the runtime
__all__ = ["CompileError", "Finding", "Unavailable", "Unreadable", "Unsupported"]


class Unavailable(RuntimeError):
    """This machine cannot run the engine; the message says what it lacks."""


class Unsupported(NotImplementedError):
    """A form or operand that is not supported, with the line of PTX and of the source."""


class Finding(RuntimeError):
    """What a launch did wrong: kernel, source line, block, thread, and the mend, in one line.

    `what` is the fault and its mend alone, `kind` one of `KINDS` or `OPERAND`, and `place` where in
    the source, if that is known. `result` is what the launch did, if it went on to its end.
    """

    result: Any = None

    def __init__(
        self,
        kernel: str,
        where: str,
        block: Three,
        thread: Three,
        what: str,
        place: Place | None,
        kind: str = OPERAND,
    ) -> None:
        super().__init__(f"{kernel} at {where}, block {block}, thread {thread}: {what}")
        self.kernel, self.block, self.thread = kernel, block, thread
        self.what, self.place, self.kind = what, place, kind


def find_kind(what: str) -> str:
    """The kind of a finding, by the engine's words before names of the user's stand in them."""
    return next((kind for kind, words in KINDS.items() if re.search(words, what)), OPERAND)


class CompileError(RuntimeError):
    """CUDA C++ that no compiler takes: what it says, with file and line."""
