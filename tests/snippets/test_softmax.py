"""Softmax, and cross-entropy, which is made of it."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import torch.nn.functional as F  # noqa: E402

from snippets.cross_entropy import cross_entropy as ce  # noqa: E402
from snippets.cross_entropy import gradients  # noqa: E402
from snippets.softmax import cases, softmax  # noqa: E402

# softmax: what it refuses, and shapes beyond those of its cases, which test_snippets.py runs.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.exhaustive("shapes beyond its cases")
def test_rows_too_long_for_one_pass() -> None:
    x = torch.zeros(1, softmax.MAX_N + 1, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 32769 exceeds MAX_N = 32768 \(forward\)"):
        softmax.one_pass("forward", x)
    y = torch.zeros(1, 20_000, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 20000 exceeds MAX_N / 2 = 16384 \(backward\)"):
        softmax.one_pass("backward", y, y)


@pytest.mark.parametrize("name", cases.VARIANTS)
def test_refuses_what_has_no_rows_or_another_dtype(name: str) -> None:
    with pytest.raises(TypeError, match="int64 is none of float32"):
        cases.VARIANTS[name]("forward", torch.zeros(2, 3, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match="0 dimensions"):
        cases.VARIANTS[name]("forward", torch.zeros((), device=DEVICE))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("name", cases.VARIANTS)
def test_softmax_more_dimensions_are_rows(name: str) -> None:
    x = torch.randn(2, 3, 33, device=DEVICE).transpose(0, 1)
    y = cases.VARIANTS[name]("forward", x)
    assert y.shape == (3, 2, 33)
    assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6)


@pytest.mark.exhaustive("shapes beyond its cases")
def test_every_variant_meets_both_passes_and_every_dtype_it_can() -> None:
    met = {
        (name, case["pass"], case["dtype"])
        for case in cases.CASES
        for name in case.get("variants", cases.VARIANTS)
    }
    for name in cases.VARIANTS:
        for which in ("forward", "backward"):
            for dtype in ("float32", "float16", "bfloat16"):
                assert (name, which, dtype) in met


def test_timed_sizes_leave_a_variant_each() -> None:
    for case in cases.TIMED:
        short = case["n"] * (1 if case["pass"] == "forward" else 2) <= softmax.MAX_N
        assert case.get("variants") == (None if short else ["online"])


# cross_entropy: reductions, gradients by autograd, and what it refuses.


def draw_hidden_and_targets(t: int = 9, v: int = 70, d: int = 12, dtype=torch.float32) -> tuple:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, d, generator=generator) for n in (t, v))
    target = torch.randint(v, (t,), generator=generator)
    target[1::4] = -100
    return hidden.to(DEVICE, dtype), weight.to(DEVICE, dtype), target.to(DEVICE)


def copy_to_leaves(*tensors: torch.Tensor) -> list:
    return [x.clone().requires_grad_() for x in tensors]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    hidden, weight, target = draw_hidden_and_targets()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    given = (*copy_to_leaves(hidden, weight), target, -100)
    torch.library.opcheck(gradients.rows_of, given, test_utils=tests)
    _, lse, top, rest = ce.forward(hidden, weight, target)
    given = (hidden, weight, target, top, rest, torch.ones_like(lse), lse, -100)
    torch.library.opcheck(gradients.rows_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_and_gradients_are_those_of_torch_in_float64(reduction: str) -> None:
    hidden, weight, target = draw_hidden_and_targets()
    ours, exact = copy_to_leaves(hidden, weight), copy_to_leaves(hidden.double(), weight.double())
    loss = gradients.cross_entropy(*ours, target, reduction=reduction)
    truth = F.cross_entropy(exact[0] @ exact[1].T, target, reduction=reduction)
    assert is_close(loss, truth)
    share = torch.linspace(1, 2, loss.numel(), device=DEVICE).view(loss.shape)
    (loss * share).sum().backward()
    (truth * share).sum().backward()
    assert all(is_close(x.grad, due.grad) for x, due in zip(ours, exact, strict=True))


def test_lse_gives_a_z_loss_and_smooth_labels() -> None:
    hidden, weight, target = draw_hidden_and_targets()
    target = target.clamp_min(0)
    ours, exact = copy_to_leaves(hidden, weight), copy_to_leaves(hidden.double(), weight.double())
    loss, lse = gradients.losses(*ours, target)
    smooth = 0.9 * loss + 0.1 * (lse - ours[0] @ ours[1].mean(0))
    (smooth + 1e-2 * lse**2).mean().backward()
    x = exact[0] @ exact[1].T
    z = torch.logsumexp(x, -1) ** 2
    (F.cross_entropy(x, target, label_smoothing=0.1) + 1e-2 * z.mean()).backward()
    assert all(is_close(x.grad, due.grad) for x, due in zip(ours, exact, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("descriptors", [False, True])
def test_losses_of_narrow_inputs_are_float32(dtype: torch.dtype, descriptors: bool) -> None:
    hidden, weight, target = draw_hidden_and_targets(t=33, v=300, d=40, dtype=dtype)
    assert ce.by_descriptor(descriptors, hidden, weight) is descriptors
    loss, lse = gradients.tiled(hidden, weight, target, descriptors=descriptors)
    x = hidden.double() @ weight.double().T
    assert is_close(loss, F.cross_entropy(x, target, reduction="none"))
    assert is_close(lse, torch.logsumexp(x, -1))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_cross_entropy_more_dimensions_are_rows() -> None:
    hidden, weight, target = draw_hidden_and_targets(t=12)
    rows = gradients.cross_entropy(hidden, weight, target, reduction="none")
    shaped = gradients.cross_entropy(
        hidden.view(3, 4, -1), weight, target.view(3, 4).int(), reduction="none"
    )
    assert torch.equal(shaped, rows.view(3, 4))


def test_all_ignored_is_nan_by_mean_and_0_by_sum_as_torch_has_it() -> None:
    hidden, weight, target = draw_hidden_and_targets()
    target = torch.full_like(target, 7)
    assert gradients.cross_entropy(hidden, weight, target, ignore_index=7).isnan()
    assert gradients.cross_entropy(hidden, weight, target, ignore_index=7, reduction="sum") == 0


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    hidden, weight, target = draw_hidden_and_targets(t=70, v=300, d=40, dtype=torch.float16)
    dloss = torch.ones(70, device=DEVICE)
    first, second = (gradients.tiled(hidden, weight, target, -100, dloss) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.skipif(DEVICE == "cuda", reason="takes 6 GB, which a CPU leaves untouched")
def test_rows_may_begin_beyond_2_to_the_31_elements() -> None:
    apart = 2**30 + 8  # so the third row does
    storage = torch.empty(3 * apart, dtype=torch.float16)  # pages that nobody touches
    hidden, weight, target = draw_hidden_and_targets(t=3, v=20, d=16, dtype=torch.float16)
    far = storage.as_strided((3, 16), (apart, 1))
    far.copy_(hidden)
    expected = gradients.tiled(hidden, weight, target, descriptors=False)
    assert torch.equal(gradients.tiled(far, weight, target, descriptors=False)[1], expected[1])


@pytest.mark.parametrize("wrong", [70, -1, 2**40])
def test_a_target_out_of_range_is_named_on_a_cpu(wrong: int) -> None:
    hidden, weight, target = (x.cpu() for x in draw_hidden_and_targets())
    target[2] = wrong
    with pytest.raises(ValueError, match=rf"cross_entropy: target {wrong} of row 2 is not"):
        gradients.cross_entropy(hidden, weight, target)


def test_a_target_out_of_range_has_no_address_and_no_loss(monkeypatch) -> None:
    hidden, weight, target = draw_hidden_and_targets()
    target[2] = 2**40
    monkeypatch.setattr(ce, "check_targets", lambda *told: None)  # as on a GPU, at first
    loss, lse = gradients.tiled(hidden, weight, target)
    assert loss.isnan().nonzero().tolist() == [[2]]
    assert not lse.isnan().any()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda h, w, y: (h.double(), w, y), TypeError, "hidden is torch.float64, none of"),
        (lambda h, w, y: (h, w.half(), y), TypeError, "float32, but weight torch.float16"),
        (lambda h, w, y: (h, w, y.float()), TypeError, "target is torch.float32, neither"),
        (lambda h, w, y: (h, w, y.to("meta")), TypeError, "target on meta; bring"),
        (lambda h, w, y: (h, w[:, 1:], y), ValueError, "the shapes hidden"),
        (lambda h, w, y: (h, w, y[1:]), ValueError, "give each row of hidden a target"),
        (lambda h, w, y: (h, w[0], y), ValueError, "weight has 1 dimensions"),
        (lambda h, w, y: (h, w, y, -100, "max"), ValueError, "reduction 'max' is none of"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^cross_entropy: .*{said}") as raised:
        gradients.cross_entropy(*change(*draw_hidden_and_targets()))
    assert "\n" not in str(raised.value)


def test_tiles_suit_what_they_read() -> None:
    hidden, weight, _ = draw_hidden_and_targets(dtype=torch.float16, d=16)
    assert ce.tile_of(True, hidden, weight) is ce.TILES["descriptors"]
    assert ce.tile_of(False, hidden, weight) is ce.TILES["pointers"]
    assert ce.tile_of(False, hidden[:, 1:], weight[:, 1:]) is ce.TILES["scattered"]
    assert ce.tile_of(False, hidden.float(), weight.float()) is ce.TILES["exact"]
    for tile in ce.TILES.values():
        assert 1 <= tile.stages <= 4 and tile.n % 2 == 0
