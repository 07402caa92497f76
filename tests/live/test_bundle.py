"""What a browser is sent: the very files that pages show, and nothing that it cannot run."""

from __future__ import annotations

import ast
import builtins
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from trialcalc import variations

from warpshelf.core.project import Project
from warpshelf.live import bundle, pyodide, respond

PROJECT = Project(ROOT)
NAMES = bundle.calculators(PROJECT)
MODELS = {name: path for one in NAMES for name, path in bundle.models(PROJECT, one).items()}
# Functions of the library of C, whose last digit differs between machines.
ROUGH = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf",
    "erfc", "exp2", "expm1", "gamma", "lgamma", "log10", "log1p", "pow", "sin", "sinh", "tan",
    "tanh",
}  # fmt: skip


def test_there_are_calculators() -> None:
    assert "model_flops" in NAMES
    assert set(bundle.models(PROJECT, "model_flops")) == {
        "snippets/model_flops/calculator.py", "snippets/model_flops/model_flops.py",
    }  # fmt: skip


def test_the_files_are_sent_as_they_are() -> None:
    text = bundle.text(PROJECT, {"model_flops": {"page": "x"}})
    sent = json.loads(text)
    for name, content in sent["files"].items():
        base = ROOT / "scripts" if name.startswith("warpshelf/") else ROOT
        assert content == (base / name).read_text(encoding="utf-8")
    assert sent["contexts"] == {"model_flops": {"page": "x"}}
    assert bundle.named(text) != bundle.named(f"{text} ")


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(f"{'.' * node.level}{node.module or ''}")
    return found


@pytest.mark.parametrize("name", sorted(MODELS | bundle.drawing()))
def test_a_browser_can_import_all_that_it_is_sent(name: str) -> None:
    """The trimmed library has what `MODULES` lists and what that imports in its turn."""
    path = (MODELS | bundle.drawing())[name]
    ours = imports(ast.parse(path.read_text(encoding="utf-8")))
    library = {one for one in ours if one.split(".")[0] not in ("snippets", "warpshelf")}
    assert library - {"sys", *pyodide.MODULES} == set()


def rough(tree: ast.AST) -> list[str]:
    """Calls of a model that give other digits on another machine, with their lines."""
    found = []
    summed = {"fsum", "sumprod", "range", "len"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "math":
            found += [f"{node.lineno}: {a.name}" for a in node.names if a.name in ROUGH]
        if not isinstance(node, ast.Call):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                power = node.right
                whole = isinstance(power, ast.Constant) and isinstance(power.value, int)
                if isinstance(power, ast.Constant) and not whole:
                    found.append(f"{node.lineno}: ** {ast.unparse(power)}")
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id == "math" and called.attr in ROUGH:
                found.append(f"{node.lineno}: math.{called.attr}")
        elif isinstance(called, ast.Name) and called.id == "sum" and node.args:
            # As far as one can see: a division or a float inside is a sum of floats.
            inner = [n for n in ast.walk(node.args[0])
                     if isinstance(n, ast.Div)
                     or (isinstance(n, ast.Constant) and isinstance(n.value, float))]  # fmt: skip
            names = {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}
            if inner and not names & summed:
                found.append(f"{node.lineno}: sum of floats; use math.fsum")
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_keep_to_what_every_machine_rounds_alike(name: str) -> None:
    assert rough(ast.parse(MODELS[name].read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_floats_are_added_by_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on it rounds otherwise than before, and a browser has a later one."""
    found: set[str] = set()
    true_sum = sum

    def watched(values: Iterable[Any], /, start: Any = 0) -> Any:
        kept = list(values)
        if len(kept) > 2 and any(isinstance(one, float) for one in kept):
            caller = sys._getframe(1)
            place = Path(caller.f_code.co_filename)
            if ROOT / "snippets" in place.parents:
                found.add(f"{place.relative_to(ROOT)}:{caller.f_lineno}")
        return true_sum(kept, start)

    monkeypatch.setattr(builtins, "sum", watched)
    for given in variations(name):
        respond.respond({"id": name, "configurations": [given]})
    assert sorted(found) == [], "use math.fsum"


def test_what_is_rough_is_seen() -> None:
    text = "import math\nfrom math import erf\n" + "\n".join(
        ("math.log10(x)", "math.sin(2)", "sum(a / b for a in c)", "x ** 0.5", "sum([1.5, 2])",
         "math.fsum(a / b for a in c)", "sum(ranks)", "x ** 2", "math.sqrt(x)", "math.log2(x)")
    )  # fmt: skip
    assert [line.split(": ")[0] for line in rough(ast.parse(text))] == [
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
    ]


def test_sources_follow_imports_and_packages(tmp_path: Path) -> None:
    for name, text in {
        "snippets/a/calculator.py": "from snippets.b.b import x\nimport json\n",
        "snippets/b/b.py": "import snippets.shared\n",
        "snippets/b/__init__.py": "",
        "snippets/shared.py": "",
        "snippets/c/c.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = bundle.sources(tmp_path, [tmp_path / "snippets/a/calculator.py"], "snippets")
    assert list(found) == [
        "snippets/a/calculator.py", "snippets/b/__init__.py", "snippets/b/b.py",
        "snippets/shared.py",
    ]  # fmt: skip
