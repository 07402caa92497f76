"""Public CUDA kernels, run unmodified: `public_kernels.py CHECKOUTS [WORDS] [--record]`.

CHECKOUTS is a folder with a clone of each repository that public_kernels.toml names, at the commit
named there, as `owner+name`. Each kernel is launched as the table says, and what it wrote is
compared with a numpy reference of ours in float64. Prints a line for each: right, wrong or refused,
and why, and the seconds it took. WORDS choose kernels whose line has one of them; `--record` keeps
how many were right for the page about papergpu. Run by hand: no test needs the checkouts, and
nothing of them is kept here.
"""

from __future__ import annotations

import math
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measured_figures
import numpy as np
import torch
from papergpu.cuda import CompileError, Finding, Settings, Source, Unsupported

TABLE = Path(__file__).with_name("public_kernels.toml")
KINDS = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
    "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "i8": torch.int8,
    "u32": torch.uint32,    "i16": torch.int16, "e4m3": torch.float8_e4m3fn,
}  # fmt: skip
Arrays = dict[str, Any]
REFERENCES: dict[str, Callable[..., Arrays]] = {}


def register_reference(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
    REFERENCES[function.__name__] = function
    return function


def make_argument(text: str, rng: np.random.Generator) -> tuple[str, torch.Tensor]:
    """`x=normal f32 4x8`, or `k=ints:0:9 i32 100`: a name, how it is filled, its type and shape."""
    name, _, rest = text.partition("=")
    fill, kind, *shape = rest.split()
    size = [int(n) for n in shape[0].split("x")] if shape else [1]
    how, *numbers = fill.split(":")
    if how == "normal":
        data = rng.standard_normal(size) * (float(numbers[0]) if numbers else 1)
    elif how == "uniform":
        low, high = (float(n) for n in numbers) if numbers else (0.0, 1.0)
        data = rng.uniform(low, high, size)
    elif how == "ints":
        data = rng.integers(int(numbers[0]), int(numbers[1]), size)
    elif how == "shuffled":
        data = rng.permutation(math.prod(size)).reshape(size) * 7 + 1
    elif how == "boxes":
        corner = rng.uniform(0, 60, (size[0], 2))
        data = np.concatenate([corner, corner + rng.uniform(20, 40, (size[0], 2))], 1)
    elif how == "range":
        data = np.arange(math.prod(size)).reshape(size)
    else:  # full, of what nobody reads by mistake; zeros; ones
        value = {"zeros": 0.0, "ones": 1.0, "nothing": math.nan if kind[0] in "fb" else 99}
        data = np.full(size, float(numbers[0]) if how == "full" else value[how])
    if kind == "u32":
        return name, torch.from_numpy(np.asarray(data).astype(np.int64).astype(np.uint32))
    return name, torch.from_numpy(np.asarray(data, dtype=np.float64)).to(KINDS[kind])


def convert_tensor(value: torch.Tensor) -> Any:
    if value.dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float32):
        return value.double().numpy()
    return value.numpy().copy()


