"""Packed sequences as an operator: what its cases, which call the kernels, cannot see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.flash_varlen import cases  # noqa: E402
from snippets.flash_varlen import flash_varlen as flash  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = ([3, 0, 21, 1], [5, 4, 17, 0])


def draw_packed_heads(*heads: int, rows: tuple = (), d: int = 16, dtype=torch.float32) -> list:
    generator = torch.Generator().manual_seed(0)
    rows = rows or (25, 26, 26, 25)
    shapes = [(t, h, d) for t, h in zip(rows, heads, strict=False)]
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


def make_starts() -> list:
    return [cases.starts(lengths, DEVICE) for lengths in LENGTHS]


@pytest.fixture
def qkv() -> list:
    return [x.requires_grad_() for x in draw_packed_heads(4, 2, 2)]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators(qkv: list) -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = (True, 0.25, 4, -1)
    torch.library.opcheck(flash.attention, (*qkv, *make_starts(), *told), test_utils=tests)
    given = [x.detach() for x in qkv]
    out, lse = flash.forward(*given, *make_starts(), True)
    given += [*make_starts(), out, lse, out, None, *told]
    torch.library.opcheck(flash.attention_backward, tuple(given), test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_of_out_and_lse_arrive_through_autograd(qkv: list) -> None:
    out, lse = flash.flash_varlen(*qkv, *make_starts(), causal=True, scale=0.3, window=(6, -1))
    (weight,) = draw_packed_heads(4)
    seen = lse.isfinite()
    (out * weight).sum().add((lse[seen] ** 2).sum()).backward()
    truth = [x.detach().double().requires_grad_() for x in qkv]
    exact = torch.zeros((), dtype=torch.float64, device=DEVICE)
    at_q = at_kv = 0
    for m, n in zip(*LENGTHS, strict=True):
        rows = (slice(at_q, at_q + m), *[slice(at_kv, at_kv + n)] * 2)
        q, k, v = (x[row].transpose(0, 1) for x, row in zip(truth, rows, strict=True))
        k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        mask = cases.dense.visible(m, n, True, 6, -1, q.device)
        s = (0.3 * q @ k.mT).masked_fill(~mask, -1e30)
        some = mask.any(-1)
        out_due = (torch.softmax(s, -1) @ v)[:, some]
        exact = exact + (out_due * weight[rows[0]].transpose(0, 1)[:, some]).sum()
        exact = exact + (torch.logsumexp(s, -1)[:, some] ** 2).sum()
        at_q, at_kv = at_q + m, at_kv + n
    exact.backward()
    assert all(is_close(x.grad, due.grad) for x, due in zip(qkv, truth, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_an_exact_out_takes_the_largest_error_from_gradients() -> None:
    q, k, v, dout = draw_packed_heads(2, 1, 1, 2, d=32, dtype=torch.bfloat16)
    q *= 8
    truth = cases.truth(True, None, -1, -1, 0, 0, *make_starts(), q, k, v, dout)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, _ = flash.flash_varlen(*leaves, *make_starts(), causal=True, exact=True)
    found = torch.autograd.grad(out, leaves, dout)
    assert all(is_close(x, due, 3.5e-3) for x, due in zip(found, truth, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("descriptors", [False, True], ids=["pointers", "descriptors"])
def test_a_sequence_is_not_touched_by_its_neighbours(descriptors: bool) -> None:
    q, k, v, dout = draw_packed_heads(2, 1, 1, 2, d=64, dtype=torch.float16)
    told = {"causal": True, "descriptors": descriptors}
    clean = flash.forward(q, k, v, *make_starts(), **told)
    clean += flash.backward(q, k, v, *make_starts(), *clean, dout, **told)
    mine, others = slice(3, 24), slice(9, 26)  # the third sequence's rows
    for x in (q, dout):
        x[:3] = x[24:] = float("nan")
    for x in (k, v):
        x[:9] = float("nan")
    found = flash.forward(q, k, v, *make_starts(), **told)
    found += flash.backward(q, k, v, *make_starts(), *found, dout, **told)
    parts = (mine, (slice(None), mine), mine, others, others)
    for x, due, part in zip(found, clean, parts, strict=True):
        assert torch.equal(x[part], due[part])


@pytest.mark.exhaustive("forms that a GPU alone chooses")
@pytest.mark.skipif(DEVICE == "cuda", reason="there the descriptors' own variant is verified")
@pytest.mark.parametrize("case", [c for c in cases.CASES if c["dtype"] != "float32"], ids=str)
def test_descriptors_are_right_without_a_gpu(case: dict) -> None:
    told = cases.inputs(case, DEVICE, torch.Generator().manual_seed(1))
    out = cases.VARIANTS["descriptors"](*told)
    limit = 1e-3 if case["dtype"] == "float16" else 5e-3
    for x, truth in zip(out, cases.reference(*told), strict=True):
        unseen = truth == float("-inf")
        assert torch.equal(x == float("-inf"), unseen)
        assert is_close(x[~unseen], truth[~unseen], limit)


def test_there_is_a_slot_for_every_tile() -> None:
    for size in (1, 2, 3, 16):
        for lengths in ([0], [1, 0, 0, 5], [16, 15, 17, 1, 1, 1], [3] * 9):
            begin, at = 0, 0
            for b, length in enumerate(lengths):
                begin = at // size + b
                at += length
                assert at // size + b + 1 - begin >= -(-length // size)
            assert at // size + len(lengths) >= begin


def replace_argument(at: int, change: Callable) -> Callable:
    def replace_given(*given: object) -> list:
        new = list(given)
        new[at] = change(new[at])
        return new

    return replace_given


@pytest.mark.parametrize(
    ("at", "change", "error", "said"),
    [
        (0, lambda q: q[0], ValueError, "q has 2 dimensions; give it 3"),
        (0, lambda q: q.half(), TypeError, "k is torch.float32 on"),
        (0, lambda q: q[:, :3], ValueError, "H_q = 3 is no multiple of H_kv = 2"),
        (2, lambda v: v[1:], ValueError, "do not fit"),
        (3, lambda cu: cu.long(), TypeError, "cu_q is torch.int64"),
        (4, lambda cu: cu[:-1], ValueError, r"cu_kv is \(4,\)"),
        (3, lambda cu: cu[:0], ValueError, r"cu_q is \(0,\)"),
        (3, lambda cu: cu[None], ValueError, r"cu_q is \(1, 5\)"),
    ],
)
def test_refuses_in_one_clear_line(at: int, change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_varlen: .*{said}") as raised:
        flash.flash_varlen(
            *replace_argument(at, change)(*draw_packed_heads(4, 2, 2), *make_starts())
        )
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU would have to be waited for")
@pytest.mark.parametrize("cu", [[0, 3, 2, 24, 25], [1, 3, 3, 24, 25], [0, 3, 3, 24, 26]])
def test_looks_into_starts_where_that_costs_nothing(cu: list) -> None:
    cu_q = torch.tensor(cu, dtype=torch.int32)
    with pytest.raises(ValueError, match="^flash_varlen: cu_q does not rise from 0 to 25"):
        flash.flash_varlen(*draw_packed_heads(4, 2, 2), cu_q, make_starts()[1])


def test_refuses_windows_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"^flash_varlen: window = \(-2, 0\)"):
        flash.flash_varlen(*draw_packed_heads(4, 2, 2), *make_starts(), window=(-2, 0))


def test_backward_refuses_results_of_other_shapes() -> None:
    q, k, v = draw_packed_heads(4, 2, 2)
    out, lse = flash.forward(q, k, v, *make_starts())
    with pytest.raises(ValueError, match=r"^flash_varlen: dout is \(24, 4, 16\)"):
        flash.backward(q, k, v, *make_starts(), out, lse, out[1:])
    with pytest.raises(ValueError, match="^flash_varlen: lse is .* of torch.float64"):
        flash.backward(q, k, v, *make_starts(), out, lse.double(), out)


def test_no_sequence_and_no_row_are_fine() -> None:
    q, k, v = draw_packed_heads(4, 2, 2, rows=(0, 26, 26))
    cu = torch.zeros(5, dtype=torch.int32, device=DEVICE)
    out, lse = flash.flash_varlen(q, k, v, cu, make_starts()[1])
    assert out.shape == (0, 4, 16) and lse.shape == (4, 0)
    q, k, v = draw_packed_heads(4, 2, 2, rows=(25, 0, 0))
    out, lse = flash.flash_varlen(q, k, v, make_starts()[0], cu)
    assert not out.any() and bool((lse == float("-inf")).all())
