"""Formulas: KaTeX sets every one of every page, and code says none that it could set."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from browser import Visit
from conftest import ROOT

FOUND = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.S)
SET = """texts => texts.flatMap(text => {
    const displayMode = text.startsWith("\\\\[")
    const options = {displayMode, throwOnError: true, strict: 'error'}
    try { katex.renderToString(text.slice(2, -2), options) }
    catch (error) { return [`${text}: ${error.message}`] }
    return []
})"""
FENCE = re.compile(r"^( *)```.*?^\1```", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SIGNS = re.compile(r"[\w\s()/+\-*·×²³^=<>≤≥,.|‖√]+")
NAMES = {"exp", "log", "ln", "sqrt", "max", "min", "kv"}  # words that a formula may have
PARTS = ("kernels", "models", "training", "tools", "sessions")
CODE = {  # variables of a program that a page, or the pages of a folder, speak of
    "kernels/attention/": {"M", "N", "(B, H, S, D)", "(B, S, H, D)", "(T, H, D)"},
    "kernels/bank-conflicts/": {"b"},
    "kernels/gemm/": {"x", "y"},
    "kernels/memory-bandwidth/": {"1c36d50"},
    "kernels/warp-primitives/": {"i"},
    "sessions/02-flash-attention.md": {"M", "O", "P"},
    "tools/index.md": {"a + b"},
    "tools/profiling/": {"-t"},
    "sessions/01-gpu-architecture-cuda-nccl.md": {"out = a + b"},
}


def is_formula(span: str) -> bool:
    """Whether all the words of a code span are single letters, as a formula's are."""
    words = re.findall(r"[^\W\d_²³]+", span)
    letters = [word for word in words if len(word) == 1]
    return bool(SIGNS.fullmatch(span) and letters) and set(words) - set(letters) <= NAMES


def collect_formulas(site: Path) -> dict[str, str]:
    """Each formula of the site, and a page that has it."""
    found = {}
    for path in sorted(site.rglob("index.html")):
        for _, text in FOUND.findall(path.read_text(encoding="utf-8")):
            found[html.unescape(text).strip()] = path.parent.relative_to(site).as_posix()
    return found


@pytest.mark.exhaustive("all formulas; the ten pages show theirs")
def test_every_formula_can_be_set(wide_visit: Visit, site: Path) -> None:
    found = collect_formulas(site)
    assert len(found) > 300
    assert {text[:2] for text in found} == {"\\(", "\\["}
    tab = wide_visit.open_page(f"{next(iter(found.values()))}/")
    tab.wait_for_function("() => window.katex")
    assert tab.evaluate(SET, ["\\(\\frac{1}\\)"]) != []
    assert tab.evaluate(SET, sorted(found)) == []


def test_no_formula_is_written_as_code() -> None:
    said = []
    for part in PARTS:
        for path in sorted((ROOT / "docs" / part).rglob("*.md")):
            page = path.relative_to(ROOT / "docs").as_posix()
            text = FENCE.sub("", path.read_text(encoding="utf-8"))
            known = CODE.get(page) or CODE.get(f"{page.rpartition('/')[0]}/", set())
            spans = set(SPAN.findall(text)) - known
            said += [f"{page}: `{span}`" for span in sorted(spans) if is_formula(span)]
    assert said == []


def test_a_formula_is_told_from_code() -> None:
    for span in ("h", "6 N D", "24 h²", "m >= p", "n × h", "2 a_kv d", "exp(s - l)", "S / P"):
        assert is_formula(span), span
    for span in ("x[i]", "2**31", "exp", ".item()", "model_flops", "BM", "abs(a - b) > tol"):
        assert not is_formula(span), span
