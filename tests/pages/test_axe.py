"""axe, which looks for what shuts people out, finds nothing on any kind of page.
Takes 40 s, as it is first to need the site, and builds it.

Two widths, both colour schemes, both builders. What is many times alike on a page (tokens of code,
rows of a list) is thinned out first: axe takes seconds for thousands of colours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browser import NARROW, WIDE, Visit
from conftest import exhaustive
from playwright.sync_api import Page

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
MISSING = "kernels/sofmax/"
HIGH = 4000  # so that no list beside the page scrolls, whose edge would cut a target in two


def no_search(tab: Page) -> None:
    """The page as it comes."""


def open_search(tab: Page) -> None:
    tab.set_viewport_size({"width": WIDE, "height": HIGH})
    tab.locator(".md-search__input, .md-search__button").first.click()
    tab.wait_for_timeout(300)  # Zensical asks for its index


def search_softmax(tab: Page) -> None:
    open_search(tab)
    tab.keyboard.type("softmax")
    tab.wait_for_timeout(700)


KINDS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "front page": ("", no_search),
    "topic with a list": ("kernels/scheduling/", no_search),
    "topic with a snippet": ("kernels/softmax/one-pass/", no_search),
    "topic with formulas": ("models/transformer-arithmetic/", no_search),
    "calculator": ("calculators/memory/", no_search),
    "part": ("kernels/", no_search),
    "all readings": ("everything/", no_search),
    "results": ("results/", no_search),
    "session": ("sessions/02-flash-attention/", no_search),
    "paths": ("paths/", no_search),
    "path": ("paths/flash-attention/", no_search),
    "tags": ("about/tags/", no_search),
    "glossary": ("glossary/", no_search),
    "snippets": ("reference/snippets/cuda/", no_search),
    "tooling": ("reference/tooling/", no_search),
    "about": ("about/contributing/", no_search),
    "missing": (MISSING, no_search),
    "search": ("about/numbers/", open_search),
    "what a search finds": ("about/numbers/", search_softmax),
}
# What a theme does wrong in a place that no style sheet or template of ours reaches: its rule, and
# the place. Zensical's search lies in a shadow tree, whose pale names of parts and scrolling box
# are its script's own.
THEIRS = {
    ("zensical", "color-contrast", "#P0-"),
    ("zensical", "scrollable-region-focusable", ".k"),
}
THIN = """() => {
  const seen = new Map();
  const often = (name, most) => {
    seen.set(name, (seen.get(name) || 0) + 1);
    return seen.get(name) > most;
  };
  for (const token of document.querySelectorAll('.highlight code span[class]')) {
    if (!token.firstElementChild && often(token.className, 2)) token.remove();
  }
  for (const row of document.querySelectorAll('ul[data-finder] > li')) {
    if (often('row', 12)) row.remove();
  }
  for (const kind of ['.doc-object', '.ws-term', '.md-content abbr', '.md-tags ~ ul > li']) {
    for (const one of document.querySelectorAll(kind)) {
      if (!one.closest('a') && often(kind, 12)) one.remove();
    }
  }
}"""
LOOK = """async ([scheme, given]) => {
  document.body.setAttribute('data-md-color-scheme', scheme);
  const {violations} = await axe.run(document, {
    resultTypes: ['violations'], preload: false, elementRef: false, ...given,
  });
  return violations.flatMap(({id, nodes}) => nodes.map(node => [
    id, String(node.target.flat(9).join(' ')), node.html.slice(0, 200), node.failureSummary,
  ]));
}"""
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


def find_violations(tab: Page, scheme: str, given: dict[str, Any], builder: str) -> list[str]:
    """What axe finds, but for what is a theme's own, and what its script mends a moment later."""
    for pause in (0, 500, 2000):
        tab.wait_for_timeout(pause)
        found = [
            f"{rule}: {html} at {target}: {why}"
            for rule, target, html, why in tab.evaluate(LOOK, [scheme, given])
            if not any(builder == who and rule == what and at in target for who, what, at in THEIRS)
        ]
        if not found:
            break
    return found


@pytest.mark.parametrize("kind", exhaustive(KINDS, "all kinds of pages"))
def test_axe_finds_nothing(
    kind: str, still_visit: Visit, builder: str, published_origin: str, searchable_origin: str
) -> None:
    page, prepare = KINDS[kind]
    still_visit.tab.set_viewport_size({"width": WIDE, "height": HIGH})
    if page == MISSING or prepare is not no_search:
        still_visit.tab.goto(f"{published_origin if page == MISSING else searchable_origin}/{page}")
        shown = still_visit.tab
    else:
        shown = still_visit.open_page(page)
    prepare(shown)
    shown.evaluate(THIN)
    shown.evaluate(AXE)
    found = {}
    for width in (WIDE, NARROW):
        shown.set_viewport_size({"width": width, "height": HIGH})
        shown.wait_for_timeout(50)  # scripts of the page follow the width
        found[width, "light"] = find_violations(shown, "default", RULES, builder)
        # the rest is as in light
        found[width, "dark"] = find_violations(shown, "slate", COLOURS, builder)
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


@pytest.mark.exhaustive("the tool itself")
def test_axe_would_find_it(still_visit: Visit) -> None:
    """The test above is not blind: each of what it was written for is seen when it is put in."""
    shown = still_visit.open_page("about/numbers/")
    shown.evaluate(AXE)
    shown.evaluate(
        """() => document.querySelector('.md-content article').insertAdjacentHTML('afterbegin', `
          <p style="color:#999;background:#fff">pale</p><div role="dialog">no name</div>
          <p><a href="#a" style="display:inline-block;height:9px">x</a>
             <a href="#b" style="display:inline-block;height:9px">y</a></p>
          <table><tr><th></th><td>no header</td></tr></table>`)"""
    )
    rules = {rule for rule, *_ in shown.evaluate(LOOK, ["default", RULES])}
    assert rules >= {"color-contrast", "aria-dialog-name", "target-size", "empty-table-header"}


@pytest.mark.parametrize("scheme", exhaustive(["default", "slate"], "both schemes"))
def test_every_colour_of_code_stands_out(still_visit: Visit, scheme: str) -> None:
    """Of tokens that no page shows today as well."""
    shown = still_visit.open_page("about/contributing/")
    ratios = shown.evaluate(
        """scheme => {
          document.body.setAttribute('data-md-color-scheme', scheme);
          const names = ['comment', 'constant', 'function', 'generic', 'keyword', 'name', 'number',
            'operator', 'punctuation', 'special', 'string', 'variable'];
          const pen = Object.assign(document.createElement('canvas'), {width: 1, height: 1})
            .getContext('2d', {willReadFrequently: true});
          const probe = document.body.appendChild(document.createElement('i'));
          const light = variable => {
            probe.style.color = `var(${variable})`;
            pen.fillStyle = getComputedStyle(probe).color;
            pen.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
          };
          const paper = light('--md-code-bg-color');
          return names.map(name => [name, light(`--md-code-hl-${name}-color`)]).map(
            ([name, ink]) => [name, Math.max(ink, paper) / Math.min(ink, paper)]);
        }""",
        scheme,
    )
    assert len({round(ratio, 3) for _, ratio in ratios}) > 4  # the variables are there
    assert [pair for pair in ratios if pair[1] < 4.5] == []
