"""What verifies cross_entropy: small and nasty matrices, their truth, and its peers.

"forward" gives loss and lse, "gradient" these and both gradients, of sum(dloss * loss)
and, but for `plain` cases, of sum(dlse * lse). Of "given" the logits are there."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.cross_entropy.gradients import tiled
from snippets.cross_entropy.logits import given as of_given
from snippets.cross_entropy.logits import whole

IGNORED = -100
HELD = 2**31  # bytes of float64 logits that the reference holds at a time
NEEDS = {
    "seconds": 900,  # the reference multiplies in float64
    "variants": {
        "descriptors": {"sm": [90, 100, 103]},
        "torch.compile": {"cpu": "it would compile C++ for each shape; a GPU times it"},
    },
}
# Tiles of gradients come and go by 16 bytes and whole sectors, and meet in no bank; a
# few numbers of each row are read one by one.
TILE = {"sectors_over_ideal": 1.02, "wavefronts_over_ideal": 1.1, "wide_accesses": 0.8}
LIMITS = {
    # 128 x 256 sums that come out of tensor memory leave no register free on sm_100: up
    # to 92 bytes of a thread go to memory. On sm_80 and sm_90 none do.
    "*": {"spilled_bytes": 92, "shared_bytes": 227 * 1024},
    # On sm_100 the sums of rows meet between warps, by Triton's own reduction.
    "cross_entropy_forward": {
        "matrix_instructions": True,
        "sectors_over_ideal": 1.1,
        "wavefronts_over_ideal": 1.5,
    },
    # A lane reads the targets of its four rows in two loads, of 8 bytes each.
    "cross_entropy_merge": {"spilled_bytes": 0, "warps": 24, "sectors_over_ideal": 1.3},
    "cross_entropy_slice": {"matrix_instructions": True, **TILE},
    "cross_entropy_product": {
        "matrix_instructions": True, "spilled_bytes": 0, **TILE
    },
}


def narrow(found: tuple[torch.Tensor, ...], like: torch.Tensor) -> tuple:
    """Losses as wide as the inputs: to that, rounded logits let them be compared."""
    return tuple(x.to(like.dtype) for x in found)


def by(descriptors: bool) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Logits in tiles, read by descriptor where layout and dtype allow it, or never."""

    def run(which, hidden, weight, target, *more):
        told = (hidden, weight, target, IGNORED, *more)
        return narrow(tiled(*told, descriptors=descriptors), hidden)

    return run


def logits(which, hidden, weight, *more):
    """All logits in memory, and their gradients over them."""
    if which == "given":
        return narrow(of_given(hidden, weight, IGNORED), hidden)
    target, *more = more
    return narrow(whole(hidden, weight, target, IGNORED, *more), hidden)


VARIANTS = {"logits": logits, "tiles": by(False), "descriptors": by(True)}


def losses(hidden, weight, target):
    x = F.linear(hidden, weight).float() if weight is not None else hidden.float()
    loss = F.cross_entropy(x, target, ignore_index=IGNORED, reduction="none")
    return loss, torch.logsumexp(x, -1)


def differentiated(function, hidden, weight, target, dloss=None, dlse=None):
    """What `function` finds, and by autograd both gradients."""
    with torch.set_grad_enabled(dloss is not None):
        leaves = [x.detach().requires_grad_() for x in (hidden, weight)]
        loss, lse = function(*leaves, target)
        found = narrow((loss.detach(), lse.detach()), hidden)
        if dloss is None:
            return found
        total = (loss * dloss).sum()
        if dlse is not None:
            total = total + (lse * dlse).sum()
        return *found, *torch.autograd.grad(total, leaves)


def library(which, *given):
    """The same by PyTorch: a product and its own kernel."""
    if which == "given":
        return narrow(losses(given[0], None, given[1]), given[0])
    return differentiated(losses, *given)


