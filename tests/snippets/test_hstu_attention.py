"""HSTU's attention as an operator: what its cases, which call the kernels, cannot see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.hstu_attention import cases  # noqa: E402
from snippets.hstu_attention import hstu_attention as hstu  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, AIMS = [3, 0, 21, 1], [1, 0, 6, 0]


def draw_jagged_heads(*widths: int, dtype: torch.dtype = torch.float32) -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = [(25, 2, width) for width in widths or (16, 16, 16)]
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


def make_starts(rows: list[int] = ROWS) -> torch.Tensor:
    return cases.starts(rows, DEVICE)


def make_aims() -> torch.Tensor:
    return torch.tensor(AIMS, dtype=torch.int32, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = (make_starts(), make_aims(), None, 21.0, 0.25, 4)
    qkv = [x.requires_grad_() for x in draw_jagged_heads()]
    torch.library.opcheck(hstu.attention, (*qkv, *told), test_utils=tests)
    given = (*[x.detach() for x in qkv], draw_jagged_heads()[0], *told)
    torch.library.opcheck(hstu.attention_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_arrive_through_autograd() -> None:
    leaves = [x.requires_grad_() for x in draw_jagged_heads()]
    (weight,) = draw_jagged_heads(16)
    out = hstu.hstu_attention(*leaves, make_starts(), 21, targets=make_aims(), window=7)
    (out * weight).sum().backward()
    twins = [x.detach().double().requires_grad_() for x in leaves]
    due = cases.truth(21, 0.25, 7, make_starts(), make_aims(), None, *twins)
    (due * weight).sum().backward()
    assert all(is_close(x.grad, y.grad) for x, y in zip(leaves, twins, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_the_naive_form_is_the_same_function() -> None:
    qkv = draw_jagged_heads(16, 16, 8, dtype=torch.float64)
    bias = torch.randn(2, 5, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    given = hstu.padded(*qkv, make_starts(), 21, 0.25, make_aims(), bias, 7)
    assert is_close(given, cases.truth(21, 0.25, 7, make_starts(), make_aims(), bias, *qkv), 1e-12)


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("descriptors", [False, True], ids=["pointers", "descriptors"])
def test_a_sequence_is_not_touched_by_its_neighbours(descriptors: bool) -> None:
    *qkv, dout = draw_jagged_heads(64, 64, 64, 64, dtype=torch.float16)
    told = (make_starts(), 21.0, 0.1, make_aims(), None, None, descriptors)
    clean = (hstu.forward(*qkv, *told), *hstu.backward(*qkv, dout, *told))
    for x in (*qkv, dout):
        x[:3] = x[24:] = float("nan")
    found = (hstu.forward(*qkv, *told), *hstu.backward(*qkv, dout, *told))
    assert all(torch.equal(x[3:24], y[3:24]) for x, y in zip(found, clean, strict=True))


def test_a_target_is_blind_to_its_rivals() -> None:
    q, k, v = draw_jagged_heads()
    clean = hstu.forward(q, k, v, make_starts(), 21, 0.25, make_aims())
    k[20], v[20] = 100.0, 100.0  # one of the last six of rows 3 to 23
    found = hstu.forward(q, k, v, make_starts(), 21, 0.25, make_aims())
    same = [i for i in range(25) if i != 20]
    assert torch.equal(found[same], clean[same])
    assert not torch.equal(found[20], clean[20])


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_large_scores_pass_or_vanish(scale: float) -> None:
    q, k, v = (torch.ones(4, 1, 16, device=DEVICE) for _ in range(3))
    out = hstu.forward(q, k, v, make_starts([4]), 4, scale / 16)
    due = torch.arange(1, 5, device=DEVICE) * max(scale, 0.0) / 4
    assert torch.equal(out, due[:, None, None].expand_as(out))


def test_every_tile_has_one_program_and_the_longest_come_first() -> None:
    for rows in ([0], [1, 0, 0, 5], [16, 15, 17, 1], [3] * 9):
        for size in (1, 2, 16):
            order, before = hstu.plan(make_starts(rows), size)
            tiles = [-(-rows[b] // size) for b in order.tolist()]
            assert before.diff().tolist() == tiles
            assert [rows[b] for b in order.tolist()] == sorted(rows, reverse=True)
            assert sum(tiles) <= sum(rows) // size + len(rows)


def test_pairs_are_those_that_the_truth_sees() -> None:
    for rows, targets, window in ((7, 0, None), (7, 3, 2), (7, 7, 2), (1, 0, 0), (0, 0, 3)):
        seen = 0
        for i in range(rows):
            stand = min(i, rows - targets)
            reach = stand if window is None else min(window, stand)
            seen += 1 + reach
        assert cases.pairs(rows, targets, window) == seen


def replace_argument(at: int, change: Callable) -> Callable:
    def replace_given(*given: object) -> list:
        new = list(given)
        new[at] = change(new[at])
        return new

    return replace_given


@pytest.mark.parametrize(
    ("at", "change", "error", "said"),
    [
        (0, lambda q: q[0], ValueError, "q is "),
        (0, lambda q: q.double(), TypeError, "q is torch.float64"),
        (1, lambda k: k.half(), TypeError, "k is torch.float16 on"),
        (1, lambda k: k[..., :8], ValueError, "make them alike"),
        (2, lambda v: v[1:], ValueError, "same positions and heads"),
        (2, lambda v: v[..., :0], ValueError, "0 columns"),
        (3, lambda cu: cu.long(), TypeError, "cu is torch.int64"),
        (3, lambda cu: cu[:0], ValueError, r"cu is \(0,\)"),
        (4, lambda _: 0, ValueError, "longest = 0"),
        (5, lambda _: float("nan"), ValueError, "alpha = nan"),
        (6, lambda x: x[1:], ValueError, r"targets is \(3,\)"),
        (7, lambda _: torch.zeros(3, 4, device=DEVICE), ValueError, r"bias is \(3, 4\)"),
        (7, lambda _: torch.zeros(2, 4).double(), TypeError, "bias is torch.float64"),
        (7, lambda _: torch.zeros(2, 4, device=DEVICE).requires_grad_(), ValueError, "detach"),
        (8, lambda _: -1, ValueError, "window = -1"),
    ],
)
def test_refuses_in_one_clear_line(at: int, change, error: type, said: str) -> None:
    given = replace_argument(at, change)(
        *draw_jagged_heads(), make_starts(), 21, 0.25, make_aims(), None, None
    )
    with pytest.raises(error, match=f"^hstu_attention: .*{said}") as raised:
        hstu.hstu_attention(*given)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU would have to be waited for")
@pytest.mark.parametrize("cu", [[0, 3, 2, 24, 25], [1, 3, 3, 24, 25], [0, 3, 3, 24, 26]])
def test_looks_into_starts_where_that_costs_nothing(cu: list) -> None:
    with pytest.raises(ValueError, match="^hstu_attention: cu does not rise from 0 to 25"):
        hstu.hstu_attention(*draw_jagged_heads(), torch.tensor(cu, dtype=torch.int32), 21)


def test_backward_refuses_a_gradient_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"^hstu_attention: dout is \(24, 2, 16\)"):
        hstu.backward(*draw_jagged_heads(), draw_jagged_heads()[0][1:], make_starts(), 21, 0.25)


def test_no_row_is_fine() -> None:
    out = hstu.hstu_attention(*[x[:0] for x in draw_jagged_heads()], make_starts([0, 0]), 21)
    assert out.shape == (0, 2, 16)
