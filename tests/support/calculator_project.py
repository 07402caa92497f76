"""A calculator of a trial project, and what stands around it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from conftest import ROOT, Trial
from hypothesis import strategies as st

from warpshelf.live import quantities

CALCULATOR = '''\
"""Doubles."""

from __future__ import annotations

import json
from typing import Any

from snippets.doubled.doubled import double

INPUTS = (
    {
        "name": "number", "label": "Number", "group": "Work", "kind": "number", "default": 2.0,
        "least": 0, "most": 1e9, "unit": "B", "help": "What is doubled.",
    },
    {
        "name": "often", "label": "Often", "group": "Work", "kind": "integer", "default": 1,
        "least": 1, "most": 50, "unit": "", "help": "How many times.",
    },
    {
        "name": "kind", "label": "Kind", "group": "Model", "kind": "choice", "default": "plain",
        "choices": ("plain", "odd"), "help": "Of what.",
    },
    {
        "name": "halved", "label": "Halved", "group": "Model", "kind": "flag", "default": False,
        "help": "Afterwards.",
    },
    {
        "name": "config", "label": "Configuration", "group": "Model", "kind": "config",
        "default": "", "help": "Pasted.",
    },
)


def calculate(**inputs: Any) -> dict[str, Any]:
    """The double."""
    notes = []
    if inputs["config"]:
        try:
            read = json.loads(inputs["config"])
        except ValueError:
            raise ValueError("doubled: config is no JSON; paste a config.json") from None
        notes = [f"Unknown field: {name}." for name in read if name != "size"]
    if inputs["often"] == 13:
        raise ValueError("doubled: often = 13 is unlucky; take another")
    if inputs["often"] == 17:
        raise ValueError("doubled: nothing\\nis twice 17")
    if inputs["often"] == 19:
        raise RuntimeError("broken")
    value = inputs["number"]
    for _ in range(inputs["often"]):
        value = double(value)
    if inputs["halved"]:
        value /= 2
    return {
        "answer": f"{value:g} B of {inputs['kind']} things",
        "rows": (
            {
                "name": "doubled", "value": value, "unit": "B", "formula": "2 * number",
                "source": "a-paper", "test": "twice 2",
            },
        ),
        "plots": (
            {
                "kind": "bars", "title": "Doubled", "x": "thing", "y": "B",
                "series": ({"name": "doubled", "points": (("it", value),)},),
                "limit": {"name": "room", "value": 1e3},
            },
        ),
        "band": {"set": "Measured, 2024", "within": 0.1},
        "notes": notes,
    }
'''
MODULE = '''\
"""Twice as much: a model.

FLOPs   one
Error   none
Raises  nothing
Source  a-paper
"""


def double(value: float) -> float:
    """Twice `value`."""
    return 2 * value


def demo() -> None:
    """Prints it."""
    print(double(2))


if __name__ == "__main__":
    demo()
'''

CASES = '''\
"""What doubled must show."""

from __future__ import annotations

from typing import Any

from snippets.doubled.doubled import double


def facts() -> list[dict[str, Any]]:
    """One."""
    return [
        {
            "name": "twice 2", "value": double(2), "expected": 4, "tolerance": 0,
            "unit": "", "source": "a-paper",
        },
    ]
'''


def write_calculator(trial: Trial, calculator: str = CALCULATOR) -> Path:
    """Write the calculator and its model into a trial project; where the calculator is."""
    folder = trial.root / "snippets" / "doubled"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "doubled.py").write_text(MODULE, encoding="utf-8")
    (folder / "cases.py").write_text(CASES, encoding="utf-8")
    path = folder / "calculator.py"
    path.write_text(calculator, encoding="utf-8")
    return path


def list_configs(*names: str) -> list[str]:
    """Published configurations, with a field that nobody knows."""
    path = ROOT / "snippets" / "model_configs" / "configs.json"
    known = {one["name"]: one["config"] for one in json.loads(path.read_text(encoding="utf-8"))}
    return [json.dumps({**known[name], "made_up_field": 7}) for name in names]


def list_extremes(name: str) -> list[dict[str, str]]:
    """Each input by itself at the ends of what the form takes."""
    found: list[dict[str, str]] = []
    for one in importlib.import_module(f"snippets.{name}.calculator").INPUTS:
        ends: list[str] = list(one.get("choices", ()))
        if one["kind"] in ("integer", "number"):
            ends = [quantities.format_input(one, one[key]) for key in ("least", "most")]
        found += [{one["name"]: end} for end in ends]
    return found


def list_variations(name: str) -> list[dict[str, str]]:
    """The defaults, and each input changed by itself."""
    spec = importlib.import_module(f"snippets.{name}.calculator").INPUTS
    found: list[dict[str, str]] = [{}]
    for one in spec:
        if one["kind"] == "flag":
            found.append({one["name"]: quantities.FALSE if one["default"] else quantities.TRUE})
        elif one["kind"] == "choice":
            others = [choice for choice in one["choices"] if choice != one["default"]]
            found += [{one["name"]: choice} for choice in others[-1:]]
        elif one["kind"] == "config":
            found += [{one["name"]: text} for text in list_configs("gemma-2-9b", "DeepSeek-V3")]
        else:
            more = one["default"] * 2 or (1 if one["kind"] == "integer" else 0.5)
            found.append({one["name"]: quantities.format_input(one, min(more, one["most"]))})
    return found


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**400)
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=2)
    ),
    max_leaves=4,
)
