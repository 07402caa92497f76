"""Fusion: vector and matrix steps in one kernel, SwiGLU, and a whole MLP as one kernel."""

from __future__ import annotations

import pytest
from conftest import read_demo
from cuda_snippet import line_counts

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import papergpu  # noqa: E402

from snippets import cuda  # noqa: E402
from snippets.blas_fusion import blas_fusion  # noqa: E402
from snippets.blas_fusion import cases as blas_cases  # noqa: E402
from snippets.mlp_monolithic import cases as mlp_monolithic_cases  # noqa: E402
from snippets.mlp_monolithic import mlp_monolithic  # noqa: E402
from snippets.swiglu import cases as swiglu_cases  # noqa: E402
from snippets.swiglu import swiglu  # noqa: E402

# blas_fusion: what it refuses, sides of 0, and its bytes as the executed code moves them.

A, P, R = torch.arange(12.0).reshape(3, 4), torch.ones(4), torch.ones(3)


def draw_job(job: str, m: int, n: int) -> tuple:
    return blas_cases.inputs({"job": job, "m": m, "n": n}, "cpu", torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: blas_fusion.bicgk(A, P, R, "magic"),
            ValueError,
            "no way 'magic'; there are",
        ),
        (lambda: blas_fusion.bicgk(A, P.half(), R), TypeError, "p is torch.float16, not float32"),
        (lambda: blas_fusion.bicgk(A, R, R), ValueError, r"p has shape \(3,\), not \(4,\)"),
        (lambda: blas_fusion.bicgk(P, P, R), ValueError, "matrix has 1 dimensions, not 2"),
        (lambda: blas_fusion.bicgk(A.t(), R, P), ValueError, "elements of matrix lie 4 apart"),
        (lambda: blas_fusion.axpydot(A, A, A, 1.0), ValueError, "w has 2 dimensions, not 1"),
        (lambda: blas_fusion.axpydot(P[::2], P[:2], P[:2], 1.0), ValueError, "of w lie 2 apart"),
    ],
)
def test_what_cannot_be_computed_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^blas_fusion: .*{message}"):
        call()


def test_more_blocks_than_a_grid_has_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match="2 blocks are over"):
        blas_fusion.bicgk(torch.ones(17, 4), P, torch.ones(17))


@pytest.mark.parametrize("way", blas_fusion.WAYS)
@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 3), (3, 0)])
def test_without_rows_or_columns_sums_are_0(way, m, n):
    z, r = blas_fusion.axpydot(*(torch.ones(0),) * 3, 2.0, way)
    assert z.shape == (0,) and r == 0
    for job in ("bicgk", "gemver"):
        name, *given = draw_job(job, m, n)
        found, wanted = (
            getattr(blas_fusion, name)(*given, way),
            blas_cases.chain(name, *given),
        )
        assert all(map(torch.equal, found, wanted))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", blas_fusion.WAYS)
def test_what_begins_anywhere_and_rows_far_apart(way):
    _, w, v, u, a = draw_job("axpydot", 1, 1030)
    z, r = blas_fusion.axpydot(w[1:], v[1:], u[1:], a, way)
    torch.testing.assert_close(z, w[1:] - a * v[1:])
    torch.testing.assert_close(r, z @ u[1:])
    _, matrix, p, r = draw_job("bicgk", 19, 40)
    for view, right in ((matrix[:, 1:38], p[1:38]), (matrix[:, 4:36], p[:32])):
        q, s = blas_fusion.bicgk(view, right, r, way)
        torch.testing.assert_close(q, view @ right)
        torch.testing.assert_close(s, view.t() @ r)


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("job", ["axpydot", "bicgk", "gemver"])
def test_sums_are_the_same_bits_whatever_the_schedule(job):
    name, *given = draw_job(job, 70, 5000)
    for way in blas_fusion.WAYS:
        found = []
        for seed, schedule in enumerate(("robin", "far", "random")):
            with papergpu.settings(schedule=schedule, seed=seed):
                found.append(getattr(blas_fusion, name)(*given, way))
        for other in found[1:]:
            assert all(map(torch.equal, other, found[0]))


def test_strips_of_many_groups(monkeypatch):
    monkeypatch.setattr(blas_fusion, "BLOCKS", 1)
    assert blas_fusion.shares(600, 8, 4) == (1, 3, 256)
    name, *given = draw_job("gemver", 600, 8)
    for found, wanted in zip(
        blas_fusion.gemver(*given), blas_cases.reference(name, *given), strict=True
    ):
        assert (found - wanted).norm() < 5e-6 * wanted.norm()


