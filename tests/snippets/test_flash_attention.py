"""Flash attention, its steps, and packed sequences: what the cases of these cannot see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.flash_attention import cases as flash_attention_cases  # noqa: E402
from snippets.flash_attention import flash_attention, tiles  # noqa: E402
from snippets.flash_specialised import backward, flash_specialised  # noqa: E402
from snippets.flash_steps import flash_steps  # noqa: E402
from snippets.flash_varlen import cases as flash_varlen_cases  # noqa: E402
from snippets.flash_varlen import flash_varlen  # noqa: E402
from warpshelf.look import binary  # noqa: E402

# flash_attention: what its cases, which call the kernels, cannot see.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_heads_of_flash_attention(
    *heads: int, s: int = 20, d: int = 16, dtype=torch.float32
) -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, h, s, d) for h in heads]
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


@pytest.fixture
def qkv_of_flash_attention() -> list:
    return [x.requires_grad_() for x in draw_heads_of_flash_attention(4, 2, 2)]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("transposed", [False, True], ids=["as drawn", "views of (B, S, H, D)"])
def test_flash_attention_operators_keep_the_rules_of_operators(
    qkv_of_flash_attention: list, transposed: bool
) -> None:
    if transposed:
        qkv_of_flash_attention = [
            x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
            for x in qkv_of_flash_attention
        ]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(
        flash_attention.attention, (*qkv_of_flash_attention, True, 0.25), test_utils=tests
    )
    out, lse = flash_attention.forward(*(x.detach() for x in qkv_of_flash_attention), True)
    assert out.stride() == qkv_of_flash_attention[0].stride()
    given = (*(x.detach() for x in qkv_of_flash_attention), out, lse, out, None, True, 0.25)
    torch.library.opcheck(flash_attention.attention_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_arrive_through_autograd(qkv_of_flash_attention: list) -> None:
    out, lse = flash_attention.flash_attention(*qkv_of_flash_attention, causal=True)
    (dout,) = draw_heads_of_flash_attention(4)
    out.backward(dout)
    with torch.no_grad():
        wanted = flash_attention.backward(*qkv_of_flash_attention, out, lse, dout, causal=True)
    assert all(
        torch.equal(x.grad, due) for x, due in zip(qkv_of_flash_attention, wanted, strict=True)
    )


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_lse_has_a_gradient_too(qkv_of_flash_attention: list) -> None:
    out, lse = flash_attention.flash_attention(*qkv_of_flash_attention, scale=0.3)
    (weight,) = draw_heads_of_flash_attention(4)
    (out * weight).sum().add((lse**2).sum()).backward()
    truth = [x.detach().double().requires_grad_() for x in qkv_of_flash_attention]
    key, value = (x.repeat_interleave(2, 1) for x in truth[1:])
    s = 0.3 * truth[0] @ key.mT
    exact = (torch.softmax(s, -1) @ value * weight).sum() + (torch.logsumexp(s, -1) ** 2).sum()
    exact.backward()
    assert all(
        is_close(x.grad, due.grad) for x, due in zip(qkv_of_flash_attention, truth, strict=True)
    )


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_lse_alone_has_a_gradient(qkv_of_flash_attention: list) -> None:
    _, lse = flash_attention.flash_attention(*qkv_of_flash_attention)
    lse.sum().backward()
    truth = [x.detach().double().requires_grad_() for x in qkv_of_flash_attention]
    torch.logsumexp(truth[0] @ truth[1].repeat_interleave(2, 1).mT / 4, -1).sum().backward()
    assert is_close(qkv_of_flash_attention[0].grad, truth[0].grad) and is_close(
        qkv_of_flash_attention[1].grad, truth[1].grad
    )
    assert not qkv_of_flash_attention[2].grad.any()


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_the_gradient_of_a_sum_is_read_though_it_is_one_number() -> None:
    qkv_of_flash_attention = [
        x.requires_grad_() for x in draw_heads_of_flash_attention(1, 1, 1, dtype=torch.float16)
    ]
    out, lse = flash_attention.flash_attention(*qkv_of_flash_attention)
    out.sum().backward()
    with torch.no_grad():
        wanted = flash_attention.backward(*qkv_of_flash_attention, out, lse, torch.ones_like(out))
    assert all(
        torch.equal(x.grad, due) for x, due in zip(qkv_of_flash_attention, wanted, strict=True)
    )


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_flash_attention_an_exact_out_takes_the_largest_error_from_gradients() -> None:
    """Where a row sees one key, dS is what is left of two numbers of which one was rounded."""
    q, k, v, dout = draw_heads_of_flash_attention(2, 1, 1, 2, s=70, d=32, dtype=torch.bfloat16)
    q *= 8
    truth = flash_attention_cases.reference(
        "backward", True, None, -1, -1, q, k, v, None, None, dout
    )
    for exact, limit in ((False, 8e-3), (True, 3.5e-3)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out, _ = flash_attention.flash_attention(*leaves, causal=True, exact=exact)
        found = torch.autograd.grad(out, leaves, dout)
        assert out.dtype is found[0].dtype is torch.bfloat16
        assert all(is_close(x, due, limit) for x, due in zip(found, truth, strict=True))


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    q, k, v, dout = draw_heads_of_flash_attention(4, 2, 2, 4, s=70, dtype=torch.float16)
    out, lse = flash_attention.forward(q, k, v, True)
    first = flash_attention.backward(q, k, v, out, lse, dout, True)
    second = flash_attention.backward(q, k, v, *flash_attention.forward(q, k, v, True), dout, True)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.exhaustive("forms that a GPU alone chooses")
@pytest.mark.skipif(DEVICE == "cuda", reason="there the descriptors' own variant is verified")
@pytest.mark.parametrize(
    "case", [c for c in flash_attention_cases.CASES if c["dtype"] == "float16"], ids=str
)
def test_flash_attention_descriptors_are_right_without_a_gpu(case: dict) -> None:
    told = flash_attention_cases.inputs(case, DEVICE, torch.Generator().manual_seed(1))
    assert tiles.by_descriptor(None, *told[5:8])
    out = flash_attention_cases.VARIANTS["descriptors"](*told)
    for x, truth in zip(out, flash_attention_cases.reference(*told), strict=True):
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
    (x,) = draw_heads_of_flash_attention(2, dtype=torch.float16)
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
def test_flash_attention_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_attention: .*{said}") as raised:
        flash_attention.flash_attention(*change(*draw_heads_of_flash_attention(4, 2, 2)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ValueError, match=f"flash_attention: scale = {scale} "):
        flash_attention.flash_attention(*draw_heads_of_flash_attention(1, 1, 1), scale=scale)


def test_flash_attention_backward_refuses_results_of_other_shapes() -> None:
    q, k, v = draw_heads_of_flash_attention(4, 2, 2)
    out, lse = flash_attention.forward(q, k, v)
    with pytest.raises(ValueError, match=r"flash_attention: dout is \(2, 4, 19, 16\)"):
        flash_attention.backward(q, k, v, out, lse, out[:, :, 1:])
    with pytest.raises(ValueError, match="flash_attention: lse is .* of torch.float64"):
        flash_attention.backward(q, k, v, out, lse.double(), out)


# flash_steps: what they refuse.


def draw_heads_of_flash_steps(*heads: int) -> list:
    return [torch.zeros(1, h, 128, 16, dtype=torch.float16) for h in heads]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q, k, v: (q.float(), k, v), TypeError, "q is torch.float32"),
        (lambda q, k, v: (q, k, v.mT.contiguous().mT), ValueError, "v is not contiguous"),
        (lambda q, k, v: (q[:, :, :100].clone(), k, v), ValueError, r"q is \(1, 4, 100, 16\)"),
        (lambda q, k, v: (q[0], k[0], v[0]), ValueError, "give both as"),
        (lambda q, k, v: (q[:, :3].clone(), k, v), ValueError, "3 heads of q on 2 of k"),
        (lambda q, k, v: (q, k, v[:, :1]), ValueError, r"v is \(1, 1, 128, 16\), not"),
    ],
)
def test_flash_steps_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_steps: .*{said}") as raised:
        flash_steps.grouped(*change(*draw_heads_of_flash_steps(4, 2, 2)))
    assert "\n" not in str(raised.value)


def test_the_first_steps_share_no_heads() -> None:
    with pytest.raises(ValueError, match="as many for `tiled` and `causal`"):
        flash_steps.causal(*draw_heads_of_flash_steps(4, 2, 2))


# flash_specialised: what it refuses, and what the assembler made of it.


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q: (q.float(), q, q), TypeError, "q is torch.float32"),
        (lambda q: (q, q.bfloat16(), q), TypeError, "k is torch.bfloat16"),
        (lambda q: (q, q, q.mT.contiguous().mT), ValueError, "v is not contiguous"),
        (lambda q: (q[:, :, :100].clone(), q, q), ValueError, r"q is \(1, 4, 100, 128\)"),
        (lambda q: (q[:, :3].clone(), q[:, :2].clone(), q[:, :2].clone()), ValueError, "3 heads"),
        (lambda q: (q, q, q, False, "at once"), ValueError, "no way 'at once'; there are in turn"),
    ],
)
def test_flash_specialised_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_specialised: .*{said}") as raised:
        flash_specialised.attention(*change(torch.zeros(1, 4, 128, 128, dtype=torch.float16)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("way", "between"), [("Overlapped", 66), ("PingPong", 0)])
def test_exponentials_run_while_the_output_is_made(way: str, between: int) -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    name = f"flash<__half, 0, {way}>"
    code, symbols = flash_specialised.KERNELS.cubin([name], "sm_90")
    body = binary.split_functions(binary.run_cuobjdump("-sass", code))[symbols[name]]
    loop = body[body.rindex("BAR.ARV") :]
    _, first, second = loop.split("WARPGROUP.DEPBAR")[:3]
    assert "HGMMA" not in first
    assert first.count("MUFU.EX2") == between
    assert second.count("MUFU.EX2") == 66 - between


def test_no_product_of_the_gradients_waits_for_the_one_before() -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    code, symbols = backward.KERNELS.cubin(["backward<__half, 1>"], "sm_90")
    [symbol] = symbols.values()
    body = binary.split_functions(binary.run_cuobjdump("-sass", code))[symbol]
    assert body.count("HGMMA") == 3 * 8 + 2 * 4 and body.count("WARPGROUP.ARRIVE") == 5
    weights, gradients = body.split("WARPGROUP.DEPBAR.LE gsb0, 0x1")[1:3]
    assert weights.count("MUFU.EX2") == 32  # under the products of values and dout
    assert gradients.count("STSM") == 4  # under those of weights and dout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda dout, out, lse: (dout[..., ::2], out, lse), r"dout is .*\(1, 2, 128, 64\)"),
        (lambda dout, out, lse: (dout, out.float(), lse), "out is torch.float32, .*; give what"),
        (lambda dout, out, lse: (dout, out, lse.half()), "lse is torch.float16, .*; give what"),
        (lambda dout, out, lse: (dout, out, lse[0]), r"lse is .*\(2, 128\)"),
        (lambda dout, out, lse: (dout.mT, out, lse), "dout is not contiguous .*; give a copy"),
    ],
)
def test_gradients_are_refused_in_one_clear_line(change: Callable, said: str) -> None:
    x = torch.zeros(1, 2, 128, 128, dtype=torch.float16)
    dout, out, lse = change(x, x, torch.zeros(1, 2, 128))
    with pytest.raises(ValueError, match=f"^flash_specialised: {said}") as raised:
        backward.gradients(dout, x, x[:, :1].contiguous(), x[:, 1:].contiguous(), out, lse)
    assert "\n" not in str(raised.value)


# flash_varlen: what its cases, which call the kernels, cannot see.

LENGTHS = ([3, 0, 21, 1], [5, 4, 17, 0])


def draw_packed_heads(*heads: int, rows: tuple = (), d: int = 16, dtype=torch.float32) -> list:
    generator = torch.Generator().manual_seed(0)
    rows = rows or (25, 26, 26, 25)
    shapes = [(t, h, d) for t, h in zip(rows, heads, strict=False)]
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


def make_starts() -> list:
    return [flash_varlen_cases.starts(lengths, DEVICE) for lengths in LENGTHS]


@pytest.fixture
def qkv_of_flash_varlen() -> list:
    return [x.requires_grad_() for x in draw_packed_heads(4, 2, 2)]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_flash_varlen_operators_keep_the_rules_of_operators(qkv_of_flash_varlen: list) -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = (True, 0.25, 4, -1)
    torch.library.opcheck(
        flash_varlen.attention, (*qkv_of_flash_varlen, *make_starts(), *told), test_utils=tests
    )
    given = [x.detach() for x in qkv_of_flash_varlen]
    out, lse = flash_varlen.forward(*given, *make_starts(), True)
    given += [*make_starts(), out, lse, out, None, *told]
    torch.library.opcheck(flash_varlen.attention_backward, tuple(given), test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_of_out_and_lse_arrive_through_autograd(qkv_of_flash_varlen: list) -> None:
    out, lse = flash_varlen.flash_varlen(
        *qkv_of_flash_varlen, *make_starts(), causal=True, scale=0.3, window=(6, -1)
    )
    (weight,) = draw_packed_heads(4)
    seen = lse.isfinite()
    (out * weight).sum().add((lse[seen] ** 2).sum()).backward()
    truth = [x.detach().double().requires_grad_() for x in qkv_of_flash_varlen]
    exact = torch.zeros((), dtype=torch.float64, device=DEVICE)
    at_q = at_kv = 0
    for m, n in zip(*LENGTHS, strict=True):
        rows = (slice(at_q, at_q + m), *[slice(at_kv, at_kv + n)] * 2)
        q, k, v = (x[row].transpose(0, 1) for x, row in zip(truth, rows, strict=True))
        k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        mask = flash_varlen_cases.dense.visible(m, n, True, 6, -1, q.device)
        s = (0.3 * q @ k.mT).masked_fill(~mask, -1e30)
        some = mask.any(-1)
        out_due = (torch.softmax(s, -1) @ v)[:, some]
        exact = exact + (out_due * weight[rows[0]].transpose(0, 1)[:, some]).sum()
        exact = exact + (torch.logsumexp(s, -1)[:, some] ** 2).sum()
        at_q, at_kv = at_q + m, at_kv + n
    exact.backward()
    assert all(
        is_close(x.grad, due.grad) for x, due in zip(qkv_of_flash_varlen, truth, strict=True)
    )


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_flash_varlen_an_exact_out_takes_the_largest_error_from_gradients() -> None:
    q, k, v, dout = draw_packed_heads(2, 1, 1, 2, d=32, dtype=torch.bfloat16)
    q *= 8
    truth = flash_varlen_cases.truth(True, None, -1, -1, 0, 0, *make_starts(), q, k, v, dout)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, _ = flash_varlen.flash_varlen(*leaves, *make_starts(), causal=True, exact=True)
    found = torch.autograd.grad(out, leaves, dout)
    assert all(is_close(x, due, 3.5e-3) for x, due in zip(found, truth, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("descriptors", [False, True], ids=["pointers", "descriptors"])
def test_a_sequence_is_not_touched_by_its_neighbours(descriptors: bool) -> None:
    q, k, v, dout = draw_packed_heads(2, 1, 1, 2, d=64, dtype=torch.float16)
    told = {"causal": True, "descriptors": descriptors}
    clean = flash_varlen.forward(q, k, v, *make_starts(), **told)
    clean += flash_varlen.backward(q, k, v, *make_starts(), *clean, dout, **told)
    mine, others = slice(3, 24), slice(9, 26)  # the third sequence's rows
    for x in (q, dout):
        x[:3] = x[24:] = float("nan")
    for x in (k, v):
        x[:9] = float("nan")
    found = flash_varlen.forward(q, k, v, *make_starts(), **told)
    found += flash_varlen.backward(q, k, v, *make_starts(), *found, dout, **told)
    parts = (mine, (slice(None), mine), mine, others, others)
    for x, due, part in zip(found, clean, parts, strict=True):
        assert torch.equal(x[part], due[part])


@pytest.mark.exhaustive("forms that a GPU alone chooses")
@pytest.mark.skipif(DEVICE == "cuda", reason="there the descriptors' own variant is verified")
@pytest.mark.parametrize(
    "case", [c for c in flash_varlen_cases.CASES if c["dtype"] != "float32"], ids=str
)
def test_flash_varlen_descriptors_are_right_without_a_gpu(case: dict) -> None:
    told = flash_varlen_cases.inputs(case, DEVICE, torch.Generator().manual_seed(1))
    out = flash_varlen_cases.VARIANTS["descriptors"](*told)
    limit = 1e-3 if case["dtype"] == "float16" else 5e-3
    for x, truth in zip(out, flash_varlen_cases.reference(*told), strict=True):
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
def test_flash_varlen_refuses_in_one_clear_line(at: int, change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_varlen: .*{said}") as raised:
        flash_varlen.flash_varlen(
            *replace_argument(at, change)(*draw_packed_heads(4, 2, 2), *make_starts())
        )
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU would have to be waited for")
@pytest.mark.parametrize("cu", [[0, 3, 2, 24, 25], [1, 3, 3, 24, 25], [0, 3, 3, 24, 26]])
def test_looks_into_starts_where_that_costs_nothing(cu: list) -> None:
    cu_q = torch.tensor(cu, dtype=torch.int32)
    with pytest.raises(ValueError, match="^flash_varlen: cu_q does not rise from 0 to 25"):
        flash_varlen.flash_varlen(*draw_packed_heads(4, 2, 2), cu_q, make_starts()[1])


def test_refuses_windows_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"^flash_varlen: window = \(-2, 0\)"):
        flash_varlen.flash_varlen(*draw_packed_heads(4, 2, 2), *make_starts(), window=(-2, 0))


def test_flash_varlen_backward_refuses_results_of_other_shapes() -> None:
    q, k, v = draw_packed_heads(4, 2, 2)
    out, lse = flash_varlen.forward(q, k, v, *make_starts())
    with pytest.raises(ValueError, match=r"^flash_varlen: dout is \(24, 4, 16\)"):
        flash_varlen.backward(q, k, v, *make_starts(), out, lse, out[1:])
    with pytest.raises(ValueError, match="^flash_varlen: lse is .* of torch.float64"):
        flash_varlen.backward(q, k, v, *make_starts(), out, lse.double(), out)


def test_no_sequence_and_no_row_are_fine() -> None:
    q, k, v = draw_packed_heads(4, 2, 2, rows=(0, 26, 26))
    cu = torch.zeros(5, dtype=torch.int32, device=DEVICE)
    out, lse = flash_varlen.flash_varlen(q, k, v, cu, make_starts()[1])
    assert out.shape == (0, 4, 16) and lse.shape == (4, 0)
    q, k, v = draw_packed_heads(4, 2, 2, rows=(25, 0, 0))
    out, lse = flash_varlen.flash_varlen(q, k, v, make_starts()[0], cu)
    assert not out.any() and bool((lse == float("-inf")).all())