@functools.cache
def compiler() -> Callable[..., tuple[torch.Tensor, ...]]:
    """torch.compile of the losses, compiled anew for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(losses, dynamic=False, fullgraph=True)


def compiled(which, *given):
    """The same by the kernels that torch.compile writes around the product."""
    if which == "given":
        return narrow(compiler()(given[0], None, given[1]), given[0])
    return differentiated(compiler(), *given)


PEERS = {"torch": library, "torch.compile": compiled}


def case(
    which: str, t: int, v: int, d: int, dtype: str, *kills: str, **more: object
) -> dict:
    """t rows, v words, d columns of hidden; a fifth of the targets is ignored."""
    row = {"pass": which, "t": t, "v": v, "d": d, "dtype": dtype, **more}
    if dtype == "float32":  # "descriptors" would launch the same as "tiles"
        row.setdefault("variants", ["logits", "tiles"])
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    case("forward", 1, 1, 1, "float32", "a lane of -inf subtracts -inf"),
    case("forward", 67, 131, 17, "float32",
         "last columns of hidden dropped", "columns taken as adjacent",
         "ignored rows have a loss", "lanes are not rescaled to the row's maximum",
         "a loss of two logarithms to two bases"),
    case("forward", 3, 131, 33, "float32",
         "words past the end count as logit 0", "columns past the end count as logit 0",
         shift=-100),
    case("forward", 2, 700, 1, "float32",
         "a tile of -inf subtracts -inf", "a lane of -inf subtracts -inf",
         "a part of -inf subtracts -inf",
         masked=True),
    case("forward", 3, 8300, 3, "float32",  # more than a lane or a join has at a time
         "a lane's sum is not rescaled when the maximum grows",
         "the parts' sum is not rescaled when the maximum grows",
         "joins the first parts only",
         rising=True),
    case("forward", 5, 700, 40, "float32",
         "no maximum", "rows of logits without the maximum", scale=3000),
    case("forward", 130, 300, 72, "bfloat16",
         "no maximum", "last columns of hidden dropped",
         scale=3000, variants=["tiles", "descriptors"]),
    case("gradient", 1, 2, 1, "float32",
         "targets without their one", "logits' gradients without the target"),
    # Long sums are not float32: where all tokens, or all words, are alike, they are of
    # equal numbers, and each addition rounds the same way.
    case("gradient", 1030, 70, 3, "float16",
         "rows of tiles beyond the first group taken as its own",
         "last tokens or words of a sum dropped", "ignored rows have gradients",
         "ignored rows of logits have gradients",
         variants=["logits", "tiles"]),
    case("gradient", 9, 4170, 5, "float16",  # two slices
         "targets of every slice counted from word 0", "slices are not added up",
         "the gradient of lse is dropped", variants=["logits", "tiles"]),
    case("gradient", 70, 37, 40, "float32",
         "logits' gradients without the target", "ignored rows have gradients",
         "ignored rows of logits have gradients"),
    case("gradient", 70, 333, 72, "float16",
         "gradients as small as they are", "the second half of a tile over the first",
         weak=True, variants=["tiles", "descriptors"]),
    case("gradient", 70, 333, 80, "bfloat16",
         "logits' gradients without the target", variants=["logits"]),
    case("given", 37, 1040, 0, "bfloat16", "rows of logits without the maximum",
         "a row of logits is read from the first", scale=300, variants=["logits"]),
)  # fmt: skip
TIMED = (
    # The heads of Llama 3 8B, Gemma 2 2B and GPT-2, whose vocabulary fills no tile.
    *(
        case(which, t, v, d, "bfloat16", plain=True)
        for which in ("forward", "gradient")
        for t, v, d in ((8192, 128256, 4096), (8192, 256000, 2304), (16384, 50257, 768))
    ),
    *(
        case(which, 2048, 32000, 1024, "float32", plain=True)
        for which in ("forward", "gradient")
    ),
    *(
        case("given", t, v, 0, "bfloat16", variants=["logits"])
        for t, v in ((8192, 128256), (16384, 50257))
    ),
)
COUNTED = (case("gradient", 128, 512, 256, "bfloat16"),)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """(pass, hidden, weight, target), and for gradients dloss and perhaps dlse."""
    t, v, d = case["t"], case["v"], case["d"]
    dtype = getattr(torch, case["dtype"])
    told = {"generator": generator, "device": device}
    hidden = torch.randn(t, d, **told)
    weight = torch.randn(v, d, **told) * max(d, 1) ** -0.5
    # One column in a hundred of hidden is six times as large.
    hidden = torch.where(torch.rand(1, d, **told) < 0.01, 6 * hidden, hidden)
    hidden *= case.get("scale", 1)
    if "shift" in case:  # moves every logit by it; whole numbers are added up exactly
        hidden, weight = hidden.round(), (2 * weight).round()
        hidden[:, :1] = 1
        weight[:, :1] = case["shift"]
    if case.get("rising"):
        hidden[:, :1] = 1
        weight[:, 0] = torch.arange(v, device=device) / 50
    if case.get("masked"):  # weights of -inf forbid all words but the last
        hidden = hidden.abs() + 0.1
        weight[:-3] = float("-inf")
    if case.get("weak") and d > 1:  # gradients that float16 has, of logits' it has not
        hidden[:, 0], hidden[:, 1] = 0, 20000
        weight[:, 1] = 0
        weight[:, 0] *= 30000
    target = torch.randint(max(v, 1), (t,), **told)
    if case.get("masked"):
        target = v - 1 - target % 3
    ignored = torch.rand(t, **told) < 0.2
    target = torch.where(ignored if v else ignored | True, IGNORED, target)
    if case["pass"] == "given":
        x = torch.randn(t, v, **told) * case.get("scale", 1)
        return "given", x.to(dtype), target
    given = hidden.to(dtype), weight.to(dtype), target
    if case["pass"] == "forward":
        return "forward", *given
    dloss = torch.rand(t, **told) / (2**20 if case.get("weak") else 1)
    if case.get("plain"):
        return "gradient", *given, dloss
    # Of the loss alone, the logits' gradients of a row add up to 0; so, where all words
    # are alike, would those of hidden, and no error is small beside that.
    return "gradient", *given, dloss, dloss * (2 + torch.rand(t, **told))


def reference(which, hidden, weight, target=None, dloss=None, dlse=None):
    """In float64, some rows at a time."""
    if which == "given":
        x, wanted = hidden.double(), weight.long()
        lse, counts = torch.logsumexp(x, -1), wanted != IGNORED
        hit = x.gather(1, wanted.clamp_min(0)[:, None])[:, 0] if x.numel() else lse
        return torch.where(counts, lse - hit, 0), lse
    t, v = hidden.shape[0], weight.shape[0]
    double = {"dtype": torch.float64, "device": hidden.device}
    loss, lse = torch.zeros(t, **double), torch.zeros(t, **double)
    dhidden, dweight = (torch.zeros(x.shape, **double) for x in (hidden, weight))
    if hidden.is_meta:  # asked for shapes alone
        return (loss, lse) if dloss is None else (loss, lse, dhidden, dweight)
    w = weight.double()
    step = max(1, HELD // (8 * max(v, 1)))
    for first in range(0, t, step):
        rows = slice(first, first + step)
        h, wanted = hidden[rows].double(), target[rows].long()
        x = h @ w.T
        total = torch.logsumexp(x, -1)
        counts = wanted != IGNORED
        hit = F.one_hot(wanted.clamp_min(0), max(v, 1))[:, :v].bool() & counts[:, None]
        lse[rows] = total
        loss[rows] = torch.where(counts, total - x.masked_fill(~hit, 0).sum(-1), 0)
        if dloss is not None:
            share = torch.where(counts, dloss[rows].double(), 0)
            both = share if dlse is None else share + dlse[rows].double()
            dx = torch.exp(x - total[:, None]) * both[:, None]
            dx -= torch.where(hit, share[:, None], 0)
            dhidden[rows] = dx @ w
            dweight += dx.T @ h
    return (loss, lse) if dloss is None else (loss, lse, dhidden, dweight)


def cost(case: dict) -> dict:
    """One matrix product forward, three with gradients, as everyone counts it."""
    products = {"given": 0, "forward": 1, "gradient": 3}[case["pass"]]
    return {"flops": 2 * products * case["t"] * case["v"] * case["d"]}