@pytest.mark.parametrize("n", [1, 4, 1023, 1024, 4096, 16_384, 2**20])
@pytest.mark.parametrize("m", [1, 17, 512, 4096, 16_384, 2**20])
def test_shares_hold_every_row_and_column_once(m, n):
    for v in (1, 4):
        tiles, strips, rows = blas_fusion.shares(m, n, v)
        assert (tiles - 1) * 256 * v < n <= tiles * 256 * v
        assert (strips - 1) * rows < m <= strips * rows
        assert rows % 8 == 0 and blas_fusion.STRIPS[0] <= rows <= blas_fusion.STRIPS[1]


@pytest.mark.parametrize("way", blas_fusion.WAYS)
@pytest.mark.parametrize("job", ["axpydot", "bicgk", "gemver"])
def test_executed_code_moves_the_bytes_of_the_formula(job, way):
    """Its sectors: what `moved` counts, and vectors that each strip or tile reads again."""
    m, n = (1, 32_768) if job == "axpydot" else (64, 2048)
    name, *given = draw_job(job, m, n)
    found: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(found.append):
        getattr(blas_fusion, name)(*given, way)
    rows = line_counts(found, "blas_fusion")
    sectors = sum(line["sectors"] for line in rows if line.get("sectors"))
    tiles, strips, _ = blas_fusion.shares(m, n, 4)
    assert (tiles, strips) == (2, 4) or job == "axpydot"
    again = {  # by strip a vector along the columns, by tile one along the rows
        "axpydot": 0,
        "bicgk": (strips - 1) * n + (tiles - 1) * m,
        "gemver": 3 * (strips - 1) * n + 3 * (tiles - 1) * m,
    }[job]
    bytes_ = blas_fusion.moved(job, way, m, n) + 4 * again
    assert abs(32 * sectors - bytes_) <= 0.002 * bytes_


def test_demo_finds_both_ways_right():
    lines = read_demo(blas_fusion).splitlines()
    assert [line.split("right by ")[1] for line in lines[:3]] == ["chain, fused"] * 3


