"""The same product in Helion, which makes Triton of it; that is compiled as ours is."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import helion
import helion.language as hl
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# What Helion would search for, said: the tile, warps and stages of the others.
CHOSEN = helion.Config(
    block_sizes=[128, 128, 32], num_warps=4, num_stages=4, indexing="pointer"
)


# --8<-- [start:kernel]
@helion.kernel(config=CHOSEN)
def gemm_helion(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    for row, column in hl.tile([m, n]):
        sums = hl.zeros([row, column], dtype=torch.float32)
        for inner in hl.tile(k):
            sums = torch.addmm(sums, a[row, inner], b[inner, column])
        c[row, column] = sums.to(a.dtype)
    return c
# --8<-- [end:kernel]


def source() -> str:
    """The Triton of it, for sides of 4096."""
    a, b = (torch.empty(4096, 4096, dtype=torch.float16) for _ in range(2))
    return gemm_helion.bind((a, b)).to_triton_code(CHOSEN)


def binary(arch: str) -> tuple[bytes, str, int]:
    """The cubin, its symbol and the bytes of shared memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made_by_helion.py")
        path.write_text(source())
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        kernel = module._helion_gemm_helion
        signature = dict.fromkeys(kernel.arg_names, "*fp16")
        whole = {(at,): [["tt.divisibility", 16]] for at in range(len(signature))}
        made = triton.compile(
            ASTSource(fn=kernel, signature=signature, constexprs={}, attrs=whole),
            target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32),
            options={
                "num_warps": CHOSEN.num_warps, "num_stages": CHOSEN.num_stages
            },
        )  # fmt: skip
    return made.asm["cubin"], made.metadata.name, made.metadata.shared
