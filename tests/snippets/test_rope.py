"""RoPE: what it refuses, far positions, in place, far rows, and its operator."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.rope import cases, rope  # noqa: E402
from snippets.rope.rope import Turns  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_heads(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def draw_tables(count: int, r: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.randn(count, r // 2, device=DEVICE)
    return angle.cos(), angle.sin()


def rotation_error(found: tuple, q: torch.Tensor, k: torch.Tensor, turns: Turns) -> float:
    truth = cases.reference("forward", q, k, *turns)
    pairs = zip(found, truth, strict=True)
    return max(float((x.double() - y).norm() / y.norm()) for x, y in pairs)


REFUSED = [
    (lambda q, k: (q.int(), k, Turns()), TypeError, "q is torch.int32"),
    (lambda q, k: (q, k.half(), Turns()), TypeError, "k is torch.float16 on"),
    (lambda q, k: (q, k.to("meta"), Turns()), TypeError, "k is torch.float32 on meta"),
    (lambda q, k: (q[0], k, Turns()), ValueError, "q has 3 dimensions"),
    (lambda q, k: (q, k[:, :2], Turns()), ValueError, "differ in more than"),
    (lambda q, k: (q, k, Turns(rotary_dim=5)), ValueError, "R = 5 is no even number"),
    (lambda q, k: (q, k, Turns(rotary_dim=10)), ValueError, "R = 10 is no even"),
    (lambda q, k: (q, k, Turns(*draw_tables(2, 8))), ValueError, "positions 0 to 2 are not"),
    (lambda q, k: (q, k, Turns(offset=-1)), ValueError, "positions -1 to 1 are not"),
    (lambda q, k: (q, k, Turns(offset=2**24 - 1)), ValueError, "lower offset"),
    (lambda q, k: (q, k, Turns(draw_tables(3, 8)[0])), ValueError, "one of cos and sin"),
    (lambda q, k: (q, k, Turns(*(x.double() for x in draw_tables(3, 8)))), TypeError, "cos"),
    (lambda q, k: (q, k, Turns(positions=q[0, 0])), TypeError, "neither int32"),
    (lambda q, k: (q, k, Turns(positions=q[:, 0, :, 0].int())), ValueError, "must be"),
    (lambda q, k: (q, k, Turns(base=0.0)), ValueError, "base = 0.0 is not positive"),
    (lambda q, k: (q, k, Turns(base=math.inf)), ValueError, "base = inf"),
]  # fmt: skip


@pytest.mark.parametrize("change, kind, words", REFUSED)
def test_refuses_what_does_not_fit(change, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words) as told:
        rope.rope(*change(draw_heads(2, 3, 4, 8), draw_heads(2, 3, 1, 8)))
    assert str(told.value).startswith("rope: ")


@pytest.mark.parametrize("variant", cases.VARIANTS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_angles_stay_exact_up_to_16_million(variant: str, interleaved: bool) -> None:
    q, k = draw_heads(1, 4, 2, 64), draw_heads(1, 4, 1, 64)
    for offset in (0, 1_000_000, 2**24 - 3):
        turns = Turns(offset=offset, interleaved=interleaved)
        assert rotation_error(rope.turn(q, k, turns, variant=variant), q, k, turns) < 1e-6


def test_angles_of_float32_would_not() -> None:
    p = 999_000 + torch.arange(4)[:, None]
    rate = 10_000.0 ** (torch.arange(0, 64, 2, dtype=torch.float64) / -64)
    narrow = p.float() * rate.float()
    q, k = draw_heads(1, 4, 2, 64), draw_heads(1, 4, 1, 64)
    found = rope.turn(q, k, Turns(narrow.cos().to(DEVICE), narrow.sin().to(DEVICE)))
    assert 1e-3 < rotation_error(found, q, k, Turns(offset=999_000)) < 1e-1


@pytest.mark.parametrize("known", [True, False])
def test_positions_without_angles_are_nan(known: bool) -> None:
    q, k = draw_heads(1, 3, 2, 8), draw_heads(1, 3, 1, 8)
    cos, sin = draw_tables(5, 8) if known else (None, None)
    last = 4 if known else 2**24
    positions = torch.tensor([[last, last + 1, -1]], device=DEVICE)
    for out in rope.turn(q, k, Turns(cos, sin, positions)):
        assert out[:, 0].isfinite().all()
        assert out[:, 1:].isnan().all()


@pytest.mark.parametrize("variant", cases.VARIANTS)
@pytest.mark.parametrize("heads_first", [False, True])
def test_in_place(variant: str, heads_first: bool) -> None:
    shape = (2, 3, 5, 20)
    turns = Turns(*draw_tables(5, 12), heads_first=heads_first)
    q, k = draw_heads(*shape)[..., ::2, :].repeat(1, 1, 2, 1)[:, :, :5], draw_heads(*shape)
    wanted = rope.turn(q, k, turns)
    found = rope.turn(q, k, turns, in_place=True, variant=variant)
    assert found[0] is q and found[1] is k
    assert torch.equal(q, wanted[0]) and torch.equal(k, wanted[1])
    with pytest.raises(ValueError, match="elements share memory"):
        rope.turn(
            draw_heads(2, 3, 5, 20), draw_heads(1, 3, 5, 20).expand(shape), turns, in_place=True
        )


def test_positions_as_int32_with_strides() -> None:
    q, k = draw_heads(2, 3, 2, 8), draw_heads(2, 3, 1, 8)
    positions = torch.randint(50, (3, 2), device=DEVICE, dtype=torch.int32).T
    turns = Turns(positions=positions, offset=4)
    assert rotation_error(rope.turn(q, k, turns), q, k, turns) < 1e-6


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_rows_far_apart() -> None:
    """Tokens of one allocation whose offsets do not fit into 32 bits."""
    step = 2**30 + 8
    store = torch.empty(2 * step + 64, dtype=torch.bfloat16, device=DEVICE)
    far = store.as_strided((1, 3, 2, 16), (0, step, 16, 1))
    far.copy_(draw_heads(1, 3, 2, 16))
    near, k = far.clone(), draw_heads(1, 3, 1, 16, dtype=torch.bfloat16)
    for variant in cases.VARIANTS:
        wanted = rope.turn(near, k, Turns(), variant=variant)[0]
        rope.turn(far, k.clone(), Turns(), in_place=True, variant=variant)
        assert torch.equal(far, wanted)
        far.copy_(near)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.parametrize("given", [Turns(), Turns(interleaved=True, rotary_dim=4)])
def test_operator(given: Turns) -> None:
    q, k = draw_heads(1, 3, 2, 8).requires_grad_(), draw_heads(1, 3, 1, 8).requires_grad_()
    torch.library.opcheck(rope.turned, (q, k, *given, False))
    dq, dk = torch.randn_like(q), torch.randn_like(k)
    found = torch.autograd.grad(rope.rope(q, k, given), (q, k), (dq, dk))
    exact = [x.detach().double().requires_grad_() for x in (q, k)]
    truth = cases.reference("forward", *exact, *given)
    due = torch.autograd.grad(truth, exact, (dq.double(), dk.double()))
    for x, y in zip(found, due, strict=True):
        assert float((x.double() - y).norm() / y.norm()) < 1e-6
    # One gradient alone: of the other nothing came back.
    (alone,) = torch.autograd.grad(rope.rope(q, k, given)[0], q, dq)
    assert torch.equal(alone, found[0])


def test_no_heads_of_k_and_no_tokens() -> None:
    q = draw_heads(1, 3, 2, 8)
    out, none = rope.turn(q, draw_heads(1, 3, 0, 8), Turns())
    assert torch.equal(out, rope.turn(q, draw_heads(1, 3, 1, 8), Turns())[0])
    assert none.shape == (1, 3, 0, 8)
    assert rope.turn(q[:, :0], q[:, :0], Turns())[0].shape == (1, 0, 2, 8)
