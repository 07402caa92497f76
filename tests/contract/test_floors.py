"""What a language asks of a GPU by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpshelf.contract import architectures, floors, syntax
from warpshelf.records import agreement


def floor(root: Path, text: str, **others: str) -> dict[str, str] | None:
    """That of a module beside `others` of the same snippets/."""
    folder = root / "snippets" / "one"
    folder.mkdir(parents=True)
    for name, body in {"one": text, **others}.items():
        (folder / f"{name}.py").write_text(body)
    return floors.of(root, syntax.parse(folder / "one.py"))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("import triton\nz = tl.dot(x, y)\n", floors.TILES),
        ("import triton\nz = tl.dot_scaled(x, y)\n", floors.TILES),
        ("from triton.experimental.gluon import language as gl\n", floors.GLUON),
        ("from triton.experimental import gluon\n", floors.GLUON),
        ("import triton\nz = tl.sum(x)\n", None),
        ("import torch\nz = torch.dot(x, y)\n", None),
    ],
)
def test_products_of_tiles_begin_at_80(
    tmp_path: Path, text: str, asked: dict[str, str] | None
) -> None:
    assert floor(tmp_path, text) == asked


def test_what_a_snippet_imports_of_another_counts(tmp_path: Path) -> None:
    text = "from snippets.one import two\n"
    two = "from snippets.one import three\nfrom snippets.one import one\n"
    assert floor(tmp_path, text, two=two, three="tl.dot(x, y)\n") == floors.TILES
    assert floor(tmp_path / "b", text, two=two, three="def broken(:\n") is None


def test_it_holds_beside_what_needs_says() -> None:
    needs = {"sm": "75-90", architectures.LANGUAGE: dict(floors.TILES)}
    assert [sm for sm in architectures.KNOWN if architectures.covered(needs, None, sm)] == [
        80, 86, 89, 90,
    ]  # fmt: skip
    said = [each.refusal(75) for each in architectures.of(needs)]
    assert said == [
        None,
        "needs SM 80 or above (Triton multiplies tiles from there on); this GPU is SM 75",
    ]
    assert agreement.excuse(needs, "any", 75) == said[1]  # so a record from there may skip it
    assert agreement.excuse(needs, "any", 86) is None
