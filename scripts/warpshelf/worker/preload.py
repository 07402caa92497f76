"""Imports once what every child that verifies a kernel without a GPU needs.

The fork server imports this before the first child, where kernels are to come: torch's arithmetic
on tensors without data, which brings torch's compiler along; Triton and papergpu, each with the
digest of itself under which it keeps what it made. None touches CUDA or starts a thread, and what
is missing is done without.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os

import torch

os.environ["TRITON_INTERPRET"] = "0"  # Triton reads it at its import; each child sets the same
with contextlib.suppress(Exception):
    torch.empty(1, device="meta") + 1
with contextlib.suppress(Exception):
    importlib.import_module("triton")
    importlib.import_module("triton.runtime.cache").triton_key()
    importlib.import_module("triton.experimental.gluon.nvidia.hopper")  # the first launch's
with contextlib.suppress(Exception):
    importlib.import_module("papergpu.triton")
    importlib.import_module("papergpu.decode")
    importlib.import_module("papergpu.kernel_cache").cache_key()
gc.collect()
gc.freeze()  # no child searches for garbage here, or copies what it would look at
