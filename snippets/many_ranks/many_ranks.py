"""One process as any rank of thousands: which collectives it calls, without the others.

Shapes  a transformer split over groups of t ranks, its gradients summed over groups
        of d: d t ranks in all
Bytes   of each collective as the rank hands it over; sent on a ring by a rank of P, of
        S bytes: all_reduce 2 (P - 1) / P S, all_gather and reduce_scatter half of it
Error   calls and bytes are exact, and those of real ranks; results are not computed
Raises  ValueError where t does not divide the ranks; RuntimeError in a group of ranks
Source  megatron-lm, fully-shard
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

from snippets import ranks as processes
from snippets.collectives import Library
from snippets.tensor_parallel import tensor_parallel as tp
from snippets.tensor_parallel.dtensor import Model, plan


class Call(NamedTuple):
    """A collective: its kind, the bytes of the whole tensor, the ranks of its group."""

    kind: str
    bytes: int
    size: int

    @property
    def sent(self) -> int:
        """Bytes that leave a rank on a ring."""
        passes = 2 if self.kind == "all_reduce" else 1
        return passes * self.bytes * (self.size - 1) // self.size


# --8<-- [start:recorder]
KINDS = {"allreduce": "all_reduce", "allgather": "all_gather",
         "all_gather": "all_gather", "all_reduce": "all_reduce",
         "reduce_scatter": "reduce_scatter"}  # fmt: skip


class Recorder(TorchDispatchMode):
    """Writes down each collective that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(one is DTensor for one in types):  # let it become tensors first
            return NotImplemented
        space, _, name = str(func).partition(".")
        name = name.lstrip("_")
        kinds = [kind for key, kind in KINDS.items() if name.startswith(key)]
        out = func(*args, **(kwargs or {}))
        if space in ("c10d", "_c10d_functional") and kinds:
            given = [*args, *(kwargs or {}).values()]
            tensors = [x for x in flat([out, given]) if isinstance(x, torch.Tensor)]
            whole = max(x.numel() * x.element_size() for x in tensors)
            self.calls.append(Call(kinds[0], whole, group_size(given)))
        return out


def flat(given: Any) -> Iterator[Any]:
    """Everything in nested lists and tuples."""
    for one in given:
        yield from flat(one) if isinstance(one, (list, tuple)) else [one]


def group_size(given: list[Any]) -> int:
    """How many ranks a call is for: by the group it names, or hands over."""
    for one in given:
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return dist.ProcessGroup.unbox(one).size()
    name = [one for one in given if isinstance(one, str)][-1]
    return dist.distributed_c10d._resolve_process_group(name).size()
# --8<-- [end:recorder]


# --8<-- [start:pretend]
@contextmanager
def pretend(rank: int, ranks: int) -> Iterator[None]:
    """Be this rank: collectives return at once, with whatever is in their memory."""
    # torch keeps it among its tests.
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise RuntimeError("many_ranks: this process is a rank; ask one that is not")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def mesh_of(ranks: int, t: int) -> DeviceMesh:
    """Ranks in groups of t that are neighbours, and of ranks / t with the same place.

    Raises ValueError where t does not divide them.
    """
    if ranks % t:
        raise ValueError(f"many_ranks: {ranks} ranks do not split into groups of {t}")
    return init_device_mesh("cpu", (ranks // t, t), mesh_dim_names=("data", "tensor"))
# --8<-- [end:pretend]


# --8<-- [start:steps]
def by_hand(mesh: DeviceMesh, layout: str) -> list[Call]:
    """A step of tensor_parallel, and its gradients summed over the other groups."""
    with Recorder() as recorder:
        told = tp.on_rank(Library(mesh.get_group("tensor")), layout, tp.SIZES)
        flat_grads = torch.cat([one.flatten() for one in told["grads"].values()])
        Library(mesh.get_group("data")).all_reduce(flat_grads)
    return recorder.calls


def by_torch(mesh: DeviceMesh) -> list[Call]:
    """A step of the same model by DTensor and FSDP2, a layer at a time."""
    # What FSDP2 returns is a view, of which nothing is changed in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped")
    ids, targets, _ = tp.whole(tp.SIZES)
    model = parallelize_module(
        Model(tp.SIZES).double(), mesh["tensor"], plan(tp.SIZES, False)
    )
    for one in (*model.layers, model):
        fully_shard(one, mesh=mesh["data"])
    with Recorder() as recorder, loss_parallel():
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
    return recorder.calls
# --8<-- [end:steps]


STEPS: dict[str, Callable[[DeviceMesh], list[Call]]] = {
    "tensor": lambda mesh: by_hand(mesh, "tensor"),
    "sequence": lambda mesh: by_hand(mesh, "sequence"),
    "torch": by_torch,
}


def on_rank(rank: int, ranks: int, t: int) -> dict[str, list[Call]]:
    """What each step calls on a rank that is there, with all others."""
    mesh = mesh_of(ranks, t)
    return {name: step(mesh) for name, step in STEPS.items()}


def as_rank(at: int, count: int, asked: list[int], ranks: int, t: int) -> Any:
    """The same on one that is not: process `at` is the rank that is asked there."""
    dist.destroy_process_group()  # which it has with those that are asked beside it
    with pretend(asked[at], ranks):
        return on_rank(asked[at], ranks, t)


def told_by(asked: list[int], ranks: int, t: int) -> list[dict[str, list[Call]]]:
    """What ranks of many call, each in a process of its own.

    torch remembers how it laid out a tensor, and with it the groups of one rank.
    """
    return processes.run(as_rank, len(asked), asked, ranks, t, backend="gloo")


def demo(device: str) -> None:
    """The collectives of one rank's step, by number of ranks."""
    t = 8
    print(f"{tp.SIZES}, groups of {t} ranks; rank 5's step")
    for ranks in (512, 4096):
        for way, calls in told_by([5], ranks, t)[0].items():
            print(f"{ranks} ranks, {way}:")
            for kind, size in sorted({(one.kind, one.size) for one in calls}):
                like = [one.sent for one in calls if one[::2] == (kind, size)]
                print(f"  {len(like):2} {kind} of {size} ranks, {sum(like)} B sent")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
