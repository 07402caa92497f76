"""A question put to a calculator, answered: the same here, at the build, and in a browser.

A question is {"id", "root", "context", "configurations"}: texts of the form by name, one or two.
The answer has "answer" and "details" in HTML, "json" and "csv", or says in "errors" what is wrong
with which input.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from warpshelf.live import inputs, results, shown
from warpshelf.live.inputs import InputError


def calculator(name: str) -> Any:
    """The module `calculator.py` of a snippet."""
    return importlib.import_module(f"snippets.{name}.calculator")


def respond(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a question."""
    module = calculator(question["id"])
    found, errors, given = [], [], []
    for place, texts in enumerate(question["configurations"]):
        try:
            values = inputs.typed(module.INPUTS, texts)
            result = module.calculate(**values)
        except InputError as error:
            errors.append({"place": place, "name": error.name, "line": str(error)})
        except ValueError as error:
            name = _named(str(error), module.INPUTS)
            errors.append({"place": place, "name": name, "line": _line(error)})
        else:
            found.append(result)
            given.append(values)
    if errors:
        return {"errors": errors}
    names = shown.names_of(len(found))
    kept = [{"inputs": values, **result} for values, result in zip(given, found, strict=True)]
    around = question.get("context", {})
    return {
        "answer": shown.answers(found),
        "details": shown.details(found, around, question.get("root", "")),
        "json": json.dumps(
            {"calculator": question["id"], "configurations": kept},
            indent=1, ensure_ascii=False, allow_nan=False,
        ),
        "csv": results.table(found, [name or "value" for name in names]),
    }  # fmt: skip


def _line(error: ValueError) -> str:
    return " ".join(str(error).split()) or "these values cannot be calculated"


def _named(line: str, spec: Sequence[Mapping[str, Any]]) -> str:
    """The input that an error names, as in `memory_model: tensor = 3 does not divide 32`."""
    names = [one["name"] for one in spec if re.search(rf"\b{one['name']} = ", line)]
    return names[0] if names else ""


def answered(question: str) -> str:
    """`respond`, from JSON to JSON."""
    return json.dumps(respond(json.loads(question)), ensure_ascii=False)


def described(name: str) -> dict[str, Any]:
    """What a build needs to know of a calculator: its inputs, its defaults' result, its faults."""
    module = calculator(name)
    spec = getattr(module, "INPUTS", None)
    wrong = list(inputs.faults(spec))
    if not callable(getattr(module, "calculate", None)):
        wrong.append("has no function calculate")
    if wrong:
        return {"faults": wrong}
    result = module.calculate(**{one["name"]: one["default"] for one in module.INPUTS})
    if wrong := list(results.faults(result)):
        return {"faults": wrong}
    return {"inputs": module.INPUTS, "result": result, "faults": []}


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    print(json.dumps({name: described(name) for name in asked}))
