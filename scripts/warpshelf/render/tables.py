"""The tables of a record as HTML: their rows, their box, and the folds that they stand in.

Every table here is one HTML block without blank lines. The caller decides whether a record may be
shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.core.markup import attribute, escape
from warpshelf.records.schema import Record

FEW = 4  # rows of a table that stands open


def table(caption: str, head: Sequence[str], body: Iterable[str], kind: str) -> str:
    """A captioned table in a box of its own that scrolls sideways; `body` holds HTML rows.

    `caption` is plain text whose first line is the title.
    """
    title, _, rest = caption.partition("\n")
    note = f"<br><span>{escape(rest)}</span>" if rest else ""
    # Spaces between cells keep words apart for the search index and for copied text.
    cells = " ".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={attribute(title)}>'
        f'<table class="ws-table ws-{kind}"><caption><strong>{escape(title)}</strong>{note}'
        f"</caption>\n<thead><tr>{cells}</tr></thead>\n" + "\n".join(body) + "\n</table></div>"
    )


def fold(answer: str, inner: str, rows: int, kind: str = "") -> str:
    """What folds under a line that gives the answer: open where it has but a few `rows`."""
    shown = " open" if rows <= FEW else ""
    classes = f"ws-fold ws-{kind}" if kind else "ws-fold"
    head = f'<details class="{classes}"{shown}><summary>{escape(answer)}</summary>'
    return f"{head}\n{inner}\n</details>"


def count(number: int, one: str, many: str = "") -> str:
    """A number of things, in words: `one case`, `22 cases`."""
    return f"one {one}" if number == 1 else f"{number} {many or one + 's'}"


def row(name: str, cells: Iterable[str], note: str = "", classes: str = "") -> str:
    """A table row: `name` and `note` are plain text, `cells` plain text as well."""
    extra = f" <small>{escape(note)}</small>" if note else ""
    opening = f'<tr class="{classes}">' if classes else "<tr>"
    rest = "".join(f" <td>{escape(cell)}</td>" for cell in cells)
    return f'{opening}<th scope="row">{escape(name)}{extra}</th>{rest}</tr>'


def wide(name: str, text: str, columns: int, note: str = "") -> str:
    """A row whose one cell spans `columns`: a skip or a failure with its reason."""
    extra = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<tr class="ws-missing"><th scope="row">{escape(name)}{extra}</th> '
        f'<td colspan="{columns}">{escape(text)}</td></tr>'
    )


def group(name: str, rows: Iterable[str], columns: int) -> str:
    """Rows below a heading of their own, in a table of `columns`."""
    head = f'<tr><th scope="rowgroup" colspan="{columns}">{escape(name)}</th></tr>'
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def missing(result: dict[str, Any]) -> str:
    """Why a result has no figures, in words; "" where it passed."""
    if result["verdict"] == "passed":
        return ""
    return f"{result['verdict']}: {result.get('reason') or 'no reason given'}"


def note_of(result: dict[str, Any]) -> str:
    """What stands beside the name of a result."""
    return "peer" if result["role"] == "peer" else ""


def timed(record: Record) -> list[dict[str, Any]]:
    """The timed cases of a record."""
    return [case for case in record.get("cases", []) if case["timed"] and case["results"]]


def time_of(result: dict[str, Any]) -> dict[str, Any] | None:
    """The time of a result that passed and was timed."""
    return result.get("time") if result["verdict"] == "passed" else None
