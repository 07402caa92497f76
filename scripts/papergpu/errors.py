"""What papergpu refuses, and what it finds."""

from __future__ import annotations

from papergpu.lexer import Unreadable

__all__ = ["CompileError", "Finding", "Unavailable", "Unreadable", "Unsupported"]


class Unavailable(RuntimeError):
    """This machine cannot run the engine; the message says what it lacks."""


class Unsupported(NotImplementedError):
    """A form or operand that is not supported, with the line of PTX and of the source."""


class Finding(RuntimeError):
    """What a launch did wrong: kernel, source line, block, thread, and the mend, in one line."""


class CompileError(RuntimeError):
    """CUDA C++ that NVRTC does not take: what NVRTC says, with file and line."""