def judge_kernel(
    one: dict[str, Any], checkouts: Path, sources: dict[Any, Source]
) -> tuple[str, str]:
    """What became of one kernel, and why."""
    folder = checkouts / one["repository"].replace("/", "+")
    options = tuple(option.replace("@", f"{checkouts}/") for option in one.get("options", ()))
    key = (folder / one["file"], options, one.get("target", "sm_90a"))
    rng = np.random.default_rng(7)
    arrays: dict[str, torch.Tensor] = {}
    values: list[Any] = []
    for given in one["arguments"]:
        if isinstance(given, str) and given.startswith("struct:"):
            values.append(bytes(int(given.partition(":")[2])))
        elif isinstance(given, str) and given == "null":
            values.append(None)
        elif isinstance(given, str):
            name, array = make_argument(given, rng)
            arrays[name] = array
            values.append(array)
        else:
            values.append(given)
    before = {name: convert_tensor(array) for name, array in arrays.items()}
    if "rstd" in arrays and "mean" in arrays and "dout" in arrays:  # what a forward pass left
        rows = before["x"]
        arrays["mean"].copy_(torch.from_numpy(rows.mean(-1)))
        arrays["rstd"].copy_(torch.from_numpy(1 / np.sqrt(rows.var(-1) + 1e-5)))
    try:
        if key not in sources:
            sources[key] = Source(key[0], options, target=key[2])
        source = sources[key]
        for name, fill in one.get("globals", {}).items():
            _, array = make_argument(f"{name}={fill}", rng)
            before[name] = convert_tensor(array)
            source.globals(name).reshape(-1).view(np.uint8)[:] = (
                array.numpy().reshape(-1).view(np.uint8)
            )
        result = source.launch(
            one["kernel"], one["grid"], one["block"], *values, shared=one.get("shared", 0),
            cooperative=one.get("cooperative", False), cluster=one.get("cluster"),
            settings=Settings(checks=one.get("checks", True)),
        )  # fmt: skip
    except (CompileError, Unsupported) as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        return "refused", (lines or str(error).splitlines())[0]
    except Finding as error:
        # What the kernel really does wrong is named in the table: it is right to find that.
        return ("right" if one.get("finding", "?") in str(error) else "wrong"), str(error)
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        return "refused", f"{type(error).__name__}: {error}".splitlines()[0]
    if "finding" in one:
        return "wrong", f"it runs, and should have been found: {one['finding']}"
    want = REFERENCES[one["check"]](before, [v for v in one["arguments"] if not isinstance(v, str)])
    if "printed" in want:
        ok = want.pop("printed") in result.printed
        return ("right" if ok else "wrong"), "" if ok else result.printed[:200]
    tolerance = float(one.get("tolerance", 1e-4))
    for name, expected in want.items():
        if one.get("sorted"):  # in which order threads come is nobody's promise
            arrays[name] = arrays[name].sort().values
        got = convert_tensor(arrays[name]).astype(np.float64).reshape(-1)
        expected = np.asarray(expected, np.float64).reshape(-1)
        got = got[: len(expected)]
        same = (got == expected) & np.isinf(expected)
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0, np.abs(got - expected) / (1 + np.abs(expected)))
        if not (error <= tolerance).all():  # a NaN fails
            worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
            return "wrong", f"{name}[{worst}] is {got[worst]}, and {expected[worst]} is right"
    return "right", ""


# References. Each gets the arrays as they were and the table's other arguments, in order.


@register_reference
def softmax(a: Arrays, n: list[Any]) -> Arrays:
    e = np.exp(a["x"] - a["x"].max(-1, keepdims=True))
    return {"y": e / e.sum(-1, keepdims=True)}


@register_reference
def softmax_inplace(a: Arrays, n: list[Any]) -> Arrays:
    return {"x": softmax(a, n)["y"]}


@register_reference
def softmax_causal(a: Arrays, n: list[Any]) -> Arrays:
    """Rows of (N, T, T), of which only the lower triangle is written, scaled first."""
    x = a["x"] * n[0]
    t = x.shape[-1]
    x = np.where(np.tril(np.ones((t, t), bool)), x, -np.inf)
    e = np.exp(x - x.max(-1, keepdims=True))
    return {"y": np.tril(e / e.sum(-1, keepdims=True))}


