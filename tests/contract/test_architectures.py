"""The architectures that NEEDS names, and what a language asks of a GPU by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpshelf.contract import architectures, syntax
from warpshelf.records import claim_check

KNOWN = (75, 80, 86, 89, 90, 100, 103, 120)


@pytest.mark.parametrize(
    ("value", "covered", "said"),
    [
        (90, {90}, "SM 90"),
        ([90], {90}, "SM 90"),
        ([100, 90], {90, 100}, "SM 90 or 100"),
        ((80, 90, 90), {80, 90}, "SM 80 or 90"),
        (">=89", {89, 90, 100, 103, 120}, "SM 89 or above"),
        (">= 100", {100, 103, 120}, "SM 100 or above"),
        ("80-90", {80, 86, 89, 90}, "SM 80 to 90"),
        ("90 - 90", {90}, "SM 90 to 90"),
    ],
)
def test_a_form_covers_what_it_says(value: object, covered: set[int], said: str) -> None:
    found = architectures.parse_architectures(value)
    assert {sm for sm in KNOWN if found.covers(sm)} == covered
    assert str(found) == said
    assert found.refusal_reason(75) == f"needs {said}; this GPU is SM 75"
    assert all(found.refusal_reason(sm) is None for sm in covered)


def test_the_known_architectures_have_cards() -> None:
    assert architectures.KNOWN == KNOWN
    assert all(architectures.CARDS[sm] for sm in KNOWN)


def test_the_reason_is_part_of_the_refusal() -> None:
    needs = {"sm": ">=80", "why": "bf16", "variants": {"a": {"sm": 90, "why": "wgmma"}}}
    whole, own = architectures.required_architectures(needs, "a")
    assert whole.refusal_reason(75) == "needs SM 80 or above (bf16); this GPU is SM 75"
    assert own.refusal_reason(80) == "needs SM 90 (wgmma); this GPU is SM 80"


@pytest.mark.parametrize(
    "value",
    ["90", "sm_90", "<=90", ">=", "90-80", "", [], [90, "100"], [True], True, 9.0, None, 9, {}, -90,
     "\u0669\u0660-\u0669\u0660", ">=9000"],
)  # fmt: skip
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"not one of 90, \[90, 100\], "):
        architectures.parse_architectures(value)


def test_a_variant_must_suit_the_snippet_and_itself() -> None:
    needs = {"sm": ">=80", "variants": {"wgmma": {"sm": 90}, "plain": {"cpu": "no"}}}
    covered = {
        name: [sm for sm in KNOWN if architectures.is_covered(needs, name, sm)]
        for name in ("wgmma", "plain", None)
    }
    assert covered["wgmma"] == [90]
    assert covered["plain"] == covered[None] == [80, 86, 89, 90, 100, 103, 120]
    assert architectures.is_covered({}, "any", 75)


@pytest.mark.parametrize(
    ("needs", "arch"),
    [
        ({}, "native"),
        ({"sm": 90}, "sm_90a"),
        ({"sm": [100]}, "sm_100a"),
        ({"sm": [90, 100]}, "native"),
        ({"sm": ">=90"}, "native"),
        ({"variants": {"fast": {"sm": 90}}}, "native"),  # the file has others
    ],
)
def test_a_kernel_for_one_architecture_is_compiled_for_it(needs: dict, arch: str) -> None:
    assert architectures.nvcc_target(needs) == arch


def find_minimum(root: Path, text: str, **others: str) -> dict[str, str] | None:
    """That of a module beside `others` of the same snippets/."""
    folder = root / "snippets" / "one"
    folder.mkdir(parents=True)
    for name, body in {"one": text, **others}.items():
        (folder / f"{name}.py").write_text(body)
    return architectures.language_minimum(root, syntax.parse_python(folder / "one.py"))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("import triton\nz = tl.dot(x, y)\n", architectures.TILES),
        ("import triton\nz = tl.dot_scaled(x, y)\n", architectures.TILES),
        ("from triton.experimental.gluon import language as gl\n", architectures.GLUON),
        ("from triton.experimental import gluon\n", architectures.GLUON),
        ("import triton\nz = tl.sum(x)\n", None),
        ("import torch\nz = torch.dot(x, y)\n", None),
    ],
)
def test_products_of_tiles_begin_at_80(
    tmp_path: Path, text: str, asked: dict[str, str] | None
) -> None:
    assert find_minimum(tmp_path, text) == asked


def test_what_a_snippet_imports_of_another_counts(tmp_path: Path) -> None:
    text = "from snippets.one import two\n"
    two = "from snippets.one import three\nfrom snippets.one import one\n"
    assert find_minimum(tmp_path, text, two=two, three="tl.dot(x, y)\n") == architectures.TILES
    assert find_minimum(tmp_path / "b", text, two=two, three="def broken(:\n") is None


def test_it_holds_beside_what_needs_says() -> None:
    needs = {"sm": "75-90", architectures.LANGUAGE: dict(architectures.TILES)}
    assert [sm for sm in architectures.KNOWN if architectures.is_covered(needs, None, sm)] == [
        80, 86, 89, 90,
    ]  # fmt: skip
    said = [each.refusal_reason(75) for each in architectures.required_architectures(needs)]
    assert said == [
        None,
        "needs SM 80 or above (Triton multiplies tiles from there on); this GPU is SM 75",
    ]
    assert (
        claim_check.skip_reason(needs, "any", 75) == said[1]
    )  # so a record from there may skip it
    assert claim_check.skip_reason(needs, "any", 86) is None
