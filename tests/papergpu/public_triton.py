"""Public Triton operators, run unmodified: `public_triton.py CHECKOUTS [WORDS] [--record]`.

CHECKOUTS is a folder with a clone of each repository below at the commit named there, as
`owner+name`. Each line is an operator and, behind a bar, what it has to compute; where there is
none, torch has the same. Both are evaluated on the same inputs, on tensors that say that they are
on CUDA, and where a repository has gradients those are compared as well. Prints a line for each:
right, wrong, refused, or the fault that was found, with the seconds it took. WORDS choose lines
that have one of them; `--record` keeps the counts for the page about papergpu. Run by hand: no test
needs the checkouts, and nothing of them is kept here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import measured_figures
import papergpu
import torch
from torch.nn import functional as F

Values = dict[str, Any]


class Repository(NamedTuple):
    """A repository: where Python finds it, the names that its lines use, and the lines."""

    commit: str
    source: str
    modules: str
    lines: str
    gradients: bool = True
    tolerance: float = 2e-3
    bare: str = ""  # packages whose `__init__` imports what this has no need of


REPOSITORIES = {
    "FlagOpen/FlagGems": Repository(
        "532ff438c703", "src", "flag_gems.ops", """
abs(x); angle(x); atan(x); cos(x); erf(x); exp(x); exp2(x); log(p); neg(x); reciprocal(p)
rsqrt(p)
sigmoid(x); sin(x); sqrt(p); tanh(x); isfinite(x); isinf(x); isnan(x); nan_to_num(x)
relu(x); silu(x) | F.silu(x); gelu(x) | F.gelu(x); elu(x) | F.elu(x); celu(x) | F.celu(x)
softplus(x) | F.softplus(x); log_sigmoid(x) | F.logsigmoid(x); glu(e, 1) | F.glu(e, 1)
threshold(x, 0.1, 2.0) | F.threshold(x, 0.1, 2.0)
bitwise_not(i); logical_not(m); bitwise_and_tensor(i, j) | i & j; bitwise_or_tensor(i, j) | i | j
add(x, y); sub(x, y); mul(x, y); true_divide(x, p); floor_divide(i, k); remainder(i, k)
pow_tensor_tensor(p, x) | p ** x; pow_scalar(2.0, x) | 2.0 ** x
pow_tensor_scalar(p, 1.5) | p ** 1.5
maximum(x, y); minimum(x, y); eq(i, j); ne(i, j); lt(x, y); le(x, y); gt(x, y); ge(x, y)
logical_and(m, n); logical_or(m, n); logical_xor(m, n); isclose(x, y)
addcdiv(x, y, p); addcmul(x, y, p); lerp_tensor(x, y, p) | torch.lerp(x, y, p); polar(p, x)
clamp(x, -0.5, 0.5); clamp_tensor(x, -p, p) | torch.clamp(x, -p, p)
where_self(m, x, y) | torch.where(m, x, y)
masked_fill(x, m, 3.0); masked_select(x, m); flip(x, [1]); triu(a, 1); trace(a); diag(v)
diag_embed(x)
sum(x); sum_dim(x, [1]) | x.sum(1); mean(x); mean_dim(x, [1]) | x.mean(1); prod(p)
prod_dim(p, 1) | p.prod(1)
max(x); min(x); max_dim(x, 1) | x.max(1); min_dim(x, 1) | x.min(1); amax(x, [1]) | x.amax(1)
argmax(x, 1); argmin(x, 1)
all(m); any(m); all_dim(m, 1) | m.all(1); any_dim(m, 1) | m.any(1); count_nonzero(i); nonzero(i)
var_mean(x, [1]); std(x, 1); vector_norm(x) | torch.linalg.vector_norm(x); cumsum(x, 1)
cummin(x, 1); cummax(x, 1)
softmax(x, 1); log_softmax(x, 1); topk(x, 5); sort(x, 1); isin(i, j); quantile(x, 0.3, 1)
layer_norm(x, (33,), v, v)[0] | F.layer_norm(x, (33,), v, v)
rms_norm(x, (33,), v) | F.rms_norm(x, (33,), v)
group_norm(q, h, h, 3, 4, 50, 2, 1e-5)[0] | F.group_norm(q, 2, h, h)
mm(x, b); bmm(q, q.mT.contiguous()) | q @ q.mT; addmm(a[:7, :20], x, b); mv(x, v); dot(v, v)
vdot(v, v); addmv(u, x, v)
kron(v, v); addr(a, v, v)
cat([x, y], 1); stack([x, y]); hstack([x, y]); vstack([x, y])
repeat(x, [2, 3]) | x.repeat(2, 3); tile(x, (2, 3))
repeat_interleave_self_int(x, 3, 1) | x.repeat_interleave(3, 1); pad(x, (1, 2)) | F.pad(x, (1, 2))
gather(x, 1, k.long()); scatter(x, 1, o.expand(7, 33), y); index_select(x, 1, k[0].long())
embedding(x, k % 7) | F.embedding(k.long() % 7, x)
index_add(x, 1, k[0].long() * 0 + o, y); select_scatter(x, v, 0, 2)
slice_scatter(x, y[:3], 0, 2, 5)
arange(20) | torch.arange(20); linspace(0, 1, 9) | torch.linspace(0, 1, 9); eye(5) | torch.eye(5)
full((3, 4), 2.0) | torch.full((3, 4), 2.0); zeros((3,)) | torch.zeros(3); ones_like(x)
full_like(x, 3.0)
mse_loss(x, y) | F.mse_loss(x, y); conv1d(q, w1) | F.conv1d(q, w1)
conv2d(q[None], w2) | F.conv2d(q[None], w2)
max_pool2d_with_indices(q[None], 2)[0] | F.max_pool2d(q[None], 2)
avg_pool2d(q[None], 2) | F.avg_pool2d(q[None], 2)
upsample_nearest2d(q[None], (8, 100)) | F.interpolate(q[None], (8, 100))
eq_scalar(i, 2) | i == 2; ne_scalar(i, 2) | i != 2; lt_scalar(x, 0.2) | x < 0.2
le_scalar(x, 0.2) | x <= 0.2; gt_scalar(x, 0.2) | x > 0.2; ge_scalar(x, 0.2) | x >= 0.2
bitwise_and_scalar(i, 3) | i & 3; bitwise_or_scalar(i, 3) | i | 3; clamp_min(x, 0.1)
where_scalar_self(m, 1.0, y) | where(m, 1.0, y); where_scalar_other(m, x, 1.0) | where(m, x, 1.0)
lerp_scalar(x, y, 0.3) | lerp(x, y, 0.3); div_mode(x, p, rounding_mode="trunc") | (x / p).trunc()
gelu_backward(y, x) | ops.aten.gelu_backward(y, x)
silu_backward(y, x) | ops.aten.silu_backward(y, x)
sigmoid_backward(y, p) | ops.aten.sigmoid_backward(y, p)
tanh_backward(y, p) | ops.aten.tanh_backward(y, p)
threshold_backward(y, x, 0.1) | ops.aten.threshold_backward(y, x, 0.1)
softmax_backward(y, p, 1, y.dtype) | ops.aten._softmax_backward_data(y, p, 1, y.dtype)
log_softmax_backward(y, x, 1, y.dtype) | ops.aten._log_softmax_backward_data(y, x, 1, y.dtype)
nll_loss_forward(x, T)[0] | F.nll_loss(x, T); contiguous(x.mT) | x.mT
sort_stable(x, stable=True) | sort(x)
logspace(0, 1, 9, 2.0) | logspace(0, 1, 9, 2.0)
eye_m(5, 7) | eye(5, 7); zeros_like(x); ones((3, 4)) | ones(3, 4); fill_scalar(x, 2.0) | x * 0 + 2
conv3d(q[None, None], w2[:1, :1, None]) | F.conv3d(q[None, None], w2[:1, :1, None])
index_put(x, [T[:3] % 7], y[:3]) | x.index_put([T[:3] % 7], y[:3])
weight_norm_interface(a, v[:, None], 0)[0] | a / a.norm(dim=1, keepdim=True) * v[:, None]
index(x, [T % 7]) | x[T % 7]
scaled_dot_product_attention(f, f, f) | F.scaled_dot_product_attention(f, f, f)
""", gradients=False),
    "linkedin/Liger-Kernel": Repository(
        "ead96b618e5c", "src", "liger_kernel.transformers.functional", """
