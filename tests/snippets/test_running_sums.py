"""Scans: sums of everything before, and with gates."""

from __future__ import annotations

import struct

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import papergpu  # noqa: E402
from papergpu.counters import profile_launches  # noqa: E402

from snippets.gated_scan import gated_scan  # noqa: E402
from snippets.prefix_scan import prefix_scan  # noqa: E402

# prefix_scan: how far a tile looks back, what it reads, and what is refused.

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
def test_prefix_scan_refuses_in_one_clear_line(
    x: torch.Tensor, way: str, error: type, said: str
) -> None:
    with pytest.raises(error, match=f"^prefix_scan: {said}") as raised:
        prefix_scan.scan(x, way)
    assert "\n" not in str(raised.value)


# gated_scan: what their cases, which call kernels, cannot see.

N = 9000  # several tiles, the last of them ragged


def draw_numbers(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def make_offsets(*cuts: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(cuts, dtype=dtype, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_the_rules_of_operators() -> None:
    x, gates = draw_numbers(40).requires_grad_(), draw_numbers(40, seed=1).requires_grad_()
    cuts = make_offsets(0, 7, 7, 40)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for told in ((x, gates, cuts, False), (x, None, None, True)):
        torch.library.opcheck(gated_scan.gated_scan, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("cut", [None, (0, 11, 11, 2048, 4095, N), (5, 7000)])
def test_gradients_of_a_scan_are_those_of_a_float64_twin(gated: bool, cut) -> None:
    x, dh = draw_numbers(N), draw_numbers(N, seed=1)
    gates = draw_numbers(N, seed=2).abs().clamp(max=1) if gated else None
    cuts = None if cut is None else make_offsets(*cut, dtype=torch.int64)
    mine = [each.clone().requires_grad_() for each in (x, gates) if each is not None]
    h = gated_scan.scan(mine[0], mine[1] if gated else None, cuts)
    found = torch.autograd.grad(h, mine, dh)
    twins = [each.detach().double().requires_grad_() for each in mine]
    starts = {0, *(cut or ())}
    row, rows = None, []
    each_gate = twins[1].unbind() if gated else [1.0] * N
    for i, (value, gate) in enumerate(zip(twins[0].unbind(), each_gate, strict=True)):
        row = value if i in starts else gate * row + value
        rows.append(row)
    truth = torch.stack(rows)
    wanted = torch.autograd.grad(truth, twins, dh.double())
    assert is_close(h.detach(), truth.detach())
    assert all(is_close(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_a_scan_of_rows_begins_anew_in_each() -> None:
    x, gates = draw_numbers(3, 2, 50).requires_grad_(), draw_numbers(3, 2, 50, seed=1).sigmoid()
    gates.requires_grad_()
    h = gated_scan.scan(x, gates)
    found = torch.autograd.grad(h, (x, gates), draw_numbers(3, 2, 50, seed=2))
    for i in range(3):
        a, b = (each.detach()[i, 1].clone().requires_grad_() for each in (x, gates))
        alone = gated_scan.scan(a, b)
        assert is_close(alone.detach(), h[i, 1].detach().double())
        wanted = torch.autograd.grad(alone, (a, b), draw_numbers(3, 2, 50, seed=2)[i, 1])
        assert all(is_close(b, a[i, 1].double()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_an_infinity_stays_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    for gates in (None, torch.full_like(x, 0.5)):
        h = gated_scan.scan(x, gates, cuts)
        assert h[99] == float("inf") and h[100:2000].isfinite().all()
        assert h[2000:5000].isnan().all() and h[5000:].isfinite().all()


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    for scan in (gated_scan.scan, gated_scan.scan_alone):
        assert torch.equal(scan(x, None, cuts), x)


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 6000, N)
    assert torch.equal(gated_scan.scan(x, x, cuts), gated_scan.scan(x, x, cuts))


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ((draw_numbers(3), draw_numbers(4)), ValueError, r"gates are \(4,\)"),
        ((draw_numbers(3), draw_numbers(3).to("meta")), TypeError, "gates is on meta; bring all"),
        ((draw_numbers(),), ValueError, "0 dimensions"),
        ((draw_numbers(3).long(),), TypeError, "x: torch.int64 is none"),
        ((draw_numbers(2, 3), None, make_offsets(0, 1)), ValueError, r"x is \(2, 3\)"),
        ((draw_numbers(3), None, make_offsets()), ValueError, r"offsets are \(0,\)"),
        ((draw_numbers(3), None, make_offsets(0, 4)), ValueError, "0 to 4 do not rise"),
        ((draw_numbers(3), None, draw_numbers(2)), TypeError, "offsets: torch.float32 is none"),
    ],
)
def test_gated_scan_refuses_in_one_clear_line(told: tuple, error: type, said: str) -> None:
    if DEVICE == "cuda" and "rise" in said:
        pytest.skip("offsets on a GPU are not looked into")
    with pytest.raises(error, match=f"^gated_scan: .*{said}") as raised:
        gated_scan.scan(*told)
    assert "\n" not in str(raised.value)
