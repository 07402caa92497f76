"""A module with a usual mistake made in it, for tests that its facts see it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType


def load_mistaken_module(module: ModuleType, find: str, replace: str) -> ModuleType:
    """The module anew, with `find`, which stands in its text once, replaced."""
    text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
    assert text.count(find) == 1, find
    mistaken = ModuleType("mistaken")
    sys.modules["mistaken"] = mistaken  # where dataclasses look for their annotations
    exec(compile(text.replace(find, replace), "mistaken", "exec"), mistaken.__dict__)
    return mistaken