liger_rms_norm(x, v, 1e-6) | F.rms_norm(x, (33,), v, 1e-6)
liger_fused_add_rms_norm(x, y, v, 1e-6) | (F.rms_norm(x + y, (33,), v, 1e-6), x + y)
liger_layer_norm(x, v, s, 1e-6) | F.layer_norm(x, (33,), v, s, 1e-6)
liger_group_norm(q, h, g, 4, 2, 1e-6) | F.group_norm(q, 2, h, g, 1e-6)
liger_swiglu(x, y) | F.silu(x) * y; liger_geglu(x, y) | F.gelu(x, approximate="tanh") * y
liger_softmax(x) | softmax(x, 1); liger_relu_squared(x) | F.relu(x) ** 2
liger_dyt(x, c, v, s) | v * tanh(c * x) + s
liger_cross_entropy(x, T) | F.cross_entropy(x, T)
liger_cross_entropy(x, T, label_smoothing=0.1) | F.cross_entropy(x, T, label_smoothing=0.1)
liger_fused_linear_cross_entropy(x, a, T) | F.cross_entropy(x @ a.T, T)
liger_kl_div(F.log_softmax(x, 1), F.softmax(Y, 1), reduction="batchmean")
| F.kl_div(F.log_softmax(x, 1), F.softmax(Y, 1), reduction="batchmean")
liger_tvd(F.softmax(x, 1), F.softmax(Y, 1), reduction="sum")
| (F.softmax(x, 1) - F.softmax(Y, 1)).abs().sum() / 2
liger_rope(r, r + 0, C, S)[0] | r * C + cat([-r[..., 8:], r[..., :8]], -1) * S
"""),
    "BobMcDear/attorch": Repository(
        "67c2772baf33", ".", "attorch", """
