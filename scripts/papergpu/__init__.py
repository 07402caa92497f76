"""A GPU made of paper: PTX, as the real compilers write it, read and executed on a CPU.

PTX enters, what it computes leaves. This package knows nothing of the rest of the project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from papergpu.errors import Finding, Unavailable, Unsupported
    from papergpu.launch import Settings
    from papergpu.session import Launched, on_finding, on_launch, settings
    from papergpu.tensors import touching, unwritten, written
    from papergpu.triton import activate, active, deactivate

__all__ = [
    "Finding",
    "Launched",
    "Settings",
    "Unavailable",
    "Unsupported",
    "activate",
    "active",
    "deactivate",
    "on_finding",
    "on_launch",
    "settings",
    "touching",
    "unwritten",
    "written",
]

# Where each of them stands. They are imported when they are asked for: the engine needs no torch.
_HOMES = {
    "errors": ("Finding", "Unavailable", "Unsupported"),
    "launch": ("Settings",),
    "session": ("Launched", "on_finding", "on_launch", "settings"),
    "tensors": ("touching", "unwritten", "written"),
    "triton": ("activate", "active", "deactivate"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"papergpu.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
