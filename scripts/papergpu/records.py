"""The records that the engine and Python share, and what a launch has printed."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from papergpu.build import core
from papergpu.program import INSTRUCTION

COUNT = np.dtype(
    [(name, "u8") for name in ("run", "lanes", "requests", "sectors", "ideal_sectors",
                               "wavefronts", "ideal_wavefronts", "bytes", "operations",
                               "shared_requests")]
)  # fmt: skip
SAMPLE = np.dtype(
    [("addresses", "u8", 32), ("mask", "u4"), ("size", "u4"), ("passes", "u4"), ("ideal", "u4"),
     ("block", "u4", 3), ("warp", "u4"), ("instruction", "u4"), ("space", "u1"), ("does", "u1"),
     ("unused", "u1", 2)]
)  # fmt: skip
UNWRITTEN, READ_ONLY = 1, 2
ALLOC = np.dtype([("lo", "u8"), ("hi", "u8"), ("flags", "u4"), ("name", "u4"), ("shadow", "u8")])
_POINTERS = ("code", "lists", "constants", "allocs", "counts", "params", "globals", "consts",
             "specials", "shared_constants", "shadow", "samples")  # fmt: skip
_NUMBERS = ("ncode", "nconstants", "nregs", "shared", "local", "nallocs", "nspecials",
            "nshared_constants", "nparams", "nconsts")  # fmt: skip
_SETTINGS = ("static_shared", "dynamic_shared", "sm", "tensor", "checks", "profile",
             "cooperative", "schedule", "threads", "granule", "global_granule",
             "perturb", "order", "reserved", "nsamples")  # fmt: skip


class Launch(ctypes.Structure):
    """The layout of `Launch` in core/core.hpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_uint32) for name in _NUMBERS),
        *((name, ctypes.c_uint32 * 3) for name in ("grid", "block", "cluster")),
        *((name, ctypes.c_uint32) for name in _SETTINGS),
        ("seed", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("fault_place", ctypes.c_uint32),
        ("fault_pc", ctypes.c_uint32),
        ("fault_block", ctypes.c_uint32 * 3),
        ("fault_thread", ctypes.c_uint32 * 3),
        ("error", ctypes.c_char * 1024),
    ]


@cache
def engine() -> ctypes.CDLL:
    """The engine, whose records are laid out as they are here.

    Raises:
        RuntimeError: one of them has another size there.
    """
    found = core()
    sizes = {"Inst": INSTRUCTION.itemsize, "Launch": ctypes.sizeof(Launch),
             "Count": COUNT.itemsize, "Alloc": ALLOC.itemsize,
             "Sample": SAMPLE.itemsize}  # fmt: skip
    for number, (name, here) in enumerate(sizes.items()):
        there = found.papergpu_sizes(number)
        if there != here:
            raise RuntimeError(
                f"papergpu/core/core.hpp: {name} has {there} bytes, and {here} in Python: lay it "
                "out the same in records.py or program.py"
            )
    return found


def printed_by(given: Launch) -> str:
    """What a launch printed, block after block."""
    length = ctypes.c_uint64()
    text = engine().papergpu_printed(ctypes.byref(given), ctypes.byref(length))
    found = ctypes.string_at(text, length.value).decode(errors="replace") if length.value else ""
    engine().papergpu_forget(ctypes.byref(given))
    return found
