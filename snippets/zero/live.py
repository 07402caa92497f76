"""Bytes of the tensors that are alive in this process: what a rank really holds."""

from __future__ import annotations

import gc

import torch


# --8<-- [start:live]
def forget() -> None:
    """Leave out of `held` all that is there now."""
    gc.collect()
    gc.freeze()  # the collector looks no more at these, nor do we


def held() -> int:
    """Bytes of all storages that some tensor uses which was made since `forget`."""
    gc.collect()
    found: dict[int, int] = {}
    for one in gc.get_objects():
        # By type: isinstance would ask some objects of torch, which warn.
        if issubclass(type(one), torch.Tensor) and one.layout == torch.strided:
            grad = one.grad if one.is_leaf else None  # may have no Python object yet
            for tensor in (one, grad):
                if tensor is not None:
                    storage = tensor.untyped_storage()
                    found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())
# --8<-- [end:live]
