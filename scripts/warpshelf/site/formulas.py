"""Formulas of built pages: the TeX that arithmatex leaves becomes MathML, which needs no script."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">(?P<tex>.*?)</(?P=tag)>', re.DOTALL)


def set_site_formulas(folder: Path) -> None:
    """Set the formulas of every page below `folder`."""
    for path in folder.rglob("*.html"):
        set_page_formulas(path)


def set_page_formulas(path: Path) -> None:
    """Set the formulas of one page."""
    text = path.read_text(encoding="utf-8")
    if (ready := set_formulas(text)) != text:
        path.write_text(ready, encoding="utf-8")


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
