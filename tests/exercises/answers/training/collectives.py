"""What collectives cost, from their own messages."""

from __future__ import annotations

from math import frexp
from typing import NamedTuple

from snippets.ring_steps import ring_steps as steps


def bytes_of_a_ring() -> tuple[str, str]:
    made = steps.ring(16)
    (sent,) = set(made.sent(4_000_000_000))
    return f"{sent / 1e9:.1f} GB", f"{sent / 50e9 * 1e3:.0f} ms"


def where_latency_is_half() -> str:
    made, latency, rate = steps.ring(256), 10e-6, 50e9
    waiting, known = made.time(0, latency, rate), 2**30
    sending = made.time(known, latency, rate) - waiting  # in proportion to the size
    return f"{known * waiting / sending / 1e6:.0f} MB"


def ring_against_halving() -> tuple[str, str]:
    ways = (steps.ring(64), steps.halving(64))
    first, second = (made.time(16_000_000, 5e-6, 50e9) * 1e6 for made in ways)
    return f"{first:,.0f} µs", f"{second:,.0f} µs"


def bus_bandwidth() -> tuple[str, str]:
    size, seconds, n = 2**30, 4.5e-3, 8
    bus = size / seconds * max(steps.ring(n).sent(size)) / size
    return f"{bus / 1e9:.0f} GB/s", f"{100 * bus / 450e9:.0f} %"


class _Bf16(NamedTuple):
    value: float

    def __add__(self, other: object) -> _Bf16:
        assert isinstance(other, _Bf16)
        total = self.value + other.value
        unit = 2.0 ** (frexp(total)[1] - 8)  # eight bits, the first of them implied
        return _Bf16(round(total / unit) * unit)  # halves go to the even one


def the_order_of_a_sum() -> str:
    parts = [[_Bf16(first)] * 4 for first in (256.0, 1.0, 1.0, 1.0)]
    (*some, last) = (f"{one.value:.0f}" for one in steps.ring(4).run(parts)[-1][0])
    return f"{', '.join(some)} and {last}"
