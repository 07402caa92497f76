"""What papergpu refuses, and what it finds."""

from __future__ import annotations

from typing import Any

from papergpu.lexer import Unreadable
from papergpu.syntax_tree import Place

Three = tuple[int, int, int]
__all__ = ["CompileError", "Finding", "Unavailable", "Unreadable", "Unsupported"]


class Unavailable(RuntimeError):
    """This machine cannot run the engine; the message says what it lacks."""


class Unsupported(NotImplementedError):
    """A form or operand that is not supported, with the line of PTX and of the source."""


class Finding(RuntimeError):
    """What a launch did wrong: kernel, source line, block, thread, and the mend, in one line.

    `what` is the fault and its mend alone, and `place` where in the source, if that is known.
    `result` is what the launch did, if it went on to its end.
    """

    result: Any = None

    def __init__(
        self, kernel: str, where: str, block: Three, thread: Three, what: str, place: Place | None
    ) -> None:
        super().__init__(f"{kernel} at {where}, block {block}, thread {thread}: {what}")
        self.kernel, self.block, self.thread = kernel, block, thread
        self.what, self.place = what, place


class CompileError(RuntimeError):
    """CUDA C++ that NVRTC does not take: what NVRTC says, with file and line."""
