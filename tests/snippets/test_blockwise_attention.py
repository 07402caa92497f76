"""Blockwise attention: what its cases cannot see. The merge's laws, operators, and memory."""

from __future__ import annotations

import math
import weakref

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from snippets.blockwise_attention import blockwise_attention as blockwise  # noqa: E402
from snippets.blockwise_attention import cases, feed_forward, merge_kernel  # noqa: E402
from snippets.blockwise_attention.merge import merge  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

finite = st.floats(-1e4, 1e4, allow_nan=False)
number = st.one_of(finite, st.just(-math.inf))
side = st.tuples(st.lists(finite, min_size=3, max_size=3), number)


def make_side(side: tuple, dtype=torch.float64) -> tuple:
    """One row of out, NaN where no key was seen, and its lse."""
    out, lse = side
    values = [math.nan] * 3 if lse == -math.inf else out
    return torch.tensor([values], dtype=dtype), torch.tensor([lse], dtype=dtype)


def sides_agree(x: tuple, y: tuple, limit: float = 1e-11) -> bool:
    """The same lse, and the same out by the size that its terms may have."""
    (out1, lse1), (out2, lse2) = x, y
    if (lse1 == -math.inf).any():
        return bool((lse2 == -math.inf).all() and (out1 == 0).all() and (out2 == 0).all())
    apart = [(one - other).abs() for one, other in zip(x, y, strict=True)]
    return all(bool((each <= limit * 1e4).all()) for each in apart)


@given(side, side, side)
def test_the_merge_is_associative_up_to_rounding(a, b, c) -> None:
    a, b, c = map(make_side, (a, b, c))
    assert sides_agree(merge(*merge(*a, *b), *c), merge(*a, *merge(*b, *c)))


@given(side, side)
def test_the_merge_is_commutative_to_the_last_bit(a, b) -> None:
    a, b = map(make_side, (a, b))
    for x, y in zip(merge(*a, *b), merge(*b, *a), strict=True):
        assert torch.equal(x, y)


@given(side)
def test_a_side_without_keys_is_neutral_to_the_last_bit(a) -> None:
    none = make_side(([0.0] * 3, -math.inf))
    out, lse = make_side(a)
    expected = out.nan_to_num(0.0), lse
    for merged in (merge(out, lse, *none), merge(*none, out, lse)):
        assert all(torch.equal(x, y) for x, y in zip(merged, expected, strict=True))


@given(st.lists(finite, min_size=2, max_size=12), st.data())
def test_merged_parts_of_a_row_are_its_softmax(scores, data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(scores)), max_size=4)))
    s = torch.tensor(scores, dtype=torch.float64)
    v = torch.linspace(-3, 5, len(scores) * 2, dtype=torch.float64).view(-1, 2)
    found = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([-math.inf]).double()
    for start, end in zip([0, *cuts], [*cuts, len(scores)], strict=True):
        part = s[start:end]
        lse = torch.logsumexp(part, 0) if len(part) else torch.tensor(-math.inf).double()
        out = torch.softmax(part, 0) @ v[start:end] if len(part) else torch.full((2,), math.nan)
        found = merge(*found, out[None].double(), lse[None])
    assert sides_agree(found, ((torch.softmax(s, 0) @ v)[None], torch.logsumexp(s, 0)[None]))


@settings(max_examples=30)
@given(st.lists(st.tuples(side, side), min_size=1, max_size=9))
def test_the_kernel_keeps_the_same_laws(pairs) -> None:
    """All rows in one launch; float32, so that rounding is a part in 10**7 of the largest."""
    rows = [[make_side(pair[k], torch.float32) for pair in pairs] for k in (0, 1)]
    left, right = ([torch.cat(x).to(DEVICE) for x in zip(*rows[k], strict=True)] for k in (0, 1))
    here = merge_kernel.merge(*left, *right)
    there = merge_kernel.merge(*right, *left)
    assert all(torch.equal(x, y) for x, y in zip(here, there, strict=True))
    truth = merge(*(x.double() for x in (*left, *right)))
    assert torch.equal(here[1] == -math.inf, truth[1] == -math.inf)
    seen = truth[1] > -math.inf
    assert sides_agree((here[0].double(), here[1].double()[seen]), (truth[0], truth[1][seen]), 1e-6)
    none = [torch.full_like(left[0], math.nan), torch.full_like(left[1], -math.inf)]
    for merged in (merge_kernel.merge(*left, *none), merge_kernel.merge(*none, *left)):
        assert torch.equal(merged[0], left[0].nan_to_num(0.0)) and torch.equal(merged[1], left[1])