GELU()(x) | F.gelu(x); SiLU()(x) | F.silu(x); ReLU()(x) | F.relu(x); ReLU6()(x) | F.relu6(x)
Tanh()(x) | tanh(x)
Sigmoid()(x) | sigmoid(x); Hardsigmoid()(x) | F.hardsigmoid(x); Hardswish()(x) | F.hardswish(x)
SELU()(x) | F.selu(x)
Mish()(x) | F.mish(x); Softplus()(x) | F.softplus(x); Softsign()(x) | F.softsign(x)
Tanhshrink()(x) | F.tanhshrink(x)
ELU()(x) | F.elu(x); CELU()(x) | F.celu(x); LeakyReLU()(x) | F.leaky_relu(x)
LogSigmoid()(x) | F.logsigmoid(x)
Hardtanh()(x) | F.hardtanh(x); Hardshrink()(x) | F.hardshrink(x)
Softshrink()(x) | F.softshrink(x)
Softmax(1)(x) | softmax(x, 1); Softmin(1)(x) | F.softmin(x, 1)
LogSoftmax(1)(x) | log_softmax(x, 1); GLU(1)(e) | F.glu(e, 1)
LayerNorm(33)(x) | F.layer_norm(x, (33,))
RMSNorm(33, eps=1e-6)(x) | F.rms_norm(x, (33,), eps=1e-6)
BatchNorm1d(4)(q) | F.batch_norm(q, None, None, training=True)
BatchNorm2d(4)(q[..., None]) | F.batch_norm(q, None, None, training=True)[..., None]
CrossEntropyLoss()(x, T) | F.cross_entropy(x, T); NLLLoss()(x, T) | F.nll_loss(x, T)
L1Loss()(x, Y) | F.l1_loss(x, Y); MSELoss()(x, Y) | F.mse_loss(x, Y)
SmoothL1Loss()(x, Y) | F.smooth_l1_loss(x, Y)
HuberLoss()(x, Y) | F.huber_loss(x, Y); Dropout(0.0)(x) | x; AvgPool1d(2)(q) | F.avg_pool1d(q, 2)
"""),
    "fla-org/flash-linear-attention": Repository(
        "bc3b101dcb71", ".", """
