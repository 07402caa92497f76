"""A matrix product, in plain torch: what the wrong kernels are made from.

Shapes  a (M, K), b (K, N) float32 -> (M, N) float32
FLOPs   2 * M * N * K
Error   within 5e-6 of a float64 reference
Raises  nothing
Source  none
"""

import torch


def kernel(a, b):
    out = torch.empty(a.shape[0], b.shape[1], device=a.device)
    return torch.matmul(a, b, out=out)


def demo(device):
    print(kernel(torch.eye(2).to(device), torch.ones(2, 2).to(device)).tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