def test_the_plain_form_has_the_right_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 3), (5,), (5, 3), (5,))
    sides = [torch.randn(x, generator=generator).double().requires_grad_() for x in shapes]
    assert torch.autograd.gradcheck(merge, sides)
    assert torch.autograd.gradgradcheck(merge, sides)


def test_sides_without_keys_have_no_gradient_and_no_nan() -> None:
    out = torch.full((3, 2), math.nan).double().requires_grad_()
    lse = torch.full((3,), -math.inf).double().requires_grad_()
    other = torch.ones(3, 2).double().requires_grad_()
    other_lse = torch.tensor([0.5, 1e4, -math.inf]).double().requires_grad_()
    merged, total = merge(out, lse, other, other_lse)
    (merged.sum() + total[:2].sum()).backward()
    assert not out.grad.any() and not lse.grad.any()
    assert other.grad.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert other_lse.grad.tolist() == [1, 1, 0]


def draw_sides(dtype1=torch.float32, dtype2=torch.float32, shape=(2, 3, 9, 20)) -> list:
    generator = torch.Generator().manual_seed(0)
    made = []
    for dtype in (dtype1, dtype2):
        made.append(torch.randn(shape, generator=generator).to(DEVICE, dtype).requires_grad_())
        made.append(torch.randn(shape[:-1], generator=generator).to(DEVICE).requires_grad_())
    return made


RULES = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("other", [torch.float32, torch.bfloat16], ids=str)
def test_merge_operators_keep_the_rules_of_operators(other: torch.dtype) -> None:
    given = draw_sides(torch.float32, other)
    torch.library.opcheck(merge_kernel.merge_attention, given, test_utils=RULES)
    plain = [x.detach() for x in given]
    out, lse = merge_kernel.merge(*plain)
    for dlse in (None, lse):
        told = (out, dlse, *plain)
        torch.library.opcheck(merge_kernel.merge_attention_backward, told, test_utils=RULES)
    torch.library.opcheck(merge_kernel.merge_attention_, tuple(plain), test_utils=RULES)


def test_merge_in_place_is_the_merge() -> None:
    given = [x.detach() for x in draw_sides(torch.float32, torch.bfloat16)]
    out, lse = merge_kernel.merge(*given)
    merge_kernel.merge_attention_(*given)
    assert torch.equal(given[0], out) and torch.equal(given[1], lse)


@pytest.mark.parametrize("what", ["both", "out", "lse"])
def test_merge_gradients_arrive_through_autograd(what: str) -> None:
    leaves = draw_sides()
    exact = [x.detach().double().requires_grad_() for x in leaves]

    def sum_powers(pair: tuple) -> torch.Tensor:
        out, lse = pair
        return sum([(out**2).sum() * (what != "lse"), (lse**3).sum() * (what != "out")])

    if what == "both":
        sum_powers(merge_kernel.merge_attention(*leaves)).backward()
    else:  # the other one is not used at all
        pair = merge_kernel.merge_attention(*leaves)
        (pair[0] ** 2 if what == "out" else pair[1] ** 3).sum().backward()
    sum_powers(merge(*exact)).backward()
    for leaf, due in zip(leaves, exact, strict=True):
        assert is_close(leaf.grad, due.grad) if due.grad.any() else not leaf.grad.any()


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ([(60, 20, 1)], ([24, 1, 1], [1, 0, 0])),  # adjacent, in one run
        ([(60, 20, 1), (1, 2, 6)], ([2, 3, 4], [60, 20, 1], [1, 2, 6])),
        ([(120, 20, 1)], ([2, 12, 1], [120, 1, 0])),
        ([(0, 0, 0)], ([24, 1, 1], [0, 0, 0])),
    ],
)
def test_rows_are_taken_in_as_few_runs_as_all_tensors_allow(strides, expected) -> None:
    sizes = (2, 3, 4)
    scaled = [tuple(4 if step == 20 else 12 if step == 60 else step for step in x) for x in strides]
    wanted = [list(x) for x in expected]
    for index, x in enumerate(wanted[1:], 1):
        wanted[index] = [4 if step == 20 else 12 if step == 60 else step for step in x]
    assert merge_kernel.runs(sizes, scaled) == wanted
    assert merge_kernel.runs((1, 5, 1), [(9, 2, 7)]) == [[5, 1, 1], [2, 0, 0]]


