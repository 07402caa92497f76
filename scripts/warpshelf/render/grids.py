"""Tables of small cells as pictures: which lane meets which bank, which chunk is where.

A record's `grids` enter, their pictures leave. A cell says in text what its colour says, so that
nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warpshelf.core.markup import attribute, escape
from warpshelf.render import svg

HEIGHT = 21.0  # of a cell
CHARACTER = 7.6  # width of a digit, at most
PADDING = 9.0  # of a cell, both sides together
LEAST = 20.0  # width of a cell


def pictures(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The picture of each row of a record's `grids`, by its name."""
    return {row["name"]: figure(row) for row in rows}


def figure(row: dict[str, Any]) -> str:
    """One grid with its axes, its legend and its caption."""
    columns, rows = row["columns"], row["rows"]
    longest = max(len(cell[0]) for line in row["cells"] for cell in line)
    longest = max(longest, *(len(name) for name in columns))
    wide = max(LEAST, PADDING + CHARACTER * longest)
    left = 12 + CHARACTER * max(len(name) for name in rows)
    right = left + wide * len(columns)
    foot = HEIGHT * len(rows)
    parts = [
        svg.text(left + wide * (x + 0.5), -7, name, end="middle", kind="ws-small ws-faint")
        for x, name in enumerate(columns)
    ]
    axes = f"{row['down']} ↓ · {row['across']} →"
    parts.append(svg.text(0, -25, axes, kind="ws-small ws-faint"))
    for y, (name, line) in enumerate(zip(rows, row["cells"], strict=True)):
        base = HEIGHT * (y + 0.5) + 4.7
        parts.append(svg.text(left - 8, base, name, end="end", kind="ws-small ws-faint"))
        for x, (words, colour) in enumerate(line):
            parts.append(_cell(left + wide * x, HEIGHT * y, wide, words, colour))
    below, foot = _legend(row.get("legend", ()), foot + 20)
    parts += below
    said = [axes, *(f"    {words}" for _, words in row.get("legend", ()))]
    width = max(right + 2, *(CHARACTER * len(words) for words in said))
    box = (-40.0, width, foot + 40)
    return (
        '<figure class="ws-diagram ws-grids"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={attribute(row["caption"])}>'
        + svg.picture(box, row["caption"], _told(row), parts, style=f"width:{svg.at(width)}px")
        + f"</div><figcaption>{escape(row['caption'])}</figcaption></figure>\n"
    )


def _cell(x: float, y: float, width: float, words: str, colour: int) -> str:
    kind = "ws-line ws-cell" if colour < 0 else f"ws-box ws-s{colour}"
    shape = (
        f'<rect x="{svg.at(x + 0.7)}" y="{svg.at(y + 0.7)}" width="{svg.at(width - 1.4)}" '
        f'height="{svg.at(HEIGHT - 1.4)}" class="{kind}" fill="none" stroke="currentColor"/>'
    )
    if words:
        shape += svg.text(x + width / 2, y + HEIGHT / 2 + 4.4, words, end="middle", kind="ws-small")
    return shape


def _legend(entries: Iterable[tuple[int, str]], y: float) -> tuple[list[str], float]:
    parts: list[str] = []
    for colour, words in entries:
        parts.append(
            f'<rect x="1" y="{svg.at(y - 10.5)}" width="14" height="14" '
            f'class="ws-box ws-s{colour}" fill="none" stroke="currentColor"/>'
        )
        parts.append(svg.text(22, y, words, kind="ws-small"))
        y += svg.LINE
    return parts, y - 14 if parts else y - 18


def _told(row: dict[str, Any]) -> str:
    """The cells in words, for who cannot see the picture."""
    lines = []
    for name, cells in zip(row["rows"], row["cells"], strict=True):
        said = " ".join(words or "-" for words, _ in cells)
        lines.append(f"{row['down']} {name}: {said}.")
    return f"By {row['across']} {row['columns'][0]} to {row['columns'][-1]}. {' '.join(lines)}"
