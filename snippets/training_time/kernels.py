"""Kernel classes of a training step: matrix products, attention, passes over memory.

Enters: a GPU's data sheet and the shape of a kernel. Leaves: seconds, if the kernel is
as good as a library's best. What a software stack reaches of that is one constant in
`training_time`, and not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from snippets.comm_model.comm_model import MACHINES, Machine

# --8<-- [start:gpus]
BYTES = 2  # an element in bf16 or fp16: an activation, a weight in use, its gradient
TILE = 128  # rows and columns of the output that a thread block computes
START = 5e-6  # seconds between the end of a kernel and the full speed of the next
PASS = 0.85  # of a data sheet's memory bandwidth that a pass over memory reaches


@dataclass(frozen=True)
class GPU:
    """A data sheet, and two shares of it that a library's best kernels reach."""

    name: str
    peak: float  # FLOP/s of dense products in bf16
    fp8: float  # the same in fp8; 0: it has none
    memory: float  # bytes a second
    sms: int
    products: float  # of the peak, by large products
    attention: float  # of the peak, by fused attention, forward and backward together
    hides: bool  # whether a product writes one tile while it multiplies the next
    machine: Machine


def _gpus() -> dict[str, GPU]:
    a100, h100, h800 = MACHINES["A100"], MACHINES["H100"], MACHINES["H800"]
    b200, gb200 = MACHINES["B200"], MACHINES["GB200"]
    hopper = (989.4e12, 1978.9e12)
    made = (
        GPU("A100", 312e12, 0, 2.039e12, 108, 0.90, 0.55, False, a100),
        GPU("A100 40 GB", 312e12, 0, 1.555e12, 108, 0.90, 0.55, False, a100),
        GPU("H100", *hopper, 3.35e12, 132, 0.83, 0.50, True, h100),
        GPU("H100 500 W", *hopper, 2.4e12, 132, 0.83, 0.40, True, h100),
        GPU("H800", *hopper, 3.35e12, 132, 0.83, 0.50, True, h800),
        GPU("B200", 2250e12, 4500e12, 7.7e12, 148, 0.70, 0.70, True, b200),
        GPU("GB200", 2500e12, 5000e12, 8.0e12, 152, 0.70, 0.70, True, gb200),
    )
    return {one.name: one for one in made}


GPUS = _gpus()
# --8<-- [end:gpus]


# --8<-- [start:classes]
@dataclass(frozen=True)
class Product:
    """`batch` products (m, k) x (k, n); `written` is bytes for an output element."""

    m: float
    n: float
    k: float
    batch: float = 1
    written: int = BYTES

    def seconds(self, gpu: GPU, fp8: bool = False) -> float:
        """Tiles in whole waves of all SMs at the rate of large products, or its bytes.

        The last wave takes as long as a full one, however few tiles are left for it.
        """
        tiles = self.batch * -(-self.m // TILE) * -(-self.n // TILE)
        waves = -(-tiles // gpu.sms)
        peak = gpu.fp8 if fp8 else gpu.peak
        rate = gpu.products * peak * tiles / (waves * gpu.sms)
        computed = 2 * self.batch * self.m * self.n * self.k / rate
        element = 1 if fp8 else BYTES
        read = self.batch * element * self.k * (self.m + self.n)
        written = self.batch * self.written * self.m * self.n
        memory = PASS * gpu.memory
        if gpu.hides:
            return START + max(computed, (read + written) / memory)
        return START + max(computed, read / memory) + written / memory


def passes(gpu: GPU, moved: float, kernels: int = 1) -> float:
    """Seconds of kernels that move `moved` bytes in all, and hardly compute."""
    return kernels * START + moved / (PASS * gpu.memory)


def fused_attention(gpu: GPU, flops: float) -> float:
    """Seconds of a kernel that keeps its scores on chip."""
    return START + flops / (gpu.attention * gpu.peak)


# --8<-- [end:classes]
