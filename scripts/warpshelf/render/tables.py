"""Tables and folds, and the rates that times come to: what every table is written with.

A browser runs it for calculators, so it imports core alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute

Case = dict[str, Any]  # of a record, as its results and their times are
Result = dict[str, Any]
Time = dict[str, Any]
FEW = 4  # rows of a table that stands open


class Html(str):
    """Markup that stands as it is, where any other text is escaped."""


class Cell(Html):
    """A whole cell of a row, or of the head of a table."""


def add_note(text: str, note: str = "") -> Html:
    """`text`, escaped unless it is Html, and after it a `note` in small print."""
    shown = text if isinstance(text, Html) else escape_markdown(text)
    return Html(shown + (f" <small>{escape_markdown(note)}</small>" if note else ""))


def make_cell(text: str, note: str = "", attributes: str = "") -> Cell:
    """A cell of a row; `attributes` start with a space."""
    # Spaces between cells keep words apart for the search index and for copied text.
    return Cell(f" <td{attributes}>{add_note(text, note)}</td>")


def table_row(
    name: str, cells: Iterable[str], note: str = "", attributes: str = "", head: str = ""
) -> str:
    """A row: its name with a note, then cells: what is no Cell becomes one."""
    rest = "".join(cell if isinstance(cell, Cell) else make_cell(cell) for cell in cells)
    return f'<tr{attributes}><th scope="row"{head}>{add_note(name, note)}</th>{rest}</tr>'


def spanning_row(name: str, text: str, columns: int, note: str = "") -> str:
    """A row whose one cell spans `columns`: a skip or a failure with its reason."""
    cell = make_cell(text, attributes=f' colspan="{columns}"')
    return table_row(name, [cell], note, ' class="ws-missing"')


def row_group(name: str, rows: Iterable[str], columns: int) -> str:
    """Rows below a heading of their own, in a table of `columns`."""
    head = f'<tr><th scope="rowgroup" colspan="{columns}">{add_note(name)}</th></tr>'
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def render_table(
    caption: str, head: Iterable[str], body: Sequence[str], kind: str, *, searched: bool = False
) -> str:
    """A captioned table in a box of its own that scrolls sideways.

    The first line of `caption` is the title. `head` has names, or Cells; `body` has rows,
    or groups of them. A search finds none of its rows unless it is `searched`.
    """
    title, _, rest = caption.partition("\n")
    note = f"<br><span>{escape_markdown(rest)}</span>" if rest else ""
    cells = " ".join(
        one if isinstance(one, Cell) else f'<th scope="col">{add_note(one)}</th>' for one in head
    )
    if body and not body[0].startswith("<tbody>"):
        body = ["<tbody>", *body, "</tbody>"]
    unsearched = "" if searched else ' data-search-exclude="yes"'
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={quote_attribute(title)}>'
        f'<table class="ws-table ws-{kind}"{unsearched}><caption>'
        f"<strong>{escape_markdown(title)}</strong>{note}"
        f"</caption>\n<thead><tr>{cells}</tr></thead>\n" + "\n".join(body) + "\n</table></div>"
    )


def render_fold(answer: str, inner: str, kind: str = "", rows: int | None = None) -> str:
    """Content folded under a line that gives the answer; open if it has only a few `rows`."""
    classes = f"ws-fold ws-{kind}" if kind else "ws-fold"
    shown = " open" if rows is not None and rows <= FEW else ""
    head = f'<details class="{classes}"{shown}><summary>{add_note(answer)}</summary>'
    return f"{head}\n{inner}\n</details>"


def format_count(number: int, one: str) -> str:
    """A number of things, in words: `one case`, `22 cases`."""
    return f"one {one}" if number == 1 else f"{number} {one}s"


def label_cases(cases: Sequence[Case]) -> list[tuple[str, Case]]:
    """Each case with a label that tells it from the others."""
    return list(zip(units.case_labels([case["case"] for case in cases]), cases, strict=True))


def missing_reason(result: Result) -> str:
    """Why a result has no figures, in words; "" where it passed."""
    if result["verdict"] == "passed":
        return ""
    return f"{result['verdict']}: {result.get('reason') or 'no reason given'}"


def mark_peer(role: str) -> str:
    """The mark after the name of a peer in a line of text."""
    return " (peer)" if role == "peer" else ""


def note_peer(role: str) -> str:
    """The small print beside the name of a peer in a table."""
    return "peer" if role == "peer" else ""


def timed_cases(record: Mapping[str, Any]) -> list[Case]:
    """The timed cases of a record."""
    return [case for case in record.get("cases", []) if case["timed"] and case["results"]]


def result_time(result: Result) -> Time | None:
    """The time of a result that passed and was timed."""
    return result.get("time") if result["verdict"] == "passed" else None


def timed_results(case: Case) -> list[tuple[Result, Time]]:
    """The results of a case that have a time."""
    return [(one, time) for one in case["results"] if (time := result_time(one))]


# Below this many FLOPs a byte every GPU since 2016 waits for its memory; used only where the
# record lacks a limit and cannot tell.
MEMORY_BOUND = 10.0
DRAWN = (1e-30, 1e30)  # rates beyond are nobody's, and no scale holds them
COUNTED = {"B/s": "Bytes", "FLOP/s": "FLOPs"}  # what is counted in a rate


class Bound(NamedTuple):
    """What limits a case: `amount` bytes or FLOPs in `unit`, with the limits known for it."""

    amount: float
    unit: str  # "B/s" or "FLOP/s"
    ceiling: float | None = None  # measured in the same run
    peak: float | None = None  # of the data sheet

    def rate(self, seconds: object) -> float | None:
        """Units a second when the case takes `seconds`."""
        return units.safe_divide(self.amount, seconds)

    def known_limits(self) -> list[tuple[str, str, float]]:
        """The limits known: the class of their line, words, and the rate."""
        known = (("ws-ceiling", "measured limit", self.ceiling), ("ws-peak", "peak", self.peak))
        return [
            (kind, f"{name} {units.format_rate(rate, self.unit)}", rate)
            for kind, name, rate in known
            if rate is not None and DRAWN[0] < rate < DRAWN[1]
        ]


class RatePoint(NamedTuple):
    """One measured rate, with the rates at p80 and p20 of the time around it."""

    x: float
    rate: float
    low: float
    high: float


def rate_point(x: float, limit: Bound, time: Time | None) -> RatePoint | None:
    """The rate that `time` means, at `x`; None where it was not measured or cannot be drawn."""
    rates = [limit.rate(time[key]) for key in ("median", "p80", "p20")] if time else []
    known = [rate for rate in rates if rate is not None and DRAWN[0] < rate < DRAWN[1]]
    return RatePoint(x, *known) if len(known) == 3 else None


def case_cost(case: Case, unit: str) -> Bound:
    """What is counted of `case` in `unit`, without a limit."""
    return Bound(units.finite_float(case.get(COUNTED.get(unit, "").lower())) or 0.0, unit)


def case_bounds(record: Mapping[str, Any], case: Case) -> tuple[Bound, Bound]:
    """What limits `case` on the record's machine by its bytes, and by its FLOPs."""
    finite, limits, unit = units.finite_float, record.get("ceilings", {}), case.get("unit", "")
    size, flops = (finite(case.get(key)) or 0.0 for key in ("bytes", "flops"))
    speeds = (finite(limits.get(f"{kind}_bytes_per_second")) for kind in ("copy", "peak"))
    rates = (
        finite(limits.get(f"{kind}_flops_per_second", {}).get(unit)) for kind in ("matrix", "peak")
    )
    return Bound(size, "B/s", *speeds), Bound(flops, "FLOP/s", *rates)


def case_bound(record: Mapping[str, Any], case: Case) -> Bound | None:
    """What limits `case`, of both; None where its cost is not stated."""
    by_bytes, by_flops = case_bounds(record, case)
    size, flops = by_bytes.amount, by_flops.amount
    if size <= 0 or flops <= 0:
        return by_bytes if size > 0 else by_flops if flops > 0 else None
    for bandwidth, rate in ((by_bytes.peak, by_flops.peak), (by_bytes.ceiling, by_flops.ceiling)):
        waits, works = units.safe_divide(size, bandwidth), units.safe_divide(flops, rate)
        if waits is not None and works is not None:
            return by_bytes if waits >= works else by_flops
    return by_bytes if flops / size < MEMORY_BOUND else by_flops
