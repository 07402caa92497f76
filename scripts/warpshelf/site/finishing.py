r"""What is done to built pages: formulas become MathML; blanks, repetitions and rules of style go.

arithmatex leaves formulas as TeX between `\(` and `\)`, or `\[` and `\]`. As MathML they need no
script. A third of a page is space that the theme's templates leave between elements. The theme has
rules for twenty tabs beside each other, which a browser holds against every element, and its script
puts each plain table into boxes that scroll, which has the page around it styled anew.
"""

from __future__ import annotations

import html
import re
from collections.abc import Container
from functools import cache
from pathlib import Path

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">(?P<tex>.*?)</(?P=tag)>', re.DOTALL)
KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2\s*>)", re.DOTALL)  # as it is written
BLANK = re.compile(r"[ \t]*\n\s*")


def finish_site(folder: Path, done: Container[Path] = ()) -> None:
    """Finish every page below `folder` but those that are done, and the theme's styles."""
    for path in folder.rglob("*.html"):
        if path not in done:
            finish_page(path)
    finish_styles(folder)


def finish_styles(folder: Path) -> None:
    """Finish the theme's style sheets below `folder`."""
    for path in folder.glob("assets/stylesheets/*.css"):
        text = path.read_text(encoding="utf-8")
        if (ready := drop_rules(text)) != text:
            path.write_text(ready, encoding="utf-8")


RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
BETWEEN = re.compile(r",(?![^()]*\))")  # selectors
PLAIN = "table:not([class])"
TABS = 6  # that stand beside each other on a page at most


def drop_rules(css: str) -> str:
    """A style sheet of the theme without what has the whole of a page styled anew, for little.

    On a phone that takes half of the time for which a page is blocked: rules for more tabs than
    there are, those of tabs without scripts, the one that stills all transitions while the colours
    change, which the theme sets at each start, and those of tables by their lack of a class, which
    are held against all that stands below an element whenever its classes change.
    """

    def is_dropped(selector: str) -> bool:
        if ".tabbed-set" not in selector:
            return "[data-md-color-switching]" in selector or f"{PLAIN}+*" in selector
        tab = re.search(r":nth-child\((\d+)\)", selector)
        return (
            ".no-js" in selector or "[role=dialog]" in selector or int(tab[1] if tab else 0) > TABS
        )

    def shorten(rule: re.Match[str]) -> str:
        kept = [one for one in BETWEEN.split(rule[1]) if not is_dropped(one)]
        return f"{','.join(kept)}{{{rule[2]}}}" if kept else ""

    return RULE.sub(shorten, css).replace(PLAIN, "table.ws-plain")


def finish_page(path: Path) -> None:
    """Finish the page in a file."""
    text = path.read_text(encoding="utf-8")
    ready = label_links(explain_once(box_tables(remove_blanks(set_formulas(text)))))
    if ready != text:
        path.write_text(ready, encoding="utf-8")


def remove_blanks(text: str) -> str:
    """HTML with one line break wherever it has one with space around it."""
    parts = KEPT.split(text)  # what lies between, what is kept, and its tag, in turn
    return "".join(
        BLANK.sub("\n", part) if place % 3 == 0 else part
        for place, part in enumerate(parts)
        if place % 3 != 2
    )


TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
BOXED = '<div class="md-typeset__scrollwrap"><div class="md-typeset__table">{}</div></div>'


def box_tables(text: str) -> str:
    """HTML with each table that has no class in boxes that scroll, as the theme's script has it."""

    def box(found: re.Match[str]) -> str:
        return BOXED.format(found[0].replace("<table>", '<table class="ws-plain">', 1))

    return TABLE.sub(box, text)


NAMED = re.compile(r"<(/?)(abbr|h[1-6]|a|summary|th)\b([^>]*)>")


def explain_once(text: str) -> str:
    """HTML that explains a term where it first stands below a heading of the second level.

    `abbr` marks each place, so that a page had one sentence twenty times, and the theme's script
    watches each title. Headings and links do not explain: a reader wants where they lead.
    """
    said = set[str]()
    inside, kept = 0, False  # headings and links around this place; is the open term marked?

    def choose(found: re.Match[str]) -> str:
        nonlocal inside, kept
        end, name, attributes = found.groups()
        if name != "abbr":
            inside += -1 if end else 1
            if name == "h2":
                said.clear()
            return found[0]
        if not end:
            kept = not inside and attributes not in said
            said.update([attributes] * kept)
        return found[0] if kept else ""

    return NAMED.sub(choose, text)


HEADERLINK = re.compile(r'(<a [^>]*?class="headerlink"[^>]*?) title=')


def label_links(text: str) -> str:
    """HTML whose marks of sections have their words for a screen reader alone, and no tooltip."""
    return HEADERLINK.sub(r"\1 aria-label=", text)


def set_formulas(text: str) -> str:
    """HTML with its formulas set; one that cannot be read stays TeX."""

    def set_formula(found: re.Match[str]) -> str:
        tag = found["tag"]
        shown = to_mathml(html.unescape(found["tex"]).strip())
        return f'<{tag} class="arithmatex">{shown}</{tag}>' if shown else found[0]

    return FORMULA.sub(set_formula, text)


@cache
def to_mathml(tex: str) -> str:
    r"""MathML of a formula between `\(` and `\)`, or `\[` and `\]`; "" for what is not TeX."""
    display = "block" if tex.startswith("\\[") else "inline"
    try:
        # The converter knows `aligned` by its other name.
        made = convert(tex[2:-2].replace("{aligned}", "{split}"), display=display)
    except Exception:  # those of the converter have no base of their own
        return ""
    return made.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
