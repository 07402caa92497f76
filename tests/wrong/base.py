"""A matrix product, in plain torch: what the wrong kernels are made from.

Shapes  a (M, K), b (K, N) float32 -> (M, N) float32
FLOPs   2 * M * N * K
Error   within 5e-6 of a float64 reference
Raises  nothing
Source  none
"""

import torch

NEEDS = {"seconds": 20}
CASES = (
    {"m": 1, "n": 1, "k": 1},
    {"m": 17, "n": 5, "k": 33},
    {"m": 127, "n": 31, "k": 18},
    {"m": 64, "n": 16, "k": 16},
)
TIMED = ({"m": 512, "n": 512, "k": 512},)


def inputs(case, device, generator):
    a = torch.randn(case["m"], case["k"], device=device, generator=generator)
    b = torch.randn(case["k"], case["n"], device=device, generator=generator)
    return a, b


def reference(a, b):
    return a.double() @ b.double()


def kernel(a, b):
    out = torch.empty(a.shape[0], b.shape[1], device=a.device)
    return torch.matmul(a, b, out=out)


VARIANTS = {"product": lambda a, b: kernel(a, b)}
PEERS = {"torch": lambda a, b: a @ b}


def cost(case):
    m, n, k = case["m"], case["n"], case["k"]
    return {"bytes": 4 * (m * k + k * n + m * n), "flops": 2 * m * n * k, "unit": "fp32"}


def demo():
    print(kernel(torch.eye(2), torch.ones(2, 2)).tolist())


if __name__ == "__main__":
    demo()
