"""What a file says, read without running it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from warpshelf.contract import syntax


def test_what_the_source_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        '\ufeff"""An idea."""\nimport math\nfrom os import path as p\nNEEDS = {"sm": 90}\n'
        "A, (B, C) = 1, (2, 3)\nD: int = 4\nif A:\n    E = 5\ndef f():\n    G = 6\n"
        'if __name__ == "__main__":\n    f()\n',
        encoding="utf-8",
    )
    parsed = syntax.parse_python(path)
    assert parsed.names == {
        "math": 2, "p": 3, "NEEDS": 4, "A": 5, "B": 5, "C": 5, "D": 6, "E": 7, "f": 9
    }  # fmt: skip
    assert parsed.functions.keys() == {"f"}
    assert {name: ast.unparse(parsed.find_value(name)) for name in ("NEEDS", "D")} == {
        "NEEDS": "{'sm': 90}", "D": "4"
    }  # fmt: skip
    assert parsed.find_value("G") is None
    assert syntax.standard_library_only(parsed.imports)
    path.write_text("import torch\nNEEDS = dict(sm=90)\n")
    parsed = syntax.parse_python(path)
    assert not syntax.standard_library_only(parsed.imports)


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        ("", {0}),
        ("device", {1}),
        ("device='cpu'", {0, 1}),
        ("a, /, b=1", {1, 2}),
        ("*all", {0, 1, 2, 3}),
        ("a, *, b", set()),
        ("a, *, b=2", {1}),
        ("**words", {0}),
    ],
)
def test_how_many_arguments_a_function_takes(
    tmp_path: Path, arguments: str, counts: set[int]
) -> None:
    (tmp_path / "f.py").write_text(f"def f({arguments}):\n    pass\n")
    parsed = syntax.parse_python(tmp_path / "f.py")
    assert {count for count in range(4) if parsed.accepts_count("f", count)} == counts


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import sys\nsys.path.insert(0, 'x')\n", 2),
        ("import sys\n\ndef f():\n    sys.path[:0] = ['x']\n", 4),
        ("from sys import path\n", 1),
        ("from sys import argv, path as p\n", 1),
        ("import sys\nprint(sys.argv)\n", None),
        ("from os import path\nprint(path.sep)\n", None),
        ("import os\nprint(os.path.sep)\n", None),
    ],
)
def test_a_change_of_the_path_is_seen(tmp_path: Path, text: str, line: int | None) -> None:
    (tmp_path / "f.py").write_text(text)
    assert syntax.parse_python(tmp_path / "f.py").changes_path == line
