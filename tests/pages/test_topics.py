"""A topic's page: an explanation first, pictures, formulas set, the full list last."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import MORE, Visit
from conftest import exhaustive

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PARTS = ("kernels", "models", "training", "tools")
TOPICS = sorted(
    path.relative_to(DOCS).with_suffix("").as_posix()
    for part in PARTS
    for path in (DOCS / part).glob("*.yml")
)
# The pages on which somebody learns a method, and so should try it.
CORE = [
    *(f"kernels/{name}" for name in (
        "gpu-architecture", "memory-bandwidth", "softmax", "attention", "gemm", "tensor-cores",
        "warp-primitives", "bank-conflicts", "reductions", "convolution", "stencils", "fusion",
        "performance-models", "scheduling", "blackwell")),
    *(f"models/{name}" for name in (
        "transformer", "transformer-arithmetic", "training-cost", "inference-engines",
        "quantization", "speculative-decoding")),
    *(f"training/{name}" for name in (
        "collectives", "data-parallelism", "tensor-parallelism", "sequence-parallelism",
        "pipeline-parallelism", "mixture-of-experts", "fp8")),
]  # fmt: skip
FOLD = 900  # px from the top, by which the explanation has begun


def source(topic: str) -> str:
    return (DOCS / f"{topic}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("topic", exhaustive(TOPICS, "all topics"))
def test_a_topic_explains_before_it_lists(topic: str, wide: Visit) -> None:
    tab = wide.go(f"{topic}/")
    headings = tab.eval_on_selector_all(
        ".md-content h2", "all => all.map(h => [h.id, h.getBoundingClientRect().top])"
    )
    assert headings[0][1] <= FOLD
    assert headings[0][0] != "readings" and headings[-1][0] == "readings"
    listed = tab.locator(".ws-start li")
    assert 1 <= listed.count() <= 2
    box = listed.last.bounding_box()
    assert box["y"] + box["height"] <= headings[0][1]
    if topic.startswith("kernels/") and topic != "kernels/series":  # a list of courses
        pictures = tab.locator(".md-content svg[role=img]")
        assert pictures.count() >= 1
        assert all(one.locator("title").text_content().strip() for one in pictures.all())
    if topic in CORE:
        folds = tab.locator("#exercises ~ ol > li > details.success")
        assert 3 <= folds.count() <= 5
        assert tab.locator("#exercises ~ ol > li > details.success[open]").count() == 0
        folds.first.locator("summary").click()
        assert folds.first.locator("strong").first.is_visible()


# Formulas are seen on every page by test_site.py, and read by test_formulas.py.


@pytest.mark.exhaustive(MORE)
def test_katex_stays_away_where_there_is_nothing_to_set(wide: Visit) -> None:
    asked: list[str] = []
    tab = wide.tab
    tab.on("request", lambda request: asked.append(request.url))
    wide.go("about/links/")
    assert [url for url in asked if "katex" in url] == []
    wide.go("kernels/gemm/").wait_for_selector(".katex")
    assert [url for url in asked if "katex.packed.js" in url]


# What scrolls on a phone says so.


@pytest.mark.exhaustive(MORE)
def test_a_wide_picture_scrolls_in_its_own_box_and_shows_it(narrow: Visit) -> None:
    tab = narrow.go("training/pipeline-parallelism/")
    box = tab.locator(".ws-diagram .ws-scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert "radial-gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
