"""Traffic of fused kernels: a tensor that lives and dies in one kernel moves no byte.

Bytes   the tensors that a kernel takes from others, and those that others take from it,
        each once
Error   exact: whole tensors
Raises  ValueError for an operation whose input nobody has made yet
Source  filipovic-kernel-fusion-blas
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


# --8<-- [start:model]
@dataclass(frozen=True)
class Operation:
    """What it makes from what. Small inputs, such as a bias, are left out."""

    makes: str
    takes: tuple[str, ...] = ()


Kernel = tuple[Operation, ...]


@dataclass(frozen=True)
class Traffic:
    """The tensors that a kernel reads and those that it writes."""

    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def moved(self) -> int:
        """Tensors moved."""
        return len(self.reads) + len(self.writes)


def traffic(
    kernels: Sequence[Kernel], given: Sequence[str], wanted: Sequence[str]
) -> list[Traffic]:
    """What each kernel moves; `given` lie in memory before, `wanted` must after."""
    known, found = set(given), []
    for at, kernel in enumerate(kernels):
        made: set[str] = set()
        reads: set[str] = set()
        for operation in kernel:
            for name in operation.takes:
                if name not in known | made:
                    raise ValueError(f"fused_traffic: nobody has made {name!r} yet")
                if name not in made:
                    reads.add(name)
            made.add(operation.makes)
        later = {
            name for other in kernels[at + 1 :] for one in other for name in one.takes
        }
        writes = made & (later | set(wanted))
        known |= writes
        found.append(Traffic(frozenset(reads), frozenset(writes)))
    return found


# --8<-- [end:model]

# --8<-- [start:versions]
# A linear layer's tail. What the product itself reads is the same in every version.
PRODUCT = Operation("product")
BIAS = Operation("biased", ("product",))
GELU = Operation("gelu", ("biased",))
ADD = Operation("sum", ("gelu", "skip"))
VERSIONS: dict[str, tuple[Kernel, ...]] = {
    "four kernels": ((PRODUCT,), (BIAS,), (GELU,), (ADD,)),
    "two kernels": ((PRODUCT,), (BIAS, GELU, ADD)),
    "epilogue": ((PRODUCT, BIAS, GELU, ADD),),
}
# --8<-- [end:versions]


def demo() -> None:
    """The tensors that each version moves, and the time of 8,192 squares in bf16."""
    size = 8192 * 8192 * 2
    for name, kernels in VERSIONS.items():
        moved = [one.moved for one in traffic(kernels, ["skip"], ["sum"])]
        total = sum(moved)
        line = f"{name:14}{' + '.join(map(str, moved)):>14} = {total}"
        print(f"{line} tensors, {total * size / 3.35e12 * 1e6:4.0f} us at 3.35 TB/s")


if __name__ == "__main__":
    demo()
