"""A timeline of a calculator: who does what when, all configurations on one scale of time."""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.core.markup import attribute, escape
from warpshelf.live import labels, results
from warpshelf.live.labels import Plot
from warpshelf.render import svg
from warpshelf.render.svg import Scale

LEFT, RANK, GAP = 62.0, 22.0, 5.0  # room for names, height of a row, room between rows
SPAN = 720.0  # width of the longest
NARROW = 7.5  # width of a character in a box


def timeline(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """Who does what when, all configurations on one scale of time."""
    end = max((float(p[2]) for _, plot in pair for one in plot["series"] for p in one["points"]),
              default=0.0)  # fmt: skip
    return [_timeline(name, plot, end or 1.0) for name, plot in pair]


def _timeline(name: str, plot: Plot, end: float) -> str:
    series = plot["series"]
    rows = dict.fromkeys(str(point[0]) for one in series for point in one["points"])
    places = {row: index * (RANK + GAP) for index, row in enumerate(rows)}
    x = Scale(0, end, LEFT, LEFT + SPAN)
    parts = [svg.text(0, y + RANK / 2 + 4.5, svg.shortened(row, LEFT - 6))
             for row, y in places.items()]  # fmt: skip
    for index, one in enumerate(series):
        for row, start, stop, label in one["points"]:
            parts.append(_box(x(start), x(stop), places[str(row)], index, str(label)))
    foot = len(rows) * (RANK + GAP)
    unit = labels.unit_of(plot["x"])
    last = max((float(p[2]) for one in series for p in one["points"]), default=0.0)
    parts.append(svg.line(x(last), -2, x(last), foot, "ws-line"))
    shown = results.shown(last, unit)
    parts.append(svg.text(min(x(last), LEFT + SPAN - 20), foot + 12, shown, end="middle"))
    at = LEFT
    for index, one in enumerate(series):
        parts.append(_box(at, at + 16, foot + 24, index, ""))
        parts.append(svg.text(at + 22, foot + 40, str(one["name"])))
        at += 40 + len(str(one["name"])) * svg.TEXT * 0.55
    told = f"{len(rows)} rows, ends after {shown}; " + ", ".join(str(s["name"]) for s in series)
    title = labels.titled(name, plot)
    drawn = svg.picture((-4, LEFT + SPAN + 24, foot + 54), title, told, parts)
    caption = escape(f"{title}. {labels.axes_of(plot)}")
    return (
        '<figure class="ws-diagram ws-timeline"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={attribute(title)}>{drawn}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _box(left: float, right: float, y: float, index: int, words: str) -> str:
    filled = index % 2 == 0
    classes = f"ws-fill ws-s{index % 8}" if filled else f"ws-box ws-s{index % 8}"
    shape = (
        f'<rect x="{svg.at(left + 0.5)}" y="{svg.at(y + 0.7)}" '
        f'width="{svg.at(max(right - left - 1, 0.5))}" height="{svg.at(RANK - 1.4)}" '
        f'class="{classes}"/>'
    )
    if words and len(words) * NARROW <= right - left:
        kind = "ws-on ws-small" if filled else "ws-small"
        shape += svg.text((left + right) / 2, y + RANK / 2 + 4.2, words, end="middle", kind=kind)
    return shape