fla.ops.gla fla.ops.simple_gla fla.ops.delta_rule fla.ops.gated_delta_rule fla.ops.kda
fla.ops.linear_attn fla.ops.hgrn fla.ops.retention fla.ops.forgetting_attn
fla.ops.attn fla.modules.l2norm fla.modules.layernorm fla.modules.activations
""", """
fused_recurrent_gla(d, l, w, G)[0] | naive_recurrent_gla(d, l, w, G)[0]
chunk_gla(d, l, w, G)[0] | naive_recurrent_gla(d, l, w, G)[0]
fused_recurrent_simple_gla(d, l, w, g=N)[0] | naive_recurrent_simple_gla(d, l, w, N)[0]
chunk_simple_gla(d, l, w, g=N)[0] | naive_recurrent_simple_gla(d, l, w, N)[0]
parallel_simple_gla(d, l, w, N)[0] | naive_recurrent_simple_gla(d, l, w, N)[0]
chunk_gated_delta_rule(d, l, w, g=N, beta=B)[0]
| naive_recurrent_gated_delta_rule(d, l, w, B, N)[0]
fused_recurrent_delta_rule(d, l, w, B)[0] | naive_recurrent_gated_delta_rule(d, l, w, B, N * 0)[0]
chunk_kda(d, l, w, G, B)[0] | naive_recurrent_kda(d, l, w, G, B)[0]
fused_recurrent_linear_attn(d, l, w, normalize=False)[0] | naive_recurrent_linear_attn(d, l, w)[0]
chunk_linear_attn(d, l, w, normalize=False)[0] | naive_recurrent_linear_attn(d, l, w)[0]
chunk_retention(d, l, w)[0]
| naive_retention(*(one.transpose(1, 2) for one in (d, l, w))).transpose(1, 2)
parallel_attn(d, l, w) | naive_parallel_attn(d, l, w)[0]
parallel_forgetting_attn(d, l, w, N) | naive_forgetting_attn(d, l, w, N)
fused_recurrent_hgrn(d[..., 0, :], G[..., 0, :])[0]
| naive_recurrent_hgrn(d[..., 0, :], G[..., 0, :])[0]
chunk_hgrn(d[..., 0, :], G[..., 0, :])[0] | naive_recurrent_hgrn(d[..., 0, :], G[..., 0, :])[0]
l2norm(x) | F.normalize(x, dim=-1); rms_norm(x, v, None) | F.rms_norm(x, (33,), v, 1e-5)
layer_norm(x, v, s) | F.layer_norm(x, (33,), v, s); sigmoid(x) | torch.sigmoid(x)
swish(x) | F.silu(x)
logsigmoid(x) | F.logsigmoid(x); swiglu(x, y) | F.silu(x) * y
""", tolerance=3e-2),
    "state-spaces/mamba": Repository(
        "e9594ce1c732", ".", """
mamba_ssm.ops.triton.layernorm_gated mamba_ssm.ops.triton.selective_state_update
mamba_ssm.ops.triton.ssd_combined mamba_ssm.ops.triton.k_activations
""", """
rmsnorm_fn(x, v, None, z=y) | rms_norm_ref(x, v, None, z=y)
rmsnorm_fn(x, v, None, z=y, norm_before_gate=False)
| rms_norm_ref(x, v, None, z=y, norm_before_gate=False)
layernorm_fn(x, v, s) | F.layer_norm(x, (33,), v, s, 1e-6)
swiglu(e) | F.silu(e[:, :17]) * e[:, 17:]
selective_state_update(A.repeat(7, 1, 1), X, P, A, Y, Z, D=D, dt_bias=D)
| selective_state_update_ref(A.repeat(7, 1, 1), X, P, A, Y, Z, D=D, dt_bias=D)
mamba_chunk_scan_combined(w, P2, V2, l[:, :, :1], d[:, :, :1], 16)
| ssd_chunk_scan_combined_ref(w, P2, V2, l[:, :, :1], d[:, :, :1], 8)
""", tolerance=3e-2, bare="mamba_ssm"),
    "ModelTC/lightllm": Repository(
        "fc72ffab9a34", ".", """
