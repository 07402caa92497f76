"""Coalescing: the sectors that a warp's addresses touch are the bytes that move.

Shapes  32 lanes, an address of a byte each, None for a lane that is not active
Bytes   32 for each sector that any lane touches, four sectors to a line of 128; a
        request asks for 4, 8 or 16 bytes a lane
Error   exact: whole numbers. Caches are left out: a sector counts once a request
Raises  ValueError for a width that is not 4, 8 or 16, for an address that it does not
        divide, and for more than 32 lanes
Source  nsight-compute-guide, leimao-coalesced, vectorized-access
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

# --8<-- [start:model]
LANES, SECTOR, LINE = 32, 32, 128  # bytes of a sector, and of a cache line

Addresses = Sequence[int | None]  # a byte address a lane; None: not active


def active(addresses: Addresses, width: int) -> list[int]:
    """The addresses of the lanes that take part, looked over."""
    if width not in (4, 8, 16):
        raise ValueError(f"sectors: width = {width} must be 4, 8 or 16 bytes")
    if len(addresses) > LANES:
        raise ValueError(f"sectors: {len(addresses)} lanes; a warp has {LANES}")
    found = [address for address in addresses if address is not None]
    for address in found:
        if address % width:
            raise ValueError(
                f"sectors: address {address} is no multiple of {width}; align it"
            )
    return found


def touched(addresses: Addresses, width: int = 4) -> Counter[int]:
    """The lanes in each sector; an aligned access lies in one."""
    return Counter(address // SECTOR for address in active(addresses, width))


def sectors(addresses: Addresses, width: int = 4) -> int:
    """Sectors of one request."""
    return len(touched(addresses, width))


def lines(addresses: Addresses, width: int = 4) -> int:
    """Cache lines of one request, each of which has a tag to look up."""
    return len({address // LINE for address in active(addresses, width)})


def least(addresses: Addresses, width: int = 4) -> int:
    """Sectors if the same lanes asked for bytes side by side, from a boundary on."""
    return -(-len(active(addresses, width)) * width // SECTOR)


def efficiency(addresses: Addresses, width: int = 4) -> float:
    """Different bytes asked for over bytes moved."""
    asked = len(set(active(addresses, width))) * width
    return asked / (SECTOR * sectors(addresses, width))


def strided(stride: int, width: int = 4, start: int = 0) -> list[int]:
    """Lane i takes element i * stride, the first one at byte `start`."""
    return [start + stride * width * lane for lane in range(LANES)]


# --8<-- [end:model]


def demo() -> None:
    """Sectors and use of what is moved, for strides and shifts."""
    print(f"{'access of a warp':30}{'asked':>7}{'sectors':>9}{'lines':>7}{'used':>7}")
    for name, addresses, width in (
        ("float, stride 1", strided(1), 4),
        ("float, stride 1, shifted by 4", strided(1, start=4), 4),
        ("float, stride 2", strided(2), 4),
        ("float, stride 4", strided(4), 4),
        ("float, stride 8", strided(8), 4),
        ("float, a row of 4 KiB each", strided(1024), 4),
        ("float, all lanes alike", [0] * LANES, 4),
        ("double, stride 1", strided(1, 8), 8),
        ("float4, stride 1", strided(1, 16), 16),
        ("float4, stride 2", strided(2, 16), 16),
    ):
        print(
            f"{name:30}{len(set(addresses)) * width:7}{sectors(addresses, width):9}"
            f"{lines(addresses, width):7}{efficiency(addresses, width):7.0%}"
        )


if __name__ == "__main__":
    demo()
