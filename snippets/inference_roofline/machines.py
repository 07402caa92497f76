"""GPUs by their data sheets, and what software was seen to make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

NODE = 8  # GPUs that share fast links
PORT = 64  # bytes that an SM takes from L2 in a cycle, at most


# --8<-- [start:machine]
@dataclass(frozen=True)
class Machine:
    """A GPU: bytes, bytes/s, and dense FLOP/s by the bits of an operand."""

    memory: float
    bandwidth: float
    rates: dict[int, float]
    ports: float  # bytes/s that all SMs together can take from L2
    link: float  # bytes/s, bus bandwidth of a large all-reduce in a node, as measured
    network: float  # bytes/s that a GPU sends to other nodes


@dataclass(frozen=True)
class Engine:
    """Software: the shares of a machine's limits that it reaches, and seconds lost."""

    bandwidth: float  # share of the memory's, by long reads
    products: dict[int, float]  # share of the matrix rate within a tile, by bits
    attention: float  # share of the 16-bit matrix rate, by fused attention
    ports: float  # share of L2's, where query heads read shared keys one by one
    grouped: bool = False  # a program has all query heads that share keys
    gap: float = 3e-6  # s from the end of a kernel to the start of the next
    message: float = 15e-6  # s of a collective but for its bytes
# --8<-- [end:machine]


# Links: all-reduces of 512 MiB by NCCL on eight A100 and on eight B200; 370 GB/s is a
# ring on eight H100. H800: what its users reach, of NVLink and of the network.
MACHINES = {
    "A100": Machine(80e9, 2.039e12, {16: 312e12}, 108 * 1.41e9 * PORT, 222e9, 25e9),
    "H100": Machine(
        80e9, 3.35e12, {16: 989e12, 8: 1979e12}, 132 * 1.83e9 * PORT, 370e9, 50e9
    ),
    "H200": Machine(
        141e9, 4.8e12, {16: 989e12, 8: 1979e12}, 132 * 1.83e9 * PORT, 370e9, 50e9
    ),
    "H800": Machine(
        80e9, 3.35e12, {16: 989e12, 8: 1979e12}, 132 * 1.83e9 * PORT, 160e9, 40e9
    ),
    "B200": Machine(
        180e9, 8e12, {16: 2250e12, 8: 4500e12}, 148 * 1.85e9 * PORT, 702e9, 50e9
    ),
}

# Fitted by least squares on the published rows, which the record marks; a test fits
# again. FlashAttention-2 reaches 0.35 of an H100 and 0.6 of an A100. The two shares for
# 16 bits in version 0.6.1 are of single products of 8192 cubed.
BANDWIDTH, PORTS = 0.86, 0.305
V6_A100 = Engine(BANDWIDTH, {16: 0.945}, 0.6, PORTS)
V6_H100 = Engine(BANDWIDTH, {16: 0.88, 8: 0.68}, 0.35, PORTS)
V5_A100 = replace(V6_A100, products={16: 0.70})
V5_H100 = replace(V6_H100, products={16: 0.88, 8: 0.57})

# What kernels have become since: attention that reads shared keys once, and products of
# Hopper in it (0.6 of the rate), and a step captured as a graph. Not fitted.
GROUPED = {
    "A100": replace(V6_A100, grouped=True, gap=1e-6),
    "H100": replace(V6_H100, grouped=True, gap=1e-6, attention=0.6),
}
GROUPED |= {name: GROUPED["H100"] for name in ("H200", "H800", "B200")}
