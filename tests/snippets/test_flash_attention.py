"""Flash attention as an operator: what its cases, which call the kernels, cannot see."""

from __future__ import annotations

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.flash_attention import cases, tiles  # noqa: E402
from snippets.flash_attention import flash_attention as flash  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_heads(*heads: int, s: int = 20, d: int = 16, dtype=torch.float32) -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, h, s, d) for h in heads]
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


@pytest.fixture
def qkv() -> list:
    return [x.requires_grad_() for x in draw_heads(4, 2, 2)]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("transposed", [False, True], ids=["as drawn", "views of (B, S, H, D)"])
def test_operators_keep_the_rules_of_operators(qkv: list, transposed: bool) -> None:
    if transposed:
        qkv = [
            x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in qkv
        ]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(flash.attention, (*qkv, True, 0.25), test_utils=tests)
    out, lse = flash.forward(*(x.detach() for x in qkv), True)
    assert out.stride() == qkv[0].stride()
    given = (*(x.detach() for x in qkv), out, lse, out, None, True, 0.25)
    torch.library.opcheck(flash.attention_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_arrive_through_autograd(qkv: list) -> None:
    out, lse = flash.flash_attention(*qkv, causal=True)
    (dout,) = draw_heads(4)
    out.backward(dout)
    with torch.no_grad():
        wanted = flash.backward(*qkv, out, lse, dout, causal=True)
    assert all(torch.equal(x.grad, due) for x, due in zip(qkv, wanted, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_lse_has_a_gradient_too(qkv: list) -> None:
    out, lse = flash.flash_attention(*qkv, scale=0.3)
    (weight,) = draw_heads(4)
    (out * weight).sum().add((lse**2).sum()).backward()
    truth = [x.detach().double().requires_grad_() for x in qkv]
    key, value = (x.repeat_interleave(2, 1) for x in truth[1:])
    s = 0.3 * truth[0] @ key.mT
    exact = (torch.softmax(s, -1) @ value * weight).sum() + (torch.logsumexp(s, -1) ** 2).sum()
    exact.backward()
    assert all(is_close(x.grad, due.grad) for x, due in zip(qkv, truth, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_lse_alone_has_a_gradient(qkv: list) -> None:
    _, lse = flash.flash_attention(*qkv)
    lse.sum().backward()
    truth = [x.detach().double().requires_grad_() for x in qkv]
    torch.logsumexp(truth[0] @ truth[1].repeat_interleave(2, 1).mT / 4, -1).sum().backward()
    assert is_close(qkv[0].grad, truth[0].grad) and is_close(qkv[1].grad, truth[1].grad)
    assert not qkv[2].grad.any()


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_the_gradient_of_a_sum_is_read_though_it_is_one_number() -> None:
    qkv = [x.requires_grad_() for x in draw_heads(1, 1, 1, dtype=torch.float16)]
    out, lse = flash.flash_attention(*qkv)
    out.sum().backward()
    with torch.no_grad():
        wanted = flash.backward(*qkv, out, lse, torch.ones_like(out))
    assert all(torch.equal(x.grad, due) for x, due in zip(qkv, wanted, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_an_exact_out_takes_the_largest_error_from_gradients() -> None:
    """Where a row sees one key, dS is what is left of two numbers of which one was rounded."""
    q, k, v, dout = draw_heads(2, 1, 1, 2, s=70, d=32, dtype=torch.bfloat16)
    q *= 8
    truth = cases.reference("backward", True, None, -1, -1, q, k, v, None, None, dout)
    for exact, limit in ((False, 8e-3), (True, 3.5e-3)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out, _ = flash.flash_attention(*leaves, causal=True, exact=exact)
        found = torch.autograd.grad(out, leaves, dout)
        assert out.dtype is found[0].dtype is torch.bfloat16
        assert all(is_close(x, due, limit) for x, due in zip(found, truth, strict=True))


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    q, k, v, dout = draw_heads(4, 2, 2, 4, s=70, dtype=torch.float16)
    out, lse = flash.forward(q, k, v, True)
    first = flash.backward(q, k, v, out, lse, dout, True)
    second = flash.backward(q, k, v, *flash.forward(q, k, v, True), dout, True)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.exhaustive("forms that a GPU alone chooses")
@pytest.mark.skipif(DEVICE == "cuda", reason="there the descriptors' own variant is verified")
@pytest.mark.parametrize("case", [c for c in cases.CASES if c["dtype"] == "float16"], ids=str)
def test_descriptors_are_right_without_a_gpu(case: dict) -> None:
    told = cases.inputs(case, DEVICE, torch.Generator().manual_seed(1))
    assert tiles.by_descriptor(None, *told[5:8])
    out = cases.VARIANTS["descriptors"](*told)
    for x, truth in zip(out, cases.reference(*told), strict=True):
        unseen = truth == float("-inf")
        assert torch.equal(x == float("-inf"), unseen)
        error = (x.double() - truth)[~unseen].norm()
        assert float(error) <= 1e-3 * float(truth[~unseen].norm())


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (lambda x: x, True),
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), True),
        (lambda x: x[:, :, :1], True),  # the stride of one row says nothing
        (lambda x: x[..., :8], True),
        (lambda x: x[..., 1:9], False),  # not on 16 bytes
        (lambda x: x[..., ::2], False),
        (lambda x: x.mT, False),
        (lambda x: x[:1].expand(2, -1, -1, -1), False),
        (lambda x: torch.randn(2, 2, 20, 12, device=DEVICE).half(), False),  # 24 bytes a row
    ],
)
def test_descriptors_are_for_what_the_copy_engine_takes(layout, expected: bool) -> None:
    (x,) = draw_heads(2, dtype=torch.float16)
    assert tiles.describable(layout(x)) is expected


def test_every_width_has_a_tile_in_every_table() -> None:
    for tables in tiles.TILES.values():
        for kernel, widths in tables.items():
            assert max(widths) >= tiles.MAX_D
            for m, n, warps, stages in widths.values():
                assert {m, n, warps} <= {4, 8, 16, 32, 64, 128}, kernel
                assert 1 <= stages <= 3
    for width in (16, 32, 64, 128, 256, 512):
        for dtype in (torch.float32, torch.float16):
            assert tiles.tile_of("keys", width, dtype, tma=False).m >= 16


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q, k, v: (q, k.half(), v), TypeError, "k is torch.float16 on"),
        (lambda q, k, v: (q.double(), k, v), TypeError, "q is torch.float64, none of"),
        (lambda q, k, v: (q, k, v.to("meta")), TypeError, "v is torch.float32 on meta"),
        (lambda q, k, v: (q[0], k, v), ValueError, "q has 3 dimensions"),
        (lambda q, k, v: (q[:, :3], k, v), ValueError, "H_q = 3 is no multiple of H_kv = 2"),
        (lambda q, k, v: (q, k[:, :0], v[:, :0]), ValueError, "H_q = 4 .* H_kv = 0"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), ValueError, r"v \(2, 2, 19, 16\) do not fit"),
        (lambda q, k, v: (q[:1], k, v), ValueError, r"q \(1, 4, 20, 16\)"),
        (lambda q, k, v: (q[..., :0], k[..., :0], v[..., :0]), ValueError, "D = 0"),
        (
            lambda q, k, v: [x.repeat(1, 1, 1, 17) for x in (q, k, v)],
            ValueError,
            "D = 272 is not from 1 to MAX_D = 256",
        ),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_attention: .*{said}") as raised:
        flash.flash_attention(*change(*draw_heads(4, 2, 2)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ValueError, match=f"flash_attention: scale = {scale} "):
        flash.flash_attention(*draw_heads(1, 1, 1), scale=scale)


def test_backward_refuses_results_of_other_shapes() -> None:
    q, k, v = draw_heads(4, 2, 2)
    out, lse = flash.forward(q, k, v)
    with pytest.raises(ValueError, match=r"flash_attention: dout is \(2, 4, 19, 16\)"):
        flash.backward(q, k, v, out, lse, out[:, :, 1:])
    with pytest.raises(ValueError, match="flash_attention: lse is .* of torch.float64"):
        flash.backward(q, k, v, out, lse.double(), out)
