"""Mixtures of experts: the routing of tokens, and products of groups."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.grouped_gemm import cases as grouped_gemm_cases  # noqa: E402
from snippets.grouped_gemm import grouped_gemm as grouped  # noqa: E402
from snippets.grouped_gemm.tiles import SMALL  # noqa: E402
from snippets.grouped_gemm.weights import weight_gradient  # noqa: E402
from snippets.moe_routing import cases as moe_routing_cases  # noqa: E402
from snippets.moe_routing import moe_routing as routing  # noqa: E402
from snippets.moe_routing import move  # noqa: E402

# moe_routing: ties of every kind, gradients, whole layers, and refusals.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF, NAN = float("inf"), float("nan")


def draw_tokens(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize(
    ("row", "first", "second"),
    [
        ([1, 1, 1, 1], 0, 1),
        ([-0.0, 0, -1, 0], 0, 1),  # both zeros are one
        ([-INF, -INF, -INF, -INF], 0, 1),
        ([-INF, 3, -INF, -INF], 1, 0),
        ([INF, 0, INF, 5], 0, 2),
        ([1, NAN, INF, NAN], 1, 3),
        ([1e4, -1e4, 1e4, 0], 0, 2),
        ([-3, -1, -2, -1], 1, 3),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_ties_and_extremes(row: list[float], first: int, second: int, dtype: str) -> None:
    logits = torch.tensor([row], device=DEVICE, dtype=getattr(torch, dtype))
    experts, _, _ = routing.route(logits, routing.Gate(k=2))
    assert experts.tolist() == [[first, second]]


def test_a_row_of_minus_infinity_weighs_nothing() -> None:
    logits = torch.full((2, 6), -INF, device=DEVICE).requires_grad_()
    _, weights, mean = routing.route(logits, routing.Gate(k=2, normalise=True))
    assert not weights.any() and not mean.any()
    (weights.sum() + mean.sum()).backward()
    assert not logits.grad.any()


def test_bias_chooses_and_does_not_weigh() -> None:
    logits = torch.tensor([[2.0, 1, 0, -1]], device=DEVICE)
    bias = torch.tensor([-1.0, 0, 0, 1], device=DEVICE)
    gate = routing.Gate(k=2, score="sigmoid", normalise=True, scale=2.5)
    experts, weights, _ = routing.route(logits, gate, bias)
    assert experts.tolist() == [[3, 1]]
    scores = logits.sigmoid()[0, [3, 1]]
    assert torch.allclose(weights[0], 2.5 * scores / scores.sum())


def test_the_bias_of_an_expert_at_the_mean_stays() -> None:
    counts = torch.tensor([3, 5, 4, 4], dtype=torch.int32, device=DEVICE)
    bias = routing.rebalanced(torch.zeros(4, device=DEVICE), counts, rate=0.5)
    assert bias.tolist() == [0.5, -0.5, 0, 0]


def test_the_loss_of_switch_is_least_when_all_is_even() -> None:
    even = torch.full((4,), 0.25, device=DEVICE)
    counts = torch.tensor([2, 2, 2, 2], dtype=torch.int32, device=DEVICE)
    assert routing.balance_loss(counts, even) == 1
    skewed = torch.tensor([8, 0, 0, 0], dtype=torch.int32, device=DEVICE)
    mean = torch.tensor([0.7, 0.1, 0.1, 0.1], device=DEVICE)
    assert abs(float(routing.balance_loss(skewed, mean)) - 2.8) < 1e-6


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("gate", ["switch", "mixtral", "grouped"])
def test_gradient_of_the_gate_against_float64(gate: str) -> None:
    logits = draw_tokens(13, 24).requires_grad_()
    told = moe_routing_cases.GATES[gate]
    experts, weights, mean = routing.route(logits, told)
    pull, lean = draw_tokens(13, told.k, seed=1), draw_tokens(24, seed=2)
    ((weights * pull).sum() + (mean * lean).sum()).backward()
    exact = logits.detach().double().requires_grad_()
    scores = moe_routing_cases.scored(exact, told)
    due = moe_routing_cases.weights_of(scores, experts, told)
    ((due * pull).sum() + (scores.mean(0) * lean).sum()).backward()
    assert is_close(logits.grad, exact.grad)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_a_layer_and_its_gradients_against_float64() -> None:
    """Route, sort with a capacity, an expert that doubles by its number, come back."""
    x, logits = draw_tokens(29, 40).requires_grad_(), draw_tokens(29, 6).requires_grad_()
    experts, weights, _ = routing.route(logits, routing.Gate(k=2))
    to = routing.arrange(experts, 6, capacity=9, align=4)
    rows = routing.permute(x, to)
    factor = torch.zeros(len(rows), device=DEVICE)
    first = 0
    for e, end in enumerate(to.ends.tolist()):
        factor[first:end] = e + 1
        first = end
    y = routing.combine(rows * factor[:, None], weights, to)
    pull = draw_tokens(29, 40, seed=1)
    (y * pull).sum().backward()
    one, two = (z.detach().double().requires_grad_() for z in (x, logits))
    kept = (to.slots >= 0).double()
    assert kept.sum() < kept.numel()
    share = two.softmax(1).gather(1, experts.long()) * kept * (experts + 1)
    due = share.sum(1)[:, None] * one
    (due * pull.double()).sum().backward()
    assert is_close(y, due) and is_close(x.grad, one.grad) and is_close(logits.grad, two.grad)


def test_there_and_back_is_the_identity() -> None:
    x = draw_tokens(50, 33, dtype=torch.bfloat16)
    experts = (draw_tokens(50, 3).abs() * 2).int().clamp(max=4)
    to = routing.arrange(experts, 5)
    assert to.ends.tolist() == to.counts.cumsum(0).tolist()
    ones = torch.ones(50, 3, device=DEVICE) / 4
    assert torch.equal(routing.combine(routing.permute(x, to), ones, to), x * 0.75)
    # Copies of an expert stand in the order of their tokens.
    first = 0
    for end in to.ends.tolist():
        own = to.sources[first:end]
        assert torch.equal(own, own.sort().values)
        first = end


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("capacity", [None, 0, 3])
def test_all_tokens_on_one_expert(capacity: int | None) -> None:
    experts = torch.full((300, 1), 2, dtype=torch.int32, device=DEVICE)
    to = routing.arrange(experts, 4, capacity)
    kept = 300 if capacity is None else capacity
    assert to.counts.tolist() == [0, 0, 300, 0]
    assert to.ends.tolist() == [0, 0, kept, kept]
    assert to.slots.flatten().tolist() == [*range(kept), *[-1] * (300 - kept)]


def test_no_choice_is_an_expert() -> None:
    experts = torch.tensor([[-1, 4], [7, -5]], dtype=torch.int32, device=DEVICE)
    to = routing.arrange(experts, 4)
    assert (to.slots == -1).all() and (to.sources == -1).all()
    assert not routing.combine(draw_tokens(4, 8), torch.full((2, 2), INF).to(DEVICE), to).any()


def test_ranks_decide_alike_and_as_often_as_told() -> None:
    steps = [routing.stays_local(step, 0.3, seed=7) for step in range(2000)]
    assert steps == [routing.stays_local(step, 0.3, seed=7) for step in range(2000)]
    assert 540 < sum(steps) < 660
    assert steps != [routing.stays_local(step, 0.3, seed=8) for step in range(2000)]
    assert not any(routing.stays_local(step, 0) for step in range(100))
    assert all(routing.stays_local(step, 1) for step in range(100))


def test_a_local_step_chooses_among_own_experts_by_the_gate() -> None:
    logits = draw_tokens(40, 12)
    gate = routing.local(routing.deepseek_v3(k=4, groups=4, top_groups=2), 2, 4, 12)
    experts, _, _ = routing.route(logits, gate)
    assert gate.k == 3
    due = logits[:, 6:9].argsort(1, descending=True) + 6
    assert torch.equal(experts.long(), due)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU has no memory to waste")
def test_rows_that_lie_beyond_two_to_the_31() -> None:
    far = 2**30 + 8  # elements from row to row; what lies between is never touched
    store = torch.empty(2 * far + 16, dtype=torch.float16, device=DEVICE)
    x = store.as_strided((3, 16), (far, 1))
    x.copy_(draw_tokens(3, 16))
    near = x.clone()
    experts = torch.tensor([[1], [0], [0]], dtype=torch.int32, device=DEVICE)
    to = routing.arrange(experts, 2)
    weights = draw_tokens(3, 1)
    assert torch.equal(routing.permute(x, to), routing.permute(near, to))
    assert torch.equal(routing.combine(x, weights, to), routing.combine(near, weights, to))
    assert torch.equal(move.weighed(x, near, to.slots), move.weighed(near, x, to.slots))
    assert torch.equal(
        routing.route(x, routing.Gate(k=2))[0], routing.route(near, routing.Gate(k=2))[0]
    )


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_moe_routing_operators_keep_the_rules_of_operators() -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    logits = draw_tokens(6, 8).requires_grad_()
    told = (logits, None, *routing.Gate(k=2))
    torch.library.opcheck(routing.route_operator, told, test_utils=tests)
    experts, weights, _ = routing.route(logits, routing.Gate(k=2))
    told = (experts, 8, None, 4)
    torch.library.opcheck(routing.arrange_operator, told, test_utils=tests)
    to = routing.arrange(experts, 8, None, 4)
    told = (draw_tokens(6, 8).requires_grad_(), None, to.slots, to.sources)
    torch.library.opcheck(routing.permute_operator, told, test_utils=tests)
    rows = draw_tokens(to.sources.shape[0], 8).requires_grad_()
    told = (rows, weights.detach().requires_grad_(), to.slots, to.sources)
    torch.library.opcheck(routing.combine_operator, told, test_utils=tests)


def make_gate(**changes: object) -> routing.Gate:
    return routing.Gate()._replace(**changes)


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ((torch.zeros(3, 8).int(), make_gate()), TypeError, "logits is torch.int32, none of"),
        ((torch.zeros(8), make_gate()), ValueError, "logits has 1 dimensions"),
        ((torch.zeros(3, 1025), make_gate()), ValueError, "1025 experts; give it 1 to 1024"),
        ((torch.zeros(3, 8), make_gate(k=9)), ValueError, "k = 9 of 8 experts"),
        ((torch.zeros(3, 8), make_gate(score="relu")), ValueError, "score 'relu'"),
        ((torch.zeros(3, 8), make_gate(groups=3)), ValueError, "1 of 3 groups of 8"),
        ((torch.zeros(3, 8), make_gate(groups=2, first=1)), ValueError, "take all groups"),
        ((torch.zeros(3, 8), make_gate(k=3, first=6)), ValueError, "k = 3 of 2 experts"),
        ((torch.zeros(3, 8), make_gate(), torch.zeros(7)), ValueError, r"bias is \(7,\)"),
        ((torch.zeros(3, 8), make_gate(), torch.zeros(8).half()), TypeError, "bias is torch.f"),
    ],
)
def test_gates_refuse_in_one_clear_line(told, error: type, said: str) -> None:
    told = [x.to(DEVICE) if torch.is_tensor(x) else x for x in told]
    with pytest.raises(error, match=f"^moe_routing: .*{said}") as raised:
        routing.route(*told)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("shape", "dtype", "told", "error", "said"),
    [
        ((2, 2), torch.int64, (4,), TypeError, "experts is torch.int64; give int32"),
        ((2,), torch.int32, (4,), ValueError, "experts has 1 dimensions"),
        ((2, 2), torch.int32, (0,), ValueError, "0 experts"),
        ((2, 2), torch.int32, (4, -1), ValueError, "capacity -1"),
        ((2, 2), torch.int32, (4, None, 0), ValueError, "align 0"),
        ((2, 2), torch.int32, (1000, None, 2**22), ValueError, r"pass 2\*\*31 slots"),
    ],
)
def test_sorts_refuse_in_one_clear_line(shape, dtype, told, error: type, said: str) -> None:
    experts = torch.zeros(shape, dtype=dtype, device=DEVICE)
    with pytest.raises(error, match=f"^moe_routing: .*{said}") as raised:
        routing.arrange(experts, *told)
    assert "\n" not in str(raised.value)


# grouped_gemm: what its cases, which call the kernels, cannot see.

SIZES = [0, 20, 1, 9]


def draw_matrix(*shape: int, dtype=torch.float16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def find_group_ends(sizes: list[int]) -> torch.Tensor:
    return torch.tensor(sizes).cumsum(0).to(DEVICE, torch.int32)


def draw_groups() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """30 of 33 rows in four groups."""
    return draw_matrix(33, 16), draw_matrix(4, 16, 24), find_group_ends(SIZES)


def multiply_by_loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    parts = x.split([*SIZES, 3])
    done = [part @ own for part, own in zip(parts[:4], w, strict=True)]
    return torch.cat((*done, x.new_zeros(3, w.shape[2])))


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_grouped_gemm_operators_keep_the_rules_of_operators() -> None:
    x, w, ends = draw_groups()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = x.requires_grad_(), w.requires_grad_(), ends
    torch.library.opcheck(grouped.operator, told, test_utils=tests)
    told = x, draw_matrix(33, 24).requires_grad_(), ends
    torch.library.opcheck(grouped.weights, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_against_float64() -> None:
    x, w, ends = draw_groups()
    leaves = [x.requires_grad_(), w.requires_grad_()]
    dy = draw_matrix(33, 24, seed=1)
    found = torch.autograd.grad(grouped.grouped_gemm(x, w, ends), leaves, dy)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    due = torch.autograd.grad(multiply_by_loop(*exact), exact, dy.double())
    for one, other in zip(found, due, strict=True):
        assert is_close(one, other, 1e-3)
    assert not found[0][30:].any()
    assert not found[1][0].any()


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_a_gradient_of_a_gradient() -> None:
    x, w, ends = draw_groups()
    leaves = [x.requires_grad_(), w.requires_grad_()]
    dy = draw_matrix(33, 24, seed=1).requires_grad_()
    pair = torch.autograd.grad(grouped.grouped_gemm(x, w, ends), leaves, dy, create_graph=True)
    found = torch.autograd.grad(sum((each.float() ** 2).sum() for each in pair), dy)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    twin = dy.detach().double().requires_grad_()
    pair = torch.autograd.grad(multiply_by_loop(*exact), exact, twin, create_graph=True)
    due = torch.autograd.grad(sum((each**2).sum() for each in pair), twin)
    assert is_close(found[0], due[0], 2e-3)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("how", ["naive", "persistent"])
def test_rows_and_matrices_that_lie_beyond_two_to_the_31(how: str) -> None:
    far = 2**30 + 8  # elements from row to row; what lies between is never touched
    store = torch.empty(2 * far + 32 * 16, dtype=torch.float16, device=DEVICE)
    x, w = draw_matrix(3, 16), draw_matrix(3, 16, 16)
    ends = find_group_ends([1, 0, 2])
    due = grouped.product(x, w, ends, how)
    distant = store.as_strided((3, 16), (far, 1))
    distant.copy_(x)
    assert torch.equal(grouped.product(distant, w, ends, how), due)
    assert torch.equal(weight_gradient(distant, due, ends), weight_gradient(x, due, ends))
    distant = store.as_strided((3, 16, 16), (far, 16, 1))
    distant.copy_(w)
    assert torch.equal(grouped.product(x, distant, ends, how), due)


def test_rows_of_other_groups_do_not_reach_over() -> None:
    x, w, ends = draw_groups()
    x[20], x[5] = float("inf"), float("nan")  # the second group has row 20 no more
    y = grouped.grouped_gemm(x, w, ends)
    assert y[5].isnan().all() and not y[20].isfinite().any()
    others = [row for row in range(33) if row not in (5, 20)]
    assert y[others].isfinite().all()
    dw = weight_gradient(x, y.nan_to_num(0, 0, 0), ends)
    assert dw[[0, 3]].isfinite().all()


@pytest.mark.parametrize(
    ("layout", "described"),
    [
        (lambda x, w: (x, w), True),
        (lambda x, w: (x, w.mT.contiguous().mT), True),
        (lambda x, w: (x[:, ::2], w[:, ::2]), False),
        (lambda x, w: (x[:, 1:9], w[:, 1:9]), False),  # not on 16 bytes
        (lambda x, w: (x[:1].expand(33, -1), w), False),
        (lambda x, w: (x[:, :9], w[:, :9]), True),  # a row of 9, and 7 beside it
    ],
)
def test_descriptors_are_for_what_the_copy_engine_takes(layout, described: bool) -> None:
    x, w = layout(*draw_groups()[:2])
    assert (grouped.described(x, w, SMALL) is not None) is described


def test_few_rows_take_small_tiles_and_every_group_is_met() -> None:
    sizes = [1] * 40
    x, w, ends = draw_matrix(40, 32), draw_matrix(40, 32, 8), find_group_ends(sizes)
    truth = torch.bmm(x.double()[:, None], w.double())[:, 0]
    assert is_close(grouped.grouped_gemm(x, w, ends), truth, 1e-3)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda x, w, e: (x.double(), w, e), TypeError, "x is torch.float64, none of"),
        (lambda x, w, e: (x, w.bfloat16(), e), TypeError, "w is torch.bfloat16 on"),
        (lambda x, w, e: (x, w.to("meta"), e), TypeError, "w is torch.float16 on meta"),
        (lambda x, w, e: (x, w, e.long()), TypeError, "ends is torch.int64 on"),
        (lambda x, w, e: (x[0], w, e), ValueError, "x has 1 dimensions; give it 2"),
        (lambda x, w, e: (x, w[0], e), ValueError, "w has 2 dimensions; give it 3"),
        (lambda x, w, e: (x, w[:3], e), ValueError, r"w is \(3, 16, 24\); give it 4"),
        (lambda x, w, e: (x, w, e[None]), ValueError, "ends has 2 dimensions"),
        (lambda x, w, e: (x, w, e.new_zeros(1024)), ValueError, "1024 groups exceed 1023"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^grouped_gemm: .*{said}") as raised:
        grouped.grouped_gemm(*change(*draw_groups()))
    assert "\n" not in str(raised.value)


def test_cases_have_groups_of_every_kind() -> None:
    sizes = [
        grouped_gemm_cases.sizes_of(case) for case in grouped_gemm_cases.CASES if case["skewed"]
    ]
    assert any(0 in each for each in sizes)
    assert any(1 in each for each in sizes)
    assert all(
        sum(each) < case["m"] for each, case in zip(sizes, grouped_gemm_cases.CASES, strict=True)
    )
