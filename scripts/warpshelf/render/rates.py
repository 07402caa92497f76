"""What limits a case, and what a measured time means against those limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record

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
        return units.divided(self.amount, seconds)

    @property
    def quantity(self) -> str:
        """What is counted, in words."""
        return "Bytes" if self.unit == "B/s" else "FLOPs"

    def limits(self) -> list[tuple[str, str, float]]:
        """The limits known: the class of their line, words, and the rate."""
        known = (("ws-ceiling", "measured limit", self.ceiling), ("ws-peak", "peak", self.peak))
        return [
            (kind, f"{name} {units.rate(rate, self.unit)}", rate)
            for kind, name, rate in known
            if rate is not None and drawable(rate)
        ]


@dataclass(frozen=True)
class Point:
    """One measured rate, with the rates at p80 and p20 of the time around it."""

    x: float
    rate: float
    low: float
    high: float


def drawable(rate: float) -> bool:
    """Whether a scale can hold `rate`."""
    return DRAWN[0] < rate < DRAWN[1]


def point(x: float, limit: Bound, time: dict[str, Any] | None) -> Point | None:
    """The rate that `time` means, at `x`; None where it was not measured or cannot be drawn."""
    if not time:
        return None
    rates = [limit.rate(time[key]) for key in ("median", "p80", "p20")]
    known = [rate for rate in rates if rate is not None and drawable(rate)]
    return Point(x, *known) if len(known) == len(rates) else None


def bound(record: Record, case: dict[str, Any]) -> Bound | None:
    """What limits `case` on the record's machine; None where its cost is not stated."""
    size, flops = units.finite(case.get("bytes")) or 0.0, units.finite(case.get("flops")) or 0.0
    ceilings, unit = record.get("ceilings", {}), case.get("unit", "")
    by_bytes = Bound(
        size,
        "B/s",
        units.finite(ceilings.get("copy_bytes_per_second")),
        units.finite(ceilings.get("peak_bytes_per_second")),
    )
    by_flops = Bound(
        flops,
        "FLOP/s",
        units.finite(ceilings.get("matrix_flops_per_second", {}).get(unit)),
        units.finite(ceilings.get("peak_flops_per_second", {}).get(unit)),
    )
    if size <= 0 or flops <= 0:
        return by_bytes if size > 0 else by_flops if flops > 0 else None
    for kind in ("peak", "ceiling"):
        waits = units.divided(size, getattr(by_bytes, kind))
        works = units.divided(flops, getattr(by_flops, kind))
        if waits is not None and works is not None:
            return by_bytes if waits >= works else by_flops
    return by_bytes if flops / size < MEMORY_BOUND else by_flops