@register_reference
def layernorm(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"]
    mean, var = x.mean(-1), x.var(-1)
    rstd = 1 / np.sqrt(var + 1e-5)
    y = (x - mean[:, None]) * rstd[:, None] * a.get("w", 1.0) + a.get("b", 0.0)
    return {"y": y, **({"mean": mean, "rstd": rstd} if "mean" in a else {})}


@register_reference
def layernorm_scalar(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"]
    return {
        "y": (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * n[0]
        + n[1]
    }


@register_reference
def rms_scalar(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"]
    return {"y": x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * n[0]}


@register_reference
def layernorm_backward(a: Arrays, n: list[Any]) -> Arrays:
    x, d, w = a["x"], a["dout"], a["w"]
    mean, rstd = x.mean(-1, keepdims=True), 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    hat = (x - mean) * rstd
    g = d * w
    dx = rstd * (g - g.mean(-1, keepdims=True) - hat * (g * hat).mean(-1, keepdims=True))
    return {"dx": dx, "dw": (d * hat).sum(0), "db": d.sum(0)}


@register_reference
def adamw(a: Arrays, n: list[Any]) -> Arrays:
    _, rate, b1, b2, c1, c2, eps, decay = n
    m = b1 * a["m"] + (1 - b1) * a["g"]
    v = b2 * a["v"] + (1 - b2) * a["g"] ** 2
    p = a["p"] - rate * (m / c1 / (np.sqrt(v / c2) + eps) + decay * a["p"])
    return {"p": p, "m": m, "v": v}


@register_reference
def gelu(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"]
    return {"y": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}


@register_reference
def gelu_backward(a: Arrays, n: list[Any]) -> Arrays:
    x, k = a["x"], math.sqrt(2 / math.pi)
    t = np.tanh(k * (x + 0.044715 * x**3))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)
    return {"dx": slope * a["dout"]}


@register_reference
def add(a: Arrays, n: list[Any]) -> Arrays:
    return {"c": a["a"] + a["b"]}


@register_reference
def scaled(a: Arrays, n: list[Any]) -> Arrays:
    return {"x": a["x"] * n[0]}


@register_reference
def copied(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"]}


@register_reference
def reversed_order(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"][::-1]}


@register_reference
def total(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"].astype(np.float64).sum()}


@register_reference
def total_by_block(a: Arrays, n: list[Any]) -> Arrays:
    """The sum of each of as many equal parts as there are results."""
    return {"y": a["x"].astype(np.float64).reshape(len(a["y"]), -1).sum(-1)}


@register_reference
def squares(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": (a["x"] ** 2).sum()}


@register_reference
def dot(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": (a["a"] * a["b"]).sum()}


@register_reference
def dots(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": (a["a"] * a["b"]).sum(-1)}


@register_reference
def transpose(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"].T}


@register_reference
def permuted(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"].transpose(3, 2, 0, 1)}


@register_reference
def histogram(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": np.bincount(a["x"].reshape(-1), minlength=len(a["y"]))}


@register_reference
def histogram_bytes(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": np.bincount(a["x"].view(np.uint8).reshape(-1), minlength=256)}


@register_reference
def total_first(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": [a["x"].sum()]}


@register_reference
def total_strided(a: Arrays, n: list[Any]) -> Arrays:
    """Each block takes pairs of parts of 128, a grid apart."""
    parts = a["x"].reshape(-1, len(a["y"]), 256)
    return {"y": parts.sum((0, 2))}


@register_reference
def grid_sum(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["x"].reshape(-1, len(a["y"]), 128).sum((0, 2))}


@register_reference
def dot_parts(a: Arrays, n: list[Any]) -> Arrays:
    """The sample begins at thread + 128 + block, so that is what is added up."""
    pairs = (a["a"] * a["b"]).reshape(-1, 2).sum(1)
    threads = np.arange(128)
    return {"y": [sum(pairs[i::256].sum() for i in threads + 128 + b) for b in range(len(a["y"]))]}


@register_reference
def cg_sums(a: Arrays, n: list[Any]) -> Arrays:
    return {"printed": "Sum of all ranks 0..63 in threadBlockGroup is 2016"}


@register_reference
def matmul(a: Arrays, n: list[Any]) -> Arrays:
    return {"c": a["a"] @ a["b"]}


@register_reference
def matmul_nt(a: Arrays, n: list[Any]) -> Arrays:
    return {"c": a["a"] @ a["b"].T + a.get("bias", 0.0)}


@register_reference
def gemm(a: Arrays, n: list[Any]) -> Arrays:
    """alpha and beta are the floats among the numbers, in order."""
    alpha, beta = [v for v in n if isinstance(v, float)]
    return {"c": alpha * (a["a"] @ a["b"]) + beta * a["c"]}


@register_reference
def gemm_plus(a: Arrays, n: list[Any]) -> Arrays:
    alpha, beta = n[-2:]
    return {"d": alpha * (a["a"].astype(np.float64) @ a["b"].astype(np.float64).T) + beta * a["c"]}


@register_reference
def matvec(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["a"] @ a["x"].reshape(-1)}


@register_reference
def column_sums(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["y"] + a["x"].sum(0)}


@register_reference
def embedding(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": a["w"][a["idx"]]}


@register_reference
def encoder(a: Arrays, n: list[Any]) -> Arrays:
    b, t, c = n
    return {"y": a["wte"][a["idx"]].reshape(b, t, c) + a["wpe"][None, :t]}


@register_reference
def encoder_backward(a: Arrays, n: list[Any]) -> Arrays:
    b, t, c = n
    dwte, dwpe = a["dwte"].copy(), a["dwpe"].copy()
    np.add.at(dwte, a["idx"].reshape(-1), a["dout"].reshape(-1, c))
    dwpe[:t] += a["dout"].reshape(b, t, c).sum(0)
    return {"dwte": dwte, "dwpe": dwpe}


@register_reference
def crossentropy(a: Arrays, n: list[Any]) -> Arrays:
    rows = a["p"].reshape(-1, a["p"].shape[-1])
    return {"y": -np.log(rows[np.arange(len(rows)), a["t"].reshape(-1)])}


@register_reference
def crossentropy_backward(a: Arrays, n: list[Any]) -> Arrays:
    rows, targets = a["p"].copy(), a["t"].reshape(-1)
    rows[np.arange(len(rows)), targets] -= 1
    return {"dlogits": a["dlogits"] + rows * a["dlosses"].reshape(-1, 1)}


@register_reference
def classifier(a: Arrays, n: list[Any]) -> Arrays:
    x, targets = a["x"], a["t"].reshape(-1)
    e = np.exp(x - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    at = np.arange(len(x))
    d = p.copy()
    d[at, targets] -= 1
    return {"losses": -np.log(p[at, targets]), "dlogits": d * a["dlosses"].reshape(-1, 1)}


def compute_attention(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    s = q @ k.swapaxes(-1, -2) * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@register_reference
def attention(a: Arrays, n: list[Any]) -> Arrays:
    return {"o": compute_attention(a["q"], a["k"], a["v"], False, 1 / math.sqrt(a["q"].shape[-1]))}


@register_reference
def attention_causal(a: Arrays, n: list[Any]) -> Arrays:
    return {"o": compute_attention(a["q"], a["k"], a["v"], True, 1 / math.sqrt(a["q"].shape[-1]))}


def split_heads(a: Arrays, n: list[Any]) -> tuple[Any, Any, Any]:
    b, t, c, heads = n
    x = a["x"].reshape(b, t, 3, heads, c // heads).transpose(2, 0, 3, 1, 4)
    return x[0], x[1], x[2]


@register_reference
def query_key_inf(a: Arrays, n: list[Any]) -> Arrays:
    q, k, _ = split_heads(a, n)
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    lower = np.tril(np.ones(s.shape[-2:], bool))
    return {"y": np.where(lower, s, -np.inf)}


@register_reference
def unpacked(a: Arrays, n: list[Any]) -> Arrays:
    b, t, heads, d = n
    x = a["x"].reshape(b, t, 3, heads, d).transpose(2, 0, 3, 1, 4)
    return {"q": x[0], "k": x[1], "v": x[2]}


@register_reference
def sorted_pairs_1024(a: Arrays, n: list[Any]) -> Arrays:
    return sort_pairs(a, [1024])


def sort_pairs(a: Arrays, n: list[Any]) -> Arrays:
    """Keys in parts of n[0], each sorted; the values go with them, and keys are all different."""
    keys = a["keys"].reshape(-1, n[0])
    order = np.argsort(keys, axis=1)
    return {"y": np.take_along_axis(keys, order, 1),
            "z": np.take_along_axis(a["values"].reshape(keys.shape), order, 1)}  # fmt: skip


@register_reference
def sorted_values(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": np.sort(a["x"])}


@register_reference
def scan_exclusive(a: Arrays, n: list[Any]) -> Arrays:
    rows = a["x"].reshape(-1, n[0]).astype(np.int64)
    return {"y": np.cumsum(rows, axis=1) - rows}


@register_reference
def scan_inplace(a: Arrays, n: list[Any]) -> Arrays:
    rows = a["x"].reshape(len(a["sums"]), -1).astype(np.int64)
    return {"x": np.cumsum(rows, axis=1), "sums": rows.sum(1)}


@register_reference
def sequence(a: Arrays, n: list[Any]) -> Arrays:
    return {"y": np.arange(len(a["y"])) % 32}


@register_reference
def convolved_rows(a: Arrays, n: list[Any]) -> Arrays:
    kernel = a["c_Kernel"]
    padded = np.pad(a["x"], ((0, 0), (8, 8)))
    width = a["x"].shape[1]
    return {"y": sum(padded[:, 8 + k : 8 + k + width] * kernel[8 - k] for k in range(-8, 9))}


@register_reference
def convolved_columns(a: Arrays, n: list[Any]) -> Arrays:
    turned = convolved_rows({"x": a["x"].T, "c_Kernel": a["c_Kernel"]}, n)
    return {"y": turned["y"].T}


@register_reference
def walsh(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"].copy()
    step = 1
    while step < len(x):
        x = x.reshape(-1, 2, step)
        x = np.stack([x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], 1).reshape(-1)
        step *= 2
    return {"y": x}


@register_reference
def black_scholes(a: Arrays, n: list[Any]) -> Arrays:
    s, x, t = a["s"], a["x"], a["t"]
    r, v, _ = n
    normal = np.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))
    d1 = (np.log(s / x) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    call = s * normal(d1) - x * np.exp(-r * t) * normal(d2)
    put = x * np.exp(-r * t) * normal(-d2) - s * normal(-d1)
    return {"call": call, "put": put}


@register_reference
def positives(a: Arrays, n: list[Any]) -> Arrays:
    return {"count": (a["x"] > 0).sum()}


@register_reference
def odd_even(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"].astype(np.int64)
    return {"odds": (x % 2 != 0).sum(), "sums": [x[x % 2 != 0].sum(), x[x % 2 == 0].sum()]}


@register_reference
def kept_boxes(a: Arrays, n: list[Any]) -> Arrays:
    boxes, limit = a["boxes"], n[1]
    keep = np.ones(len(boxes))
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in range(len(boxes)):
        for j in range(i):
            w = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            h = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            inter = max(w, 0) * max(h, 0)
            if inter / (area[i] + area[j] - inter) > limit:
                keep[i] = 0
                break
    return {"keep": keep}


@register_reference
def rope(a: Arrays, n: list[Any]) -> Arrays:
    x = a["x"]
    rows, width = x.shape
    half = width // 2
    angle = np.arange(rows)[:, None] / 10000.0 ** (2 * np.arange(half) / (half * 2.0))
    one, two = x[:, 0::2], x[:, 1::2]
    y = np.empty_like(x)
    y[:, 0::2] = one * np.cos(angle) - two * np.sin(angle)
    y[:, 1::2] = one * np.sin(angle) + two * np.cos(angle)
    return {"y": y}


@register_reference
def popped(a: Arrays, n: list[Any]) -> Arrays:
    """Every other thread pushes half its number, then each pops one or gets -1."""
    half = len(a["y"]) // 2
    return {"y": [-1] * half + list(range(half))}


@register_reference
def greeting(a: Arrays, n: list[Any]) -> Arrays:
    return {"printed": "GPU: Hello world!"}


@register_reference
def normalised(a: Arrays, n: list[Any]) -> Arrays:
    length = math.sqrt(abs((a["a"] * a["b"]).sum()))
    return {"a": a["a"] / length, "b": a["b"] / length}


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    keeps = "--record" in arguments
    checkouts, *words = (one for one in arguments if one != "--record")
    counts: dict[str, int] = {}
    repositories: dict[str, dict[str, int]] = {}
    sources: dict[Any, Source] = {}
    named = ({"repository": name, **one} for name in table["commits"] for one in table[name])
    for one in named:
        line = f"{one['repository']} {one['file']} {one['kernel']}"
        if words and not any(word in line for word in words):
            continue
        start = time.perf_counter()
        verdict, why = judge_kernel(one, Path(checkouts), sources)
        seconds = time.perf_counter() - start
        counts[verdict] = counts.get(verdict, 0) + 1
        of = repositories.setdefault(one["repository"], {"all": 0, "right": 0, "faults": 0})
        of["all"] += 1
        of["right"] += verdict == "right"
        of["faults"] += verdict == "right" and "finding" in one
        print(
            f"{verdict:8} {seconds:6.2f} s  {line}" + (f"\n    {why[:400]}" if why else ""),
            flush=True,
        )
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    if keeps and not words:
        command = "python tests/papergpu/public_kernels.py CHECKOUTS --record"
        measured_figures.record_figures("public", "all", {"repositories": repositories}, command)
    return int(set(counts) != {"right"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
