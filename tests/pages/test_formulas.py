"""Formulas, and wide pictures beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import MORE, Visit
from conftest import ROOT

from warpshelf.site import finishing

# Formulas: every one of every page is MathML, and code says none that could be a formula.

MATHS = re.compile(r'class="arithmatex">(.*?)</(?:span|div)>', re.S)
# What the converter makes of a command, or of a sign, that it does not know.
UNREAD = re.compile(r"<(?:mi|mo|mtext)>(?:&amp;|&(?!#)|\\\\)[^<]*")
FENCE = re.compile(r"^( *)```.*?^\1```", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SIGNS = re.compile(r"[\w\s()/+\-*·×²³^=<>≤≥,.|‖√]+")
NAMES = {"exp", "log", "ln", "sqrt", "max", "min", "kv"}  # words that a formula may have
PARTS = ("kernels", "models", "training", "tools", "sessions")
CODE = {  # variables of a program that a page, or the pages of a folder, speak of
    "kernels/attention/": {"M", "N", "(B, H, S, D)", "(B, S, H, D)", "(T, H, D)"},
    "kernels/bank-conflicts/": {"b"},
    "kernels/blackwell/": {"a0", "b0"},
    "kernels/gemm/": {"x", "y", ".T", "a", "b"},
    "kernels/normalization/": {"x * x"},
    "kernels/stencils/": {"n"},
    "tools/benchmarks.md": {"1c36d50"},
    "kernels/memory-bandwidth/": {"1c36d50"},
    "kernels/warp-primitives/": {"i"},
    "sessions/02-flash-attention.md": {"M", "O", "P"},
    "tools/index.md": {"a + b"},
    "tools/profiling/": {"-t", "6 N"},
    "sessions/01-gpu-architecture-cuda-nccl.md": {"out = a + b"},
}


def is_formula(span: str) -> bool:
    """Whether all the words of a code span are single letters, as a formula's are."""
    words = re.findall(r"[^\W\d_²³]+", span)
    letters = [word for word in words if len(word) == 1]
    return bool(SIGNS.fullmatch(span) and letters) and set(words) - set(letters) <= NAMES


def test_every_formula_is_set(site: Path) -> None:
    wrong, seen = [], 0
    for path in sorted(site.rglob("index.html")):
        for found in MATHS.findall(path.read_text(encoding="utf-8")):
            seen += 1
            if not found.startswith("<math") or UNREAD.search(found):
                wrong.append(f"{path.relative_to(site)}: {found[:200]}")
    assert wrong == [] and seen > 1000


def test_what_is_no_formula_stays_as_it_is() -> None:
    html = '<p><span class="arithmatex">\\(a_b_c\\)</span> and $5</p>'
    assert finishing.set_formulas(html) == html
    fine = finishing.set_formulas('<div class="arithmatex">\\[x &lt; y\\]</div>')
    assert '<math display="block">' in fine and "<mo>&#x0003C;</mo>" in fine


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


def test_blank_space_goes_but_where_it_is_written() -> None:
    html = "<ul>\n\n    <li>a\n  b</li>  \n</ul><pre>\n\n  x\n</pre>\n\n<script> \n\n</script >\n"
    left = "<ul>\n<li>a\nb</li>\n</ul><pre>\n\n  x\n</pre>\n<script> \n\n</script >\n"
    assert finishing.remove_blanks(html) == left


# What the page of a topic does with wide pictures; what it has, test_site.py sees.

# What scrolls on a phone says so.


@pytest.mark.exhaustive(MORE)
def test_a_wide_picture_scrolls_in_its_own_box_and_shows_it(narrow_visit: Visit) -> None:
    tab = narrow_visit.open_page("training/pipeline-parallelism/shorter-bubbles/")
    box = tab.locator(".ws-diagram .ws-scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert "radial-gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
