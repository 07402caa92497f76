"""Sums of rows and of segments, and scans: sums of everything before, also with gates."""

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
from snippets.row_reduce import cases, row_reduce  # noqa: E402
from snippets.segment_reduce import segment_reduce  # noqa: E402

# row_reduce: what is not finite, ties across parts, and what is refused.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_numbers(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_maxima_and_sums_of_exponentials_of_what_is_not_finite(variant: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[-inf, -inf, -inf], [-inf, inf, inf], [1, nan, nan], [0.0, -0.0, -1]]
    x = torch.tensor(rows, device=DEVICE)
    y, index = cases.VARIANTS[variant]("max", x)
    assert index.tolist() == [0, 1, 1, 0] and y[2].isnan() and y[1] == inf
    y = cases.VARIANTS[variant]("logsumexp", x)
    assert torch.allclose(y, torch.logsumexp(x, -1), equal_nan=True)


def test_the_first_of_equals_wins_across_parts() -> None:
    x = torch.zeros(2, 70_000, device=DEVICE)
    x[0, 69_999], x[1, 30_001], x[1, 65_000] = 5, 5, 5
    y, index = row_reduce.rows("max", x)
    assert y.tolist() == [5, 5] and index.tolist() == [69_999, 30_001]


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_offsets_pass_two_to_the_31(variant: str) -> None:
    far = 2**31 + 64  # elements; the memory between two rows is never touched
    x = torch.empty(far + 32, dtype=torch.bfloat16, device=DEVICE)
    x = x.as_strided((2, 32), (far, 1)).copy_(draw_numbers(2, 32))
    for op in ("sum", "max", "logsumexp"):
        y = cases.VARIANTS[variant](op, x)
        near = cases.VARIANTS[variant](op, x.contiguous())
        assert all(torch.equal(a, b) for a, b in zip(y, near, strict=True))


@pytest.mark.parametrize(
    ("op", "x", "error", "said"),
    [
        ("sum", draw_numbers(), ValueError, "0 dimensions"),
        ("max", draw_numbers(2, 0), ValueError, "N = 0 has no max"),
        ("min", draw_numbers(2, 3), ValueError, "op 'min' is none of sum, max"),
        ("sum", draw_numbers(3).long(), TypeError, "x: torch.int64 is none"),
        ("sum", draw_numbers(3).to("meta"), TypeError, "x is on meta; bring"),
    ],
)
def test_row_reduce_refuses_in_one_clear_line(
    op: str, x: torch.Tensor, error: type, said: str
) -> None:
    for call in (row_reduce.rows, row_reduce.rows_alone):
        with pytest.raises(error, match=f"^row_reduce: .*{said}") as raised:
            call(op, x)
        assert "\n" not in str(raised.value)


# segment_reduce: what their cases, which call the kernels, cannot see.

N = 9000  # several tiles, the last of them ragged


def make_offsets(*cuts: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(cuts, dtype=dtype, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    x, cuts = draw_numbers(40).requires_grad_(), make_offsets(0, 7, 7, 40)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, told in (
        (segment_reduce.segment_sum, (x, cuts)),
        (segment_reduce.segment_spread, (draw_numbers(3).requires_grad_(), cuts, 40)),
    ):
        torch.library.opcheck(operator, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_the_gradient_of_a_segment_sum_is_spread_over_it() -> None:
    x, cuts = draw_numbers(N).requires_grad_(), make_offsets(3, 5, 5, 4096, 8000)
    dy = draw_numbers(4, seed=1).requires_grad_()
    (dx,) = torch.autograd.grad(segment_reduce.segment_sum(x, cuts), x, dy, create_graph=True)
    lengths = torch.tensor([3, 2, 0, 4091, 3904, 1000], device=DEVICE)
    padded = torch.cat([dy.new_zeros(1), dy.detach(), dy.new_zeros(1)])
    assert torch.equal(dx, padded.repeat_interleave(lengths))
    ddx = draw_numbers(N, seed=2)
    (ddy,) = torch.autograd.grad(dx, dy, ddx)  # and that of spreading is a sum
    parts = ddx.double().split(lengths.tolist())[1:-1]
    assert is_close(ddy, torch.stack([part.sum() for part in parts]))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_an_infinity_stays_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    sums = segment_reduce.segment_sum(x, cuts)
    assert sums[0] == float("inf") and sums[1].isnan() and sums[2].isfinite()


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    due = [float(x[a:b].sum()) for a, b in zip(cut, cut[1:], strict=False)]
    for sums in (segment_reduce.segment_sum, segment_reduce.sums_alone):
        assert sums(x, cuts).tolist() == due


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 6000, N)
    first, again = (segment_reduce.segment_sum(x, cuts) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_a_segment_past_two_to_the_31_alone() -> None:
    start = 2**31 + 8
    x = torch.empty(start + 40, dtype=torch.bfloat16, device=DEVICE)
    x[start:] = draw_numbers(40)
    y = segment_reduce.sums_alone(x, make_offsets(start, start + 40, dtype=torch.int64))
    assert torch.equal(y, segment_reduce.sums_alone(x[start:], make_offsets(0, 40)))


@pytest.mark.parametrize(
    ("call", "told", "error", "said"),
    [
        ("segment_sum", (draw_numbers(2, 3), make_offsets(0, 1)), ValueError, r"x is \(2, 3\)"),
        ("segment_sum", (draw_numbers(3), make_offsets(0, 4)), ValueError, "0 to 4 do not rise"),
        ("segment_sum", (draw_numbers(3), make_offsets(0, 2, 1)), ValueError, "do not rise"),
        ("sums_alone", (draw_numbers(3), make_offsets(0, 2, 1)), ValueError, "do not rise"),
        ("segment_sum", (draw_numbers(3), draw_numbers(2)), TypeError, "offsets: torch.float32"),
        ("segment_sum", (draw_numbers(3).long(), make_offsets(0, 3)), TypeError, "x: torch.int64"),
        ("segment_sum", (draw_numbers(3), make_offsets()), ValueError, r"offsets are \(0,\)"),
        ("spread_over", (draw_numbers(3), make_offsets(0, 3), 3), ValueError, r"be \(1,\)"),
        ("spread_over", (draw_numbers(1, 1), make_offsets(0, 3), 3), ValueError, r"dy is \(1, 1"),
    ],
)
def test_segment_reduce_refuses_in_one_clear_line(
    call: str, told: tuple, error: type, said: str
) -> None:
    if DEVICE == "cuda" and "rise" in said:
        pytest.skip("offsets on a GPU are not looked into")
    with pytest.raises(error, match=f"^segment_reduce: .*{said}") as raised:
        getattr(segment_reduce, call)(*told)
    assert "\n" not in str(raised.value)


# prefix_scan: how far a tile looks back, what it reads, and what is refused.

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
def test_a_scan_keeps_an_infinity_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    for gates in (None, torch.full_like(x, 0.5)):
        h = gated_scan.scan(x, gates, cuts)
        assert h[99] == float("inf") and h[100:2000].isfinite().all()
        assert h[2000:5000].isnan().all() and h[5000:].isfinite().all()


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_a_scan_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    for scan in (gated_scan.scan, gated_scan.scan_alone):
        assert torch.equal(scan(x, None, cuts), x)


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_a_scan_gives_the_same_bits_again() -> None:
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
