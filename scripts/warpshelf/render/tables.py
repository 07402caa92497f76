"""Tables and folds, and the rates that times come to: what every table is written with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.records.schema import Record

FEW = 4  # rows of a table that stands open


def render_table(caption: str, head: Sequence[str], body: Iterable[str], kind: str) -> str:
    """A captioned table in a box of its own that scrolls sideways; `body` holds HTML rows.

    `caption` is plain text whose first line is the title. A search finds what a page says, and none
    of its tables' rows.
    """
    title, _, rest = caption.partition("\n")
    note = f"<br><span>{escape_markdown(rest)}</span>" if rest else ""
    # Spaces between cells keep words apart for the search index and for copied text.
    cells = " ".join(f'<th scope="col">{escape_markdown(name)}</th>' for name in head)
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={quote_attribute(title)}>'
        f'<table class="ws-table ws-{kind}" data-search-exclude="yes"><caption>'
        f"<strong>{escape_markdown(title)}</strong>{note}"
        f"</caption>\n<thead><tr>{cells}</tr></thead>\n" + "\n".join(body) + "\n</table></div>"
    )


def render_fold(answer: str, inner: str, rows: int, kind: str = "") -> str:
    """What folds under a line that gives the answer: open where it has but a few `rows`."""
    shown = " open" if rows <= FEW else ""
    classes = f"ws-fold ws-{kind}" if kind else "ws-fold"
    head = f'<details class="{classes}"{shown}><summary>{escape_markdown(answer)}</summary>'
    return f"{head}\n{inner}\n</details>"


def format_count(number: int, one: str, many: str = "") -> str:
    """A number of things, in words: `one case`, `22 cases`."""
    return f"one {one}" if number == 1 else f"{number} {many or one + 's'}"


def table_row(name: str, cells: Iterable[str], note: str = "", classes: str = "") -> str:
    """A table row: `name` and `note` are plain text, `cells` plain text as well."""
    extra = f" <small>{escape_markdown(note)}</small>" if note else ""
    opening = f'<tr class="{classes}">' if classes else "<tr>"
    rest = "".join(f" <td>{escape_markdown(cell)}</td>" for cell in cells)
    return f'{opening}<th scope="row">{escape_markdown(name)}{extra}</th>{rest}</tr>'


def spanning_row(name: str, text: str, columns: int, note: str = "") -> str:
    """A row whose one cell spans `columns`: a skip or a failure with its reason."""
    extra = f" <small>{escape_markdown(note)}</small>" if note else ""
    return (
        f'<tr class="ws-missing"><th scope="row">{escape_markdown(name)}{extra}</th> '
        f'<td colspan="{columns}">{escape_markdown(text)}</td></tr>'
    )


def row_group(name: str, rows: Iterable[str], columns: int) -> str:
    """Rows below a heading of their own, in a table of `columns`."""
    head = f'<tr><th scope="rowgroup" colspan="{columns}">{escape_markdown(name)}</th></tr>'
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def missing_reason(result: dict[str, Any]) -> str:
    """Why a result has no figures, in words; "" where it passed."""
    if result["verdict"] == "passed":
        return ""
    return f"{result['verdict']}: {result.get('reason') or 'no reason given'}"


def role_note(result: dict[str, Any]) -> str:
    """What stands beside the name of a result."""
    return "peer" if result["role"] == "peer" else ""


def timed_cases(record: Record) -> list[dict[str, Any]]:
    """The timed cases of a record."""
    return [case for case in record.get("cases", []) if case["timed"] and case["results"]]


def result_time(result: dict[str, Any]) -> dict[str, Any] | None:
    """The time of a result that passed and was timed."""
    return result.get("time") if result["verdict"] == "passed" else None


# Below this many FLOPs a byte every GPU since 2016 waits for its memory; used only where the
# record lacks a limit and cannot tell.
MEMORY_BOUND = 10.0
DRAWN = (1e-30, 1e30)  # rates beyond are nobody's, and no scale holds them


@dataclass(frozen=True)
class Bound:
    """What limits a case: `amount` bytes or FLOPs in `unit`, with the limits known for it."""

    amount: float
    unit: str  # "B/s" or "FLOP/s"
    ceiling: float | None = None  # measured in the same run
    peak: float | None = None  # of the data sheet

    def rate(self, seconds: object) -> float | None:
        """Units a second when the case takes `seconds`."""
        return units.safe_divide(self.amount, seconds)

    @property
    def quantity(self) -> str:
        """What is counted, in words."""
        return "Bytes" if self.unit == "B/s" else "FLOPs"

    def known_limits(self) -> list[tuple[str, str, float]]:
        """The limits known: the class of their line, words, and the rate."""
        known = (("ws-ceiling", "measured limit", self.ceiling), ("ws-peak", "peak", self.peak))
        return [
            (kind, f"{name} {units.format_rate(rate, self.unit)}", rate)
            for kind, name, rate in known
            if rate is not None and is_drawable(rate)
        ]


@dataclass(frozen=True)
class RatePoint:
    """One measured rate, with the rates at p80 and p20 of the time around it."""

    x: float
    rate: float
    low: float
    high: float


def is_drawable(rate: float) -> bool:
    """Whether a scale can hold `rate`."""
    return DRAWN[0] < rate < DRAWN[1]


def rate_point(x: float, limit: Bound, time: dict[str, Any] | None) -> RatePoint | None:
    """The rate that `time` means, at `x`; None where it was not measured or cannot be drawn."""
    if not time:
        return None
    rates = [limit.rate(time[key]) for key in ("median", "p80", "p20")]
    known = [rate for rate in rates if rate is not None and is_drawable(rate)]
    return RatePoint(x, *known) if len(known) == len(rates) else None


def case_bound(record: Record, case: dict[str, Any]) -> Bound | None:
    """What limits `case` on the record's machine; None where its cost is not stated."""
    size, flops = (
        units.finite_float(case.get("bytes")) or 0.0,
        units.finite_float(case.get("flops")) or 0.0,
    )
    ceilings, unit = record.get("ceilings", {}), case.get("unit", "")
    by_bytes = Bound(
        size,
        "B/s",
        units.finite_float(ceilings.get("copy_bytes_per_second")),
        units.finite_float(ceilings.get("peak_bytes_per_second")),
    )
    by_flops = Bound(
        flops,
        "FLOP/s",
        units.finite_float(ceilings.get("matrix_flops_per_second", {}).get(unit)),
        units.finite_float(ceilings.get("peak_flops_per_second", {}).get(unit)),
    )
    if size <= 0 or flops <= 0:
        return by_bytes if size > 0 else by_flops if flops > 0 else None
    for kind in ("peak", "ceiling"):
        waits = units.safe_divide(size, getattr(by_bytes, kind))
        works = units.safe_divide(flops, getattr(by_flops, kind))
        if waits is not None and works is not None:
            return by_bytes if waits >= works else by_flops
    return by_bytes if flops / size < MEMORY_BOUND else by_flops