def test_rows_past_2_to_the_31_elements_are_reached() -> None:
    """Two rows farther apart than 2**31 elements, in memory of which only they are touched."""
    far = 2**31 + 8
    base = torch.empty(far + 16, dtype=torch.float16, device=DEVICE)
    out = base.as_strided((2, 16), (far, 1))
    out.copy_(torch.arange(32.0).view(2, 16))
    lse = torch.zeros(2, device=DEVICE)
    other = torch.ones(2, 16, dtype=torch.float16, device=DEVICE)
    merge_kernel.merge_into(out, lse, out, lse, other, torch.zeros_like(lse))
    assert out.tolist() == ((torch.arange(32.0).view(2, 16) + 1) / 2).tolist()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda a, b, c, d: (a.double(), b, c, d), TypeError, "out1 is torch.float64, not of"),
        (lambda a, b, c, d: (a, b.half(), c, d), TypeError, "lse1 is torch.float16, not of"),
        (lambda a, b, c, d: (a, b, c.to("meta"), d), TypeError, "out2 is on meta, but out1 on"),
        (lambda a, b, c, d: (a, b, c[:1], d), ValueError, r"out2 is \(1, 3, 9, 20\); with out1"),
        (lambda a, b, c, d: (a, b, c, d[..., None]), ValueError, r"lse2 is \(2, 3, 9, 1\)"),
        (
            lambda a, b, c, d: (a.repeat(1, 1, 1, 105), b, c.repeat(1, 1, 1, 105), d),
            ValueError,
            "D = 2100 is not from 1 to MAX_D = 2048",
        ),
        (
            lambda a, b, c, d: (
                a.new_zeros(5, 4, 3, 2, 20).permute(3, 2, 1, 0, 4),
                *(x.new_zeros(2, 3, 4, 5, *x.shape[3:]) for x in (b, c, d)),
            ),
            ValueError,
            "the rows lie in 4 runs, more than 3",
        ),
    ],
)  # fmt: skip
def test_merge_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    given = [x.detach() for x in draw_sides()]
    with pytest.raises(error, match=f"^blockwise_attention: .*{said}") as raised:
        merge_kernel.merge(*change(*given))
    assert "\n" not in str(raised.value)


@given(
    st.integers(0, 40), st.integers(0, 40), st.integers(1, 45), st.integers(1, 45), st.booleans()
)
def test_blocks_cover_what_is_seen_once(s_q, s_kv, chunk_q, chunk_kv, causal) -> None:
    met = torch.zeros(s_q, s_kv, dtype=torch.int64)
    began, ended = torch.zeros(s_q), torch.zeros(s_q)
    for start in range(0, s_q, chunk_q):
        rows = range(start, min(start + chunk_q, s_q))
        for block in blockwise.blocks(rows, s_q, s_kv, chunk_kv, causal):
            m, n = (part.stop - part.start for part in (block.rows, block.cols))
            assert 0 < m <= chunk_q and 0 < n <= chunk_kv
            assert rows.start <= block.rows.start and block.rows.stop <= rows.stop
            seen = torch.ones(m, n, dtype=torch.int64)
            if block.causal:
                seen = seen.tril(n - m)
                assert seen.any(1).all(), "a row of it sees nothing"
            # Until a row's last block its sum has been begun, and not been closed.
            assert (began[block.rows] == (not block.first)).all()
            assert not ended[block.rows].any()
            began[block.rows], ended[block.rows] = 1, float(block.last)
            met[block.rows, block.cols] += seen
    truth = torch.ones(s_q, s_kv, dtype=torch.int64)
    truth = truth.tril(s_kv - s_q) if causal else truth
    assert torch.equal(met, truth)
    assert torch.equal(ended > 0, truth.any(1)) and torch.equal(began, ended)


