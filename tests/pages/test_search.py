"""The search box of this site: the page that explains a thing is found by the thing's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import MORE, WIDE, Visit, open_context
from conftest import exhaustive
from playwright.sync_api import Browser, Page

# What is typed, and the pages that explain it: any below one of these addresses is right.
RIGHT = {
    "B200": ["kernels/blackwell"],
    "split-k": ["models/quantization", "kernels/gemm", "kernels/scheduling"],
    "how much memory to train 7B": ["calculators/memory", "models/transformer-arithmetic"],
    "gradient checkpointing": ["training/tensor-parallelism/", "sessions/09-"],
    "bank conflict": ["kernels/bank-conflicts"],
    "coalesced access": ["kernels/memory-bandwidth", "kernels/gemm/float32"],
    "prefix sum": ["kernels/reductions"],
    "histogram": ["kernels/warp-primitives"],
    "online softmax": ["kernels/softmax"],
    "layer norm backward": ["kernels/normalization"],
    "flash attention backward": ["kernels/attention"],
    "sliding window": ["kernels/attention"],
    "paged attention": ["models/inference-engines", "sessions/05-"],
    "MLA": ["models/inference-engines", "kernels/attention", "models/transformer"],
    "rotary embedding": ["models/transformer/rope"],
    "speculative decoding": ["models/speculative-decoding"],
    "int4 weights": ["models/quantization"],
    "wgmma": ["kernels/tensor-cores", "kernels/gemm"],
    "warp shuffle": ["kernels/warp-primitives"],
    "roofline": ["kernels/performance-models"],
    "zero bubble": ["training/pipeline-parallelism", "sessions/06-"],
    "ring attention": ["training/sequence-parallelism", "sessions/04-"],
    "all-reduce": ["training/collectives"],
    "expert routing": ["training/mixture-of-experts"],
    "ncu": ["tools/profiling", "tools/reading-a-profile"],
}
# How many of them are the first result, how many among the first three pages, and the worst place
# of any. Zensical weighs a title, and a page that all but the reader may pass over, as the rest.
GOALS = {"mkdocs": (22, 25, 2), "zensical": (10, 18, 9)}

INDEX = {"mkdocs": ("search/search_index.json", "docs"), "zensical": ("search.json", "items")}
SEPARATOR = r"""[\s\-_,:!=\[\]()"`/.]+"""
PAGES = """() => [...document.querySelectorAll('.md-search-result__item')].map(
  item => item.querySelector('a').href)"""
# Zensical's search lies in a shadow tree.
SHADOWS = """() => [...document.querySelectorAll('*')].filter(one => one.shadowRoot).flatMap(
  host => [...host.shadowRoot.querySelectorAll('[role=listbox] a[href]')].map(link => link.href))"""


@pytest.fixture(scope="module")
def search_visit(browser: Browser, searchable_origin: str) -> Iterator[Visit]:
    context = open_context(browser, WIDE)
    yield Visit(context.new_page(), searchable_origin)
    context.close()


def search_pages(tab: Page, origin: str, text: str) -> list[str]:
    """The pages that the search box of the theme shows for a text, best first."""
    if tab.locator(".md-search__button").count():
        links = list_shadow_links(tab, text)
    else:
        box = tab.locator(".md-search__input")
        box.focus()
        box.fill("")
        box.press("Backspace")
        tab.wait_for_function("() => !document.querySelector('.md-search-result__item')")
        box.fill(text[:-1])
        box.press(text[-1])  # a key asks for what stands there then, once
        tab.locator(".md-search-result__item").first.wait_for(state="attached")
        tab.wait_for_timeout(50)
        links = tab.evaluate(PAGES)
    pages = [urlsplit(link).path for link in links]
    return list(dict.fromkeys(page.removeprefix(f"{urlsplit(origin).path}/") for page in pages))


def list_shadow_links(tab: Page, text: str) -> list[str]:
    """The links that Zensical's search shows."""
    box = tab.get_by_role("combobox", name="Search")
    if not box.is_visible():
        tab.locator(".md-search__button").click()
    box.fill("")
    tab.wait_for_function(f"() => ({SHADOWS})().length === 0")
    box.fill(text)
    tab.wait_for_function(f"() => ({SHADOWS})().length > 0")
    tab.wait_for_timeout(150)
    return tab.evaluate(SHADOWS)


@pytest.mark.exhaustive(MORE)
def test_the_page_that_explains_a_thing_is_found(search_visit: Visit, builder: str) -> None:
    tab = search_visit.open_page("about/links/")
    places = {}
    for text, right in RIGHT.items():
        pages = search_pages(tab, search_visit.origin, text)
        found = (at for at, page in enumerate(pages) if page.startswith(tuple(right)))
        places[text] = min(found, default=99)
    first, three, worst = GOALS[builder]
    assert {text: place for text, place in places.items() if place > worst} == {}
    assert sum(place < 3 for place in places.values()) >= three, places
    assert sum(place == 0 for place in places.values()) >= first, places
    assert (search_visit.foreign, search_visit.failed, search_visit.console) == ([], [], [])


@pytest.mark.parametrize(
    ("text", "right"),
    exhaustive(
        [
            ("flashattention", "kernels/attention/"),
            ("__shfl_sync", "kernels/warp-primitives/"),
            ("cuBLAS", "kernels/gemm/"),
            ("blackwell", "kernels/blackwell/"),
        ],
        "more names",
    ),
)
@pytest.mark.exhaustive(MORE)
def test_names_of_code_are_found_as_they_are_written(
    search_visit: Visit, text: str, right: str
) -> None:
    tab = search_visit.open_page("about/links/")
    pages = search_pages(tab, search_visit.origin, text)[:3]
    assert any(page.startswith(right) for page in pages), pages


def test_what_is_no_page_to_read_is_not_in_the_index(site: Path, builder: str) -> None:
    name, key = INDEX[builder]
    index = json.loads((site / name).read_text(encoding="utf-8"))
    pages = {entry["location"].partition("#")[0] for entry in index[key]}
    assert {"kernels/gemm/", "glossary/"} <= pages
    out = ("reference/", "about/tags", "everything")
    assert [page for page in pages if page.startswith(out)] == []
    assert index["config"]["separator"] == SEPARATOR
    if builder == "mkdocs":
        assert index["config"]["fields"]["tags"]["boost"] == 0


@pytest.mark.exhaustive(MORE)
def test_the_finder_forgives_a_reader(search_visit: Visit) -> None:
    tab = search_visit.open_page("everything/?words=that+ring+atention+paper")
    first = tab.locator("[data-finder] > li a").first.inner_text()
    assert first.startswith("Ring Attention")
