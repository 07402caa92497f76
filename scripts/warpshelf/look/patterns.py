"""How the lanes of a warp address memory, in words: `4 runs of 8 lanes side by side, …`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from warpshelf.look.view import LANES

WORD, BANKS = 4, 32  # bytes that a bank gives at once, and how many banks there are
SECTOR = 32  # bytes

Access = dict[str, Any]  # as a view's `accesses` have it


def describe_pattern(access: Access) -> str:
    """Where the lanes of a request lie, and why it takes more passes than it must, if it does."""
    addresses, size = access["addresses"], access["size"]
    parts = [_describe_steps([one for one in addresses if one is not None], size)]
    taking = sum(one is not None for one in addresses)
    if taking < LANES:
        parts.insert(0, f"{taking} of {LANES} lanes")
    if access["passes"] > access["ideal"]:
        parts.append(
            _describe_banks(access) if access["space"] == "shared" else _describe_sectors(access)
        )
    return ", ".join(parts)


def _describe_steps(addresses: Sequence[int], size: int) -> str:
    """Steps from lane to lane: one for all, or one inside runs of lanes and one between them."""
    count = len(addresses)
    if count < 2:
        return "one address"
    steps = [after - before for before, after in zip(addresses, addresses[1:], strict=False)]
    if len(set(steps)) == 1:
        return _describe_stride(steps[0], size)
    for length in (2, 4, 8, 16):
        inside = {step for at, step in enumerate(steps) if (at + 1) % length}
        between = {one - addresses[0] for one in addresses[length::length]}
        far = addresses[length] - addresses[0] if length < count else 0
        regular = {far * at for at in range(1, -(-count // length))}
        if count % length == 0 and len(inside) == 1 and between == regular:
            stride = _describe_stride(inside.pop(), size)
            said = f"{count // length} runs of {length} lanes, each {stride}"
            return f"{said}, {_describe_gap(far)}" if count > length else said
    different = len(set(addresses))
    return f"{different} addresses without one stride"


def _describe_stride(step: int, size: int) -> str:
    if step == 0:
        return "at one address"
    return "side by side" if step == size else f"at a stride of {step:,} bytes"


def _describe_gap(step: int) -> str:
    return "all from one address" if step == 0 else f"{abs(step):,} bytes apart"


def _requested_words(access: Access) -> Iterator[int]:
    """The words that are asked for, by number, once for each lane that asks."""
    for one in access["addresses"]:
        if one is not None:
            yield from range(one // WORD, (one + access["size"] - 1) // WORD + 1)


def _describe_banks(access: Access) -> str:
    """Who gives them: the bank that has most different words to give takes as many passes."""
    given: dict[int, set[int]] = {}
    for word in _requested_words(access):
        given.setdefault(word % BANKS, set()).add(word)
    bank, most = min(given, key=lambda one: (-len(given[one]), one)), max(map(len, given.values()))
    if len(given) == 1:
        return f"all lanes in bank {bank}"
    return f"{len(given)} of {BANKS} banks used, bank {bank} has {most} different words to give"


def _describe_sectors(access: Access) -> str:
    asked = set(_requested_words(access))
    sectors = {WORD * word // SECTOR for word in asked}
    held = len(sectors) * SECTOR // WORD
    return f"{len(asked)} of the {held} words of {len(sectors)} sectors used"