def draw_qkv() -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 4, 40, 64), (1, 2, 50, 64), (1, 2, 50, 64))
    return [torch.randn(x, generator=generator).to(DEVICE).requires_grad_() for x in shapes]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_attention_operators_keep_the_rules_of_operators() -> None:
    told = (*draw_qkv(), True, 0.125, 32, 24)
    torch.library.opcheck(blockwise.attention, told, test_utils=RULES)
    plain = [x.detach() for x in told[:3]]
    out, lse = blockwise.forward(*plain, True, 0.125, 32, 24)
    given = (*plain, out, lse, out, None, *told[3:])
    torch.library.opcheck(blockwise.attention_backward, given, test_utils=RULES)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_attention_gradients_arrive_through_autograd() -> None:
    leaves = draw_qkv()
    out, lse = blockwise.blockwise_attention(*leaves, causal=True, chunk_q=32, chunk_kv=24)
    (out**2).sum().add((lse**2).sum()).backward()
    exact = [x.detach().double().requires_grad_() for x in leaves]
    key, value = (x.repeat_interleave(2, 1) for x in exact[1:])
    hidden = torch.ones(40, 50, device=DEVICE).triu(11) > 0
    s = (exact[0] @ key.mT / 8).masked_fill(hidden, -math.inf)
    (torch.softmax(s, -1) @ value).pow(2).sum().add((torch.logsumexp(s, -1) ** 2).sum()).backward()
    assert all(is_close(x.grad, due.grad) for x, due in zip(leaves, exact, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_no_chunk_rounds_what_is_summed() -> None:
    q, k, v = (x.detach().bfloat16() for x in draw_qkv())
    q, dout = 8 * q, q
    truth = cases.reference("attention backward", 0, 0, True, None, q, k, v, q, q, dout)
    found = {}
    for chunk in (50, 9):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        told = {"causal": True, "chunk_q": 50, "chunk_kv": chunk, "exact": True}
        out, _ = blockwise.blockwise_attention(*leaves, **told)
        found[chunk] = torch.autograd.grad(out, leaves, dout)
        assert all(is_close(x, due, 3.5e-3) for x, due in zip(found[chunk], truth, strict=True))
    assert is_close(found[9][2], found[50][2].double(), 1e-3)  # dv, in which out has no part


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chunk_q": 0}, "chunk_q = 0 has no row"),
        ({"chunk_kv": -3}, "chunk_kv = -3 has no row"),
        ({"scale": -1.0}, "scale = -1.0 is not positive"),
    ],
)
def test_attention_refuses_in_one_clear_line(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=f"^blockwise_attention: {said}"):
        blockwise.blockwise_attention(*draw_qkv(), **change)


