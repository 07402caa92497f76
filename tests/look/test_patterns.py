"""How lanes address memory, in words."""

from __future__ import annotations

from typing import Any

import pytest

from warpshelf.look.view import describe_pattern

LANES = range(32)


def access(addresses: list[int | None], size: int = 4, **more: object) -> dict[str, Any]:
    plain = {"space": "global", "passes": 4, "ideal": 4, "size": size}
    return {**plain, "addresses": addresses, **more}


@pytest.mark.parametrize(
    ("addresses", "size", "said"),
    [
        ([4 * lane for lane in LANES], 4, "side by side"),
        ([16 * lane for lane in LANES], 16, "side by side"),
        ([4096 * lane for lane in LANES], 4, "at a stride of 4,096 bytes"),
        ([64] * 32, 4, "at one address"),
        (
            [4096 * (lane // 8) + 4 * (lane % 8) for lane in LANES],
            4,
            "4 runs of 8 lanes, each side by side, 4,096 bytes apart",
        ),
        (
            [16 * (lane // 2) for lane in LANES],
            4,
            "16 runs of 2 lanes, each at one address, 16 bytes apart",
        ),
        (
            [4 * (lane % 16) for lane in LANES],
            4,
            "2 runs of 16 lanes, each side by side, all from one address",
        ),
        ([lane * lane for lane in LANES], 1, "32 addresses without one stride"),
        ([8, *[None] * 31], 4, "1 of 32 lanes, one address"),
        ([4 * lane if lane < 17 else None for lane in LANES], 4, "17 of 32 lanes, side by side"),
    ],
)
def test_steps_are_said(addresses: list[int | None], size: int, said: str) -> None:
    assert describe_pattern(access(addresses, size)) == said


def test_what_makes_it_worse_is_said() -> None:
    apart = [128 * lane for lane in LANES]
    shared = access(apart, space="shared", passes=32, ideal=1)
    assert describe_pattern(shared) == "at a stride of 128 bytes, all lanes in bank 0"
    twice = access([8 * lane for lane in LANES], space="shared", passes=2, ideal=1)
    assert describe_pattern(twice).endswith(
        "16 of 32 banks used, bank 0 has 2 different words to give"
    )
    naive = access([32 * lane for lane in LANES], passes=32, ideal=4)
    assert describe_pattern(naive).endswith("32 of the 256 words of 32 sectors used")
