"""Running sums of everything: how far a tile looks back, what it reads, and what is refused."""

from __future__ import annotations

import struct

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import papergpu  # noqa: E402
from papergpu.counters import profile_launches  # noqa: E402

from snippets.prefix_scan import prefix_scan  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WAYS = ("alone", "in shares", "look back")
SIZE = prefix_scan.TILE.value


def make_word(total: float, kind: int) -> int:
    """What a tile tells: a float64 with what it is in its two lowest bits."""
    (word,) = struct.unpack("<q", struct.pack("<d", total))
    return word & ~3 | kind


@pytest.mark.parametrize("known", [0, 3, 38, 39, 40, 69])
def test_a_tile_looks_back_to_the_first_sum_that_is_known(known: int) -> None:
    """The last of 71 tiles alone, where those before it have told their sums."""
    own, up_to, tiles = 1, 2, 71
    sums = [float(i + 1) for i in range(tiles)]  # of ones, each tile with a larger first
    x = torch.ones(tiles * SIZE, device=DEVICE)
    words = [make_word(each, own) for each in sums[:-1]]
    for tile in (0, known):
        words[tile] = make_word(sum(sums[: tile + 1]), up_to)
    work = torch.tensor([tiles - 1, *words, 0], device=DEVICE)
    y = torch.full_like(x, -1)
    prefix_scan.scan_once[(1,)](y, work, x, len(x), num_warps=prefix_scan.WARPS)
    before = sum(sums[:-1])
    assert work[0] == tiles and work[-1] == make_word(before + SIZE, up_to)
    assert torch.equal(y[-SIZE:], before + torch.arange(1, SIZE + 1, device=DEVICE))
    assert bool((y[:-SIZE] == -1).all())


def test_words_keep_what_they_are_apart_from_any_sum() -> None:
    """Sums whose float64 uses its lowest bits, which are a word's for what it is."""
    x = torch.full((4 * SIZE,), 2.0**-40, device=DEVICE)
    x[::SIZE] = 1e4 / 3
    y = prefix_scan.scan(x).double()
    wanted = x.double().cumsum(0)
    assert bool(((y - wanted).abs() <= 1e-6 * wanted).all())


@pytest.mark.parametrize("way", WAYS)
def test_infinities_and_nan_go_no_further_than_additions_carry_them(way: str) -> None:
    for first, then in ((float("inf"), 1.0), (float("nan"), 1.0), (-float("inf"), 5.0)):
        x = torch.ones(2 * SIZE + 5, device=DEVICE)
        x[SIZE - 2], x[SIZE + 7] = first, then
        y = prefix_scan.scan(x, way)
        assert torch.equal(y[: SIZE - 2], x[: SIZE - 2].cumsum(0))
        rest = y[SIZE - 2 :]
        assert bool(rest.isnan().all() if first != first else (rest == first).all())


@pytest.mark.parametrize("n", [0, 1, SIZE - 1, SIZE, SIZE + 1])
def test_of_nothing_of_one_and_about_a_tile(n: int) -> None:
    x = torch.ones(2 * n, device=DEVICE)[::2]
    for way in WAYS:
        assert prefix_scan.scan(x, way).tolist() == list(range(1, n + 1))


def count_bytes(launched: papergpu.Launched) -> int:
    """To and from device memory, in sectors of 32 bytes."""
    counts = profile_launches([(launched.program, launched.result.counts)])
    return 32 * counts.total.sectors


@pytest.mark.skipif(DEVICE == "cuda", reason="counted on a CPU")
def test_looking_back_moves_8_bytes_an_element_and_shares_12() -> None:
    n, moved = 16 * SIZE, {}
    for way in WAYS:
        found: list[papergpu.Launched] = []
        alone = {"profile": True, "threads": 1, "schedule": "far"}  # one tile after the other
        with papergpu.settings(**alone), papergpu.on_launch(found.append):
            prefix_scan.scan(torch.ones(n), way)
        moved[way] = sum(count_bytes(one) for one in found) / n
    assert moved["alone"] == 8 and 12 <= moved["in shares"] < 12.1
    assert 8 < moved["look back"] <= 8.1


@pytest.mark.parametrize(
    ("x", "way", "error", "said"),
    [
        (torch.ones(3), "sideways", ValueError, "way 'sideways' is none of alone"),
        (torch.ones(2, 3), "look back", ValueError, r"x is \(2, 3\) on cpu; give a list"),
        (torch.ones(3).to("meta"), "look back", ValueError, r"x is \(3,\) on meta"),
        (torch.ones(3).long(), "look back", TypeError, "torch.int64 is none of float32"),
    ],
)
def test_refuses_in_one_clear_line(x: torch.Tensor, way: str, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^prefix_scan: {said}") as raised:
        prefix_scan.scan(x, way)
    assert "\n" not in str(raised.value)