# swiglu: what it refuses, in place, offsets past 2**31, and its operators.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_gates(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def test_swiglu_refuses_what_does_not_fit() -> None:
    with pytest.raises(TypeError, match="gate is torch.int64, none of float32"):
        swiglu.swiglu(torch.zeros(2, 4, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match=r"\(2, 7\), whose rows have no halves"):
        swiglu.swiglu(draw_gates(2, 7))
    with pytest.raises(ValueError, match="0 dimensions"):
        swiglu.swiglu(draw_gates(), draw_gates())
    with pytest.raises(TypeError, match="up is torch.float16 on"):
        swiglu.swiglu(draw_gates(2, 4), draw_gates(2, 4, dtype=torch.float16))
    with pytest.raises(TypeError, match="up is torch.float32 on meta"):
        swiglu.swiglu(draw_gates(2, 4), torch.zeros(2, 4, device="meta"))
    with pytest.raises(ValueError, match=r"up is \(2, 3\), but gate \(2, 4\)"):
        swiglu.swiglu(draw_gates(2, 4), draw_gates(2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("variant", swiglu_cases.VARIANTS)
def test_large_gates_are_finite(variant: str, dtype: str) -> None:
    gate = torch.tensor([-1e4, -6e4, 6e4, 1e4, -89.0, -104.0, 89.0], device=DEVICE)
    gate = gate.to(getattr(torch, dtype))
    one = torch.ones_like(gate)
    y = swiglu.forward(gate, one, variant)
    dgate, dup = swiglu.backward(one, gate, one, variant)
    positive = (gate > 0).to(gate.dtype)
    assert torch.equal(y + 0.0, gate * positive + 0.0)
    assert torch.equal(dup + 0.0, gate * positive + 0.0)
    assert torch.equal(dgate + 0.0, positive)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("shape", [(3, 70), (2, 2500)])
def test_gradients_may_take_the_place_of_gate_and_up(shape: tuple[int, int]) -> None:
    gate, up, dy = draw_gates(*shape), draw_gates(*shape), draw_gates(*shape)
    wanted = swiglu.backward(dy, gate, up)
    x = torch.cat((gate, up), -1)
    found = swiglu.backward(dy, gate, up, into=(gate, up))
    assert found[0] is gate and found[1] is up
    assert torch.equal(gate, wanted[0]) and torch.equal(up, wanted[1])
    swiglu.backward(dy, *swiglu.halves(x), into=swiglu.halves(x))
    assert torch.equal(x, torch.cat(wanted, -1))


def test_refuses_to_write_where_elements_share_memory() -> None:
    gate, dy = draw_gates(1, 8).expand(3, 8), draw_gates(3, 8)
    with pytest.raises(ValueError, match="dgate has strides"):
        swiglu.backward(dy, gate, draw_gates(3, 8), into=(gate, draw_gates(3, 8)))
    wide = draw_gates(3, 16)[:, ::2]
    with pytest.raises(ValueError, match="dup has strides"):
        swiglu.backward(dy, draw_gates(3, 8), wide, into=(draw_gates(3, 8), wide))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_rows_far_apart() -> None:
    """Rows of one allocation whose offsets do not fit into 32 bits."""
    step = 2**30 + 8
    store = torch.empty(2 * step + 64, dtype=torch.bfloat16, device=DEVICE)
    gate = store.as_strided((3, 16), (step, 1))
    gate.copy_(draw_gates(3, 16))
    up = draw_gates(3, 16, dtype=torch.bfloat16)
    for variant in swiglu_cases.VARIANTS:
        assert torch.equal(
            swiglu.forward(gate, up, variant), swiglu.forward(gate.clone(), up, variant)
        )


@pytest.mark.exhaustive("shapes beyond its cases")
def test_more_dimensions() -> None:
    x = draw_gates(2, 3, 34).transpose(0, 1)
    y = swiglu.swiglu(x)
    assert y.shape == (3, 2, 17)
    truth = torch.nn.functional.silu(x[..., :17]) * x[..., 17:]
    assert torch.allclose(y, truth, atol=1e-5)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_operators() -> None:
    gate, up = draw_gates(3, 20).requires_grad_(), draw_gates(3, 20).requires_grad_()
    torch.library.opcheck(swiglu.gated, (gate, up))
    torch.library.opcheck(swiglu.packed, (draw_gates(3, 2, 20).requires_grad_(),))
    torch.library.opcheck(swiglu.packed, (draw_gates(3, 40)[:, ::2].requires_grad_(),))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_against_float64(packed: bool) -> None:
    x, dy = draw_gates(5, 2 * 33), draw_gates(5, 33)
    given = [x] if packed else [x[:, :33], x[:, 33:]]
    leaves = [each.detach().requires_grad_() for each in given]
    found = torch.autograd.grad(swiglu.swiglu(*leaves), leaves, dy)
    exact = x.double().requires_grad_()
    truth = torch.nn.functional.silu(exact[:, :33]) * exact[:, 33:]
    (due,) = torch.autograd.grad(truth, exact, dy.double())
    error = (torch.cat(found, -1).double() - due).norm() / due.norm()
    assert error < 5e-7


@pytest.mark.exhaustive("shapes beyond its cases")
def test_every_variant_meets_both_passes_and_every_dtype() -> None:
    met = {(case["pass"], case["packed"], case["dtype"]) for case in swiglu_cases.CASES}
    assert {which for which, _, _ in met} == {"forward", "backward"}
    for dtype in ("float32", "float16", "bfloat16"):
        assert {packed for _, packed, each in met if each == dtype} == {True, False} or (
            dtype != "float32"
        )
        assert {which for which, _, each in met if each == dtype} == {"forward", "backward"}


# mlp_monolithic: what it refuses, its counters, its order, and its operator.


def draw_rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape, device=DEVICE) * shape[-1] ** -0.5).to(dtype)


def test_mlp_monolithic_refuses_what_does_not_fit() -> None:
    x, w = draw_rows(2, 8), draw_rows(6, 8)
    with pytest.raises(ValueError, match="activation 'tanh' is unknown; take one of"):
        mlp_monolithic.forward(x, [w], (), "tanh")
    with pytest.raises(TypeError, match="x is torch.int64, none of float32"):
        mlp_monolithic.forward(torch.zeros(2, 8, dtype=torch.int64, device=DEVICE), [w])
    with pytest.raises(ValueError, match="0 weights and 0 biases"):
        mlp_monolithic.forward(x, [])
    with pytest.raises(ValueError, match="1 weights and 2 biases"):
        mlp_monolithic.forward(x, [w], [draw_rows(6), draw_rows(6)])
    with pytest.raises(TypeError, match=r"weights\[0\] is torch.float16 on"):
        mlp_monolithic.forward(x, [w.half()])
    with pytest.raises(TypeError, match=r"biases\[0\] is torch.float32 on meta"):
        mlp_monolithic.forward(x, [w], [torch.zeros(6, device="meta")])
    with pytest.raises(ValueError, match=r"x is \(17, 8\), not 0 to 16 rows"):
        mlp_monolithic.forward(draw_rows(17, 8), [w])
    with pytest.raises(ValueError, match=r"x is \(\), not 0 to 16 rows"):
        mlp_monolithic.forward(torch.zeros((), device=DEVICE), [w])
    with pytest.raises(ValueError, match=r"weights\[1\] is \(5, 7\); give it rows of 6"):
        mlp_monolithic.forward(x, [w, draw_rows(5, 7)])
    with pytest.raises(ValueError, match="give it an even number of rows of 8"):
        mlp_monolithic.forward(x, [draw_rows(7, 8), draw_rows(5, 3)], (), "swiglu")
    with pytest.raises(ValueError, match=r"biases\[0\] is \(5,\), but weights\[0\]"):
        mlp_monolithic.forward(x, [w], [draw_rows(5)])
    with pytest.raises(ValueError, match="strides .* give it adjacent columns"):
        mlp_monolithic.forward(x, [draw_rows(8, 6).T])


@pytest.mark.parametrize("programs", [0, 1000])
def test_refuses_programs_that_cannot_all_be_resident(programs: int) -> None:
    with pytest.raises(ValueError, match=f"{programs} programs, but .* take 1 to"):
        mlp_monolithic.forward(draw_rows(2, 8), [draw_rows(6, 8)], programs=programs)


@pytest.mark.exhaustive("each form of it compiled anew")
def test_counters_are_zero_after_every_launch() -> None:
    x, weights = draw_rows(3, 150), [draw_rows(70, 150), draw_rows(130, 70), draw_rows(20, 130)]
    for variant in mlp_monolithic_cases.VARIANTS:
        mlp_monolithic.forward(x, weights, variant=variant)
        assert mlp_monolithic.COUNTERS
        assert all(not held.any() for held in mlp_monolithic.COUNTERS.values())


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_bits_each_time_and_by_the_chain() -> None:
    x, weights = draw_rows(3, 150), [draw_rows(70, 150), draw_rows(130, 70), draw_rows(20, 130)]
    first = mlp_monolithic.forward(x, weights, programs=3)
    for variant in mlp_monolithic_cases.VARIANTS:
        assert torch.equal(first, mlp_monolithic.forward(x, weights, (), "relu", variant, 3))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("programs", [1, 2])
def test_any_number_of_programs_does(programs: int) -> None:
    x, weights = draw_rows(3, 150), [draw_rows(70, 150), draw_rows(130, 70), draw_rows(20, 130)]
    found = mlp_monolithic.forward(x, weights, programs=programs)
    due = mlp_monolithic_cases.layers("relu", x.double(), (*(w.double() for w in weights), None))
    assert (found.double() - due).norm() < 5e-6 * due.norm()


@pytest.mark.exhaustive("each form of it compiled anew")
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu_tanh", "swiglu"])
def test_large_values(activation: str) -> None:
    """What overflows in exp is 0 or the value itself, never NaN."""
    x = torch.tensor([[-1e4, 1e4, -89.0, 89.0]], device=DEVICE)
    eye = torch.eye(4, device=DEVICE)
    first = torch.cat([eye, eye]) if activation == "swiglu" else eye
    found = mlp_monolithic.forward(x, [first, eye], (), activation)
    kept = x * x if activation == "swiglu" else x
    assert torch.equal(found + 0.0, torch.where(x > 0, kept, 0.0))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_weights_whose_rows_lie_far_apart() -> None:
    """Offsets that do not fit into 32 bits."""
    step = 2**30 + 8
    store = torch.empty(2 * step + 64, dtype=torch.bfloat16, device=DEVICE)
    far = store.as_strided((3, 64), (step, 1))
    far.copy_(draw_rows(3, 64))
    x, last = draw_rows(2, 64, dtype=torch.bfloat16), draw_rows(5, 3, dtype=torch.bfloat16)
    for variant in mlp_monolithic_cases.VARIANTS:
        found = mlp_monolithic.forward(x, [far, last], (), "relu", variant)
        assert torch.equal(found, mlp_monolithic.forward(x, [far.clone(), last], (), "relu"))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("shape", [(150,), (2, 3, 150), (0, 150), (2, 0, 150)])
def test_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    x, weights = draw_rows(*shape), [draw_rows(70, 150), draw_rows(20, 70)]
    found = mlp_monolithic.forward(x, weights)
    due = mlp_monolithic_cases.layers("relu", x, (*weights, None))
    assert found.shape == due.shape
    assert torch.allclose(found, due, atol=1e-5)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_operator() -> None:
    weights, biases = [draw_rows(40, 30), draw_rows(5, 20)], [draw_rows(40), draw_rows(5)]
    torch.library.opcheck(mlp_monolithic.mlp, (draw_rows(2, 30), weights, biases, "swiglu"))
    x = draw_rows(30, 2).T
    found = mlp_monolithic.mlp(x, weights, biases, "swiglu")
    assert torch.equal(found, mlp_monolithic.forward(x.clone(), weights, biases, "swiglu"))
