"""The answer of a calculator as HTML: one sentence, the lines that it rests on, plots and notes.

One result, or two that are set side by side. All text is escaped; none of it can act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpshelf.core.markup import attribute, escape
from warpshelf.live import charts, results

FIRST, SECOND = "first", "second"
MANY = 10  # published rows from which on nine in ten are something


def names_of(count: int) -> tuple[str, ...]:
    """What the results are called: nothing where there is but one."""
    return ("",) if count == 1 else (FIRST, SECOND)


def answers(found: Sequence[Mapping[str, Any]]) -> str:
    """The sentence that each of one or two results comes to."""
    names = names_of(len(found))
    heads = (f"<strong>{name}</strong> " if name else "" for name in names)
    return "\n".join(
        f'<p class="ws-calc-answer">{head}{escape(result["answer"])}</p>'
        for head, result in zip(heads, found, strict=True)
    )


def details(found: Sequence[Mapping[str, Any]], context: Mapping[str, Any], root: str) -> str:
    """What error to expect of one or two results, their lines, plots and notes.

    `context` has the titles and places of sources, the place of the tests and the bands of error;
    `root` leads from the page to the site's own address.
    """
    names = names_of(len(found))
    plots = charts.figures([result.get("plots") or () for result in found], names)
    bands = dict.fromkeys(band(result, context) for result in found)
    parts = [
        *(f'<p class="ws-calc-band">{escape(words)}</p>' for words in bands if words),
        _table(found, names, context, root),
        '<div class="ws-plots">\n' + "\n".join(plots) + "\n</div>" if plots else "",
        _notes(found),
    ]
    return "\n".join(part for part in parts if part)


def band(result: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """How far such a prediction was off where it could be compared, in words; "" where unknown."""
    named = result.get("band")
    if not named:
        return ""
    known = context.get("bands", {}).get(named["set"])
    if known is None:
        return f"No current record compares it with {named['set']}."
    half, most, worst = (f"{100 * known[key]:.1f} %" for key in ("half", "most", "worst"))
    between = f", nine in ten within {most}" if known["count"] >= MANY else ""
    return (
        f"Error to expect: of the {known['count']} published rows of {named['set']}, half were "
        f"predicted within {half}{between}, all within {worst}."
    )


def _table(
    found: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    context: Mapping[str, Any],
    root: str,
) -> str:
    heads = ["Quantity", *(("Value",) if len(found) == 1 else ("First", "Second", "Ratio"))]
    cells = " ".join(f'<th scope="col">{head}</th>' for head in heads)
    bodies = []
    for rows in results.paired(found):
        one = next(row for row in rows if row)
        shown = ["none" if row is None else results.shown(row["value"], row["unit"])
                 for row in rows]  # fmt: skip
        if len(rows) == 2:
            first, second = rows
            shown.append(results.against(second["value"], first["value"])
                         if first and second else "")  # fmt: skip
        values = "".join(f" <td>{escape(value)}</td>" for value in shown)
        bodies.append(
            f'<tbody><tr><th scope="row">{escape(one["name"])}</th>{values}</tr>\n'
            f'<tr class="ws-calc-how"><td colspan="{len(heads)}">'
            f"<div>{_how(one, context, root)}</div></td></tr></tbody>"
        )
    title = "What it comes to"
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={attribute(title)}>'
        f'<table class="ws-table ws-calc-table"><caption><strong>{title}</strong></caption>\n'
        f"<thead><tr>{cells}</tr></thead>\n" + "\n".join(bodies) + "\n</table></div>"
    )


def _how(row: Mapping[str, Any], context: Mapping[str, Any], root: str) -> str:
    """Formula, source and test of a line."""
    parts = [f"<code>{escape(row['formula'])}</code>"] if row["formula"] else []
    if row["source"]:
        parts.append(f"from {_source(str(row['source']), context, root)}")
    if row["test"]:
        place = context.get("page")
        test = escape(row["test"])
        linked = f"<a href={attribute(root + place)}>{test}</a>" if place else test
        parts.append(f"held by {linked}")
    return "; ".join(parts)


def _source(name: str, context: Mapping[str, Any], root: str) -> str:
    known = context.get("sources", {}).get(name)
    if known is None:
        return escape(name)
    title, place = known
    return f"<a href={attribute(root + place)}>{escape(title)}</a>"


def _notes(found: Sequence[Mapping[str, Any]]) -> str:
    notes = dict.fromkeys(str(note) for result in found for note in result.get("notes") or ())
    if not notes:
        return ""
    items = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="ws-calc-notes">\n{items}\n</ul>'