lightllm.models.llama.triton_kernel.rmsnorm lightllm.models.llama.triton_kernel.silu_and_mul
lightllm.models.llama.triton_kernel.embedding
lightllm.common.basemodel.triton_kernel.destindex_copy_kv
""", """
rmsnorm_forward(x, v, 1e-6) | F.rms_norm(x, (33,), v, 1e-6)
out(silu_and_mul_fwd, H[:, :64], H[:, 64:] * 0) | F.silu(H[:, :32]) * H[:, 32:64]
out(embedding, T, a, 0, 33, x * 0) | F.embedding(T, a)
out(destindex_copy_kv, f[0], T[:2], f[0].repeat(17, 1, 1) * 0)
| (f[0].repeat(17, 1, 1) * 0).index_copy(0, T[:2], f[0])
""", gradients=False, bare="""lightllm lightllm.models lightllm.models.llama lightllm.common
lightllm.common.basemodel"""),
}  # fmt: skip


def make_inputs() -> Values:
    """The inputs by name, the same in each run; what has a great letter has no gradient."""
    torch.manual_seed(0)
    one = {"device": "cuda"}
    x, y = torch.randn(7, 33, **one), torch.randn(7, 33, **one)
    turn = torch.randn(1, 8, 8, **one).repeat(1, 1, 2)
    return {
        "x": x, "y": y, "p": torch.rand(7, 33, **one) + 0.5, "e": torch.randn(7, 34, **one),
        "m": x > 0, "n": y > 0, "i": torch.randint(-9, 9, (7, 33), **one),
        "j": torch.randint(-9, 9, (7, 33), **one), "k": torch.randint(1, 7, (7, 33), **one),
        "o": torch.randperm(33, **one), "v": torch.randn(33, **one), "u": torch.randn(7, **one),
        "a": torch.randn(33, 33, **one), "b": torch.randn(33, 20, **one),
        "q": torch.randn(3, 4, 50, **one), "h": torch.randn(4, **one),
        "w1": torch.randn(5, 4, 3, **one), "w2": torch.randn(5, 3, 3, 3, **one),
        "f": torch.randn(1, 2, 70, 128, dtype=torch.float16, **one),
        "s": torch.randn(33, **one), "g": torch.randn(4, **one), "c": torch.randn(1, **one),
        "r": torch.randn(2, 4, 8, 16, **one), "T": torch.randint(0, 33, (7,), **one),
        "Y": torch.randn(7, 33, **one), "C": torch.cos(turn), "S": torch.sin(turn),
        "d": torch.randn(1, 40, 2, 32, **one), "w": torch.randn(1, 40, 2, 32, **one),
        "l": F.normalize(torch.randn(1, 40, 2, 32, **one), dim=-1),
        "B": torch.rand(1, 40, 2, **one), "G": F.logsigmoid(torch.randn(1, 40, 2, 32, **one)),
        "N": F.logsigmoid(torch.randn(1, 40, 2, **one)), "P2": torch.rand(1, 40, 2, **one),
        "V2": -torch.rand(2, **one), "X": x, "P": torch.rand(7, 33, **one),
        "Z": torch.randn(7, 33, **one), "A": -torch.rand(33, 33, **one),
        "D": torch.randn(33, **one),
        "H": torch.randn(7, 96, dtype=torch.float16, **one),
    }  # fmt: skip


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(value, tuple | list):
        return [one for part in value for one in flatten(part)]
    return [] if value is None else [torch.as_tensor(value)]


def evaluate(text: str, names: Values, values: Values, gradients: bool) -> list[torch.Tensor]:
    """What an expression computes, and with gradients those of its inputs."""
    own = {name: one.detach().clone() for name, one in values.items()}
    asked = [one for name, one in own.items()
             if gradients and name[0].islower() and one.is_floating_point()]  # fmt: skip
    for one in asked:
        one.requires_grad_()
    found = flatten(eval(text, {"F": F, **names, **own}))
    if roots := [one for one in found if one.requires_grad]:
        torch.manual_seed(1)
        torch.autograd.backward(roots, [torch.randn(one.shape).to(one.dtype) for one in roots])
        found = [*found, *(one.grad for one in asked if one.grad is not None)]
    return [one.detach() for one in found]


def judge(line: str, names: Values, values: Values, repository: Repository) -> tuple[str, str]:
    """Right, wrong, refused or a finding; and why."""
    text, bar, due = line.partition(" | ")
    naive = {name: one for name, one in names.items() if "naive" in name or name.endswith("_ref")}
    reference = {**vars(torch), "torch": torch, "F": F, **naive}
    try:
        found = evaluate(text, names, values, repository.gradients)
        wanted = evaluate(due if bar else text, reference, values, repository.gradients)
        if len(found) != len(wanted):
            return "wrong", f"{len(found)} results, {len(wanted)} due"
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=repository.tolerance,
                                       atol=repository.tolerance, equal_nan=True,
                                       check_dtype=False)  # fmt: skip
    except AssertionError as error:
        return "wrong", str(error)
    except Exception as error:
        return "refused", f"{type(error).__name__}: {error}"
    return "right", ""


def import_bare(name: str, folder: Path) -> None:
    """A package without what its `__init__` imports."""
    made = sys.modules[name] = types.ModuleType(name)
    made.__path__ = [str(folder / name.replace(".", "/"))]


def give_last(function: Callable[..., Any], *given: Any) -> Any:
    """The last argument of a function, which it writes."""
    function(*given)
    return given[-1]


def main(arguments: list[str]) -> int:
    """Run, print, and return the exit status."""
    checkouts, *words = (one for one in arguments if one != "--record")
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    papergpu.activate("sm_90", cuda=True)
    counts: dict[str, dict[str, int]] = {}
    for name, one in REPOSITORIES.items():
        folder = Path(checkouts) / name.replace("/", "+")
        sys.path.insert(0, str(folder / one.source))
        asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True).stdout
        if not commit.startswith(one.commit):
            print(f"{folder}: is not there at {one.commit}; clone it and check that out")
            return 1
        names: Values = {"out": give_last}
        for package in one.bare.split():
            import_bare(package, folder / one.source)
        for module in one.modules.split():
            names |= vars(import_module(module))
            with suppress(ModuleNotFoundError):
                names |= vars(import_module(f"{module}.naive"))
        values, kernels = make_inputs(), set[str]()
        of = counts[name] = {"all": 0, "right": 0, "faults": 0, "kernels": 0}
        for line in one.lines.replace("\n| ", " | ").replace("; ", "\n").split("\n"):
            if not line or (words and not any(word in f"{name} {line}" for word in words)):
                continue
            seen: set[str] = set()
            faults: list[papergpu.Finding] = []
            start = time.perf_counter()
            with (papergpu.on_launch(lambda launched, seen=seen: seen.add(launched.name)),
                  papergpu.on_finding(faults.append)):  # fmt: skip
                verdict, why = judge(line, names, values, one)
            seconds = time.perf_counter() - start
            why = why or "; ".join(map(str, faults[:1]))
            of["all"] += 1
            of["right"] += verdict == "right"
            of["faults"] += bool(faults)
            kernels |= seen if verdict == "right" else set()
            told = f"\n    {why[:400]}" if why else ""
            print(f"{verdict:8} {seconds:6.2f} s  {name} {line}{told}", flush=True)
        of["kernels"] = len(kernels)
    total = {key: sum(of[key] for of in counts.values()) for key in ("right", "all", "kernels")}
    print("{right} of {all} operators are right, which launch {kernels} kernels".format(**total))
    if "--record" in arguments and not words:
        command = "python tests/papergpu/public_triton.py CHECKOUTS --record"
        measured_figures.record_figures("operators", "all", {"repositories": counts}, command)
    return int(total["right"] < total["all"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