class Live(TorchDispatchMode):
    """Bytes of storages that are made inside and still held: now, and at most."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.known = {x.untyped_storage()._cdata for x in known}
        self.now = self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, torch.Tensor):
                self.keep_storage(made.untyped_storage())
        return result

    def keep_storage(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.free_storage, key, size)

    def free_storage(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


S, D, HIDDEN, CHUNK = 192, 24, 96, 32


def draw_ffn_leaves() -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = ((S, D), (D, HIDDEN), (HIDDEN, D))
    return [torch.randn(x, generator=generator).double().requires_grad_() for x in shapes]


def count_kept_bytes(function, leaves: list) -> int:
    """Bytes that autograd keeps beside the leaves themselves, from forward to backward."""
    known = {x.untyped_storage().data_ptr() for x in leaves}
    found = {}

    def note_storage(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note_storage, lambda x: x):
        out = function(*leaves)
        del out
    return sum(found.values())


def run_in_chunks(*leaves: torch.Tensor) -> torch.Tensor:
    return feed_forward.chunked_feed_forward(*leaves, CHUNK)


def test_hidden_activations_are_not_kept() -> None:
    assert count_kept_bytes(feed_forward.feed_forward, draw_ffn_leaves()) == 2 * S * HIDDEN * 8
    assert count_kept_bytes(run_in_chunks, draw_ffn_leaves()) == 0


@pytest.mark.parametrize("chunk", [16, 32])
def test_bytes_held_are_those_of_the_formula(chunk: int) -> None:
    leaves = [x.detach() for x in draw_ffn_leaves()]
    element = 8
    with Live(*leaves) as live:
        out = feed_forward.forward(*leaves, chunk)
    assert live.most == (S * D + 2 * chunk * HIDDEN) * element
    assert live.now == S * D * element
    with Live(*leaves, out) as live:
        feed_forward.backward(out, *leaves, chunk)
    gradients = (S * D + 2 * D * HIDDEN) * element
    assert live.most == gradients + max(3 * chunk, 2 * chunk + D) * HIDDEN * element


def test_feed_forward_gradients_are_those_of_autograd() -> None:
    x, w1, w2 = (x.detach()[:4, :4].clone().requires_grad_() for x in draw_ffn_leaves())
    way = feed_forward.chunked_feed_forward
    assert torch.autograd.gradcheck(lambda *leaves: way(*leaves, 3), (x, w1, w2))
    whole, parts = draw_ffn_leaves(), draw_ffn_leaves()
    (feed_forward.feed_forward(*whole) ** 2).sum().backward()
    (run_in_chunks(parts[0].view(4, -1, D), *parts[1:]) ** 2).sum().backward()
    assert all(is_close(x.grad, y.grad, 1e-12) for x, y in zip(parts, whole, strict=True))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda x, w1, w2: (x.float(), w1, w2, 8), TypeError, "bring them to one"),
        (lambda x, w1, w2: (x, w1.mT, w2, 8), ValueError, r"the shapes \(192, 24\)"),
        (lambda x, w1, w2: (x, w1, w2, 0), ValueError, "chunk = 0 has no row"),
    ],
)
def test_feed_forward_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^blockwise_attention: .*{said}"):
        feed_forward.chunked_feed_forward(*change(*draw_ffn_leaves()))


def test_sums_of_16_bits_lose_digits_with_every_merge() -> None:
    """By about the root of a third of the merges; sums of 32 bits do not."""
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(512, 16, generator=generator).bfloat16() + 1 for _ in range(192)]
    lse = torch.zeros(512)
    errors = {}
    for dtype in (torch.bfloat16, torch.float32):
        out, total = sides[0].to(dtype), lse
        for part in sides[1:]:
            wide, total = merge(out.float(), total, part.float(), lse)
            out = wide.to(dtype)
        truth = torch.stack(sides).double().mean(0)
        errors[dtype] = float((out.double() - truth).norm() / truth.norm())
    assert errors[torch.float32] < 1e-6
    assert errors[torch.bfloat16] > 2 * 2**-9 / 3**0.5 * (192 / 3) ** 0.5 / 4


def test_chunks_that_the_page_names_pay_for_their_merges() -> None:
    """14 n - 10 bytes an element of q, against 4 C n operations, on an H100."""
    element = cases.TIMED[3]["d"]

    def merge_share(chunk: int, count: int) -> float:
        merges = (14 * count - 10) * element / 3.35e12
        return merges / (4 * chunk * count * element / 600e12)

    assert merge_share(8192, 10**6) < 0.08 < merge_share(7168, 10**6)
    assert merge_share(8192, 2) < 0.05
