"""What one compares of two builds of a kernel: what it takes, and its main loop by kind."""

from __future__ import annotations

from typing import Any

from warpshelf.look import binary, figures
from warpshelf.look.disassembly import disassembled
from warpshelf.look.loops import loops
from warpshelf.look.view import View

Build = dict[str, Any]  # shaped as BUILD has it
BUILD = {
    "registers": int,
    "spilled_bytes": int,
    "shared_bytes": int,
    "instructions": int,
    "loop": {"*": int},  # machine instructions of the main loop by kind; empty where it has none
}


def of_view(view: View) -> Build:
    """That of a view, or of its summary."""
    return {
        "registers": view["registers"],
        "spilled_bytes": view["spilled_bytes"],
        "shared_bytes": view["shared_bytes"],
        "instructions": len(view["sass"]["live"]),
        "loop": _loop(view["loops"]),
    }


def of_binary(cubin: bytes, symbol: str, shared: int) -> Build:
    """That of a kernel in a binary, which is launched with `shared` bytes of shared memory.

    Raises:
        RuntimeError: no tool can read the binary.
    """
    used, code = binary.usage(cubin)[symbol], disassembled(cubin, symbol)
    return {
        "registers": used.registers,
        "spilled_bytes": used.spilled_bytes,
        "shared_bytes": max(shared, used.shared_bytes),
        "instructions": len(code.instructions),
        "loop": _loop([one.as_dict() for one in loops(code)]),
    }


def _loop(found: list[dict[str, Any]]) -> dict[str, int]:
    main = figures.main_loop(found)
    return dict(main["kinds"]) if main else {}
