"""What a reader sees of HTML, for tests of what is rendered."""

from __future__ import annotations

import re
from html import unescape


def plain_words(html: str) -> str:
    """The text between all tags, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def table_rows(html: str) -> list[list[str]]:
    """The words in each cell, row by row."""
    found = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [[plain_words(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in found]
