"""Bank conflicts: a warp's addresses decide how often shared memory must be read.

Shapes  32 lanes, an address of a byte each, None for a lane that is not active. 32
        banks of 4 bytes: the bank of an address is address / 4 mod 32
Bytes   at most 128 a wavefront. An access of 4 bytes a lane goes in one piece, of 8 in
        two half-warps, of 16 in four quarter-warps; a piece takes as many wavefronts as
        its busiest bank has different words
Error   exact: whole numbers. Loads whose neighbouring lanes share an address go in half
        as many pieces; NVIDIA states that rule for compute capability 7.0 to 7.5
Raises  ValueError for a width that is not 4, 8 or 16, for an address that it does not
        divide, and for more than 32 lanes
Source  cuda-best-practices, lds-uniform-loads, leimao-shared-memory-swizzling,
        leimao-cute-swizzle, veitner-cute-swizzling
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# --8<-- [start:model]
LANES, BANKS, WORD = 32, 32, 4  # a bank gives a word of 4 bytes a cycle

Addresses = Sequence[int | None]  # a byte address a lane; None: not active


# --8<-- [start:degree]
def bank(address: int) -> int:
    """The bank that holds the word at `address`."""
    return address // WORD % BANKS


def degree(piece: Addresses, width: int) -> int:
    """Wavefronts of lanes that are served together: different words in one bank."""
    words: dict[int, set[int]] = {}
    for address in piece:
        for at in range(0, width if address is not None else 0, WORD):
            word = ((address or 0) + at) // WORD
            words.setdefault(word % BANKS, set()).add(word)
    return max(map(len, words.values()), default=0)


# --8<-- [end:degree]


def alike(warp: Addresses) -> bool:
    """Whether each lane loads what its neighbour does, one lane or two away."""
    for step in (1, 2):
        pairs = [(a, warp[lane ^ step]) for lane, a in enumerate(warp)]
        if all(a is None or b is None or a == b for a, b in pairs):
            return True
    return False


def pieces(addresses: Addresses, width: int = 4) -> list[Addresses]:
    """The groups of lanes in which a warp's load is served, one after the other."""
    if width not in (4, 8, 16):
        raise ValueError(f"bank_conflicts: width = {width} must be 4, 8 or 16 bytes")
    if len(addresses) > LANES:
        raise ValueError(f"bank_conflicts: {len(addresses)} lanes; a warp has {LANES}")
    for address in addresses:
        if address is not None and address % width:
            raise ValueError(
                f"bank_conflicts: address {address} is no multiple of {width}; align it"
            )
    warp = [*addresses, *[None] * (LANES - len(addresses))]
    share = LANES * WORD // width  # lanes that fill 128 bytes
    if width > WORD and alike(warp):
        share *= 2
    found = [warp[start : start + share] for start in range(0, LANES, share)]
    return [piece for piece in found if any(a is not None for a in piece)]


def wavefronts(addresses: Addresses, width: int = 4) -> int:
    """Passes through the banks that one access of a warp takes."""
    return sum(degree(piece, width) for piece in pieces(addresses, width))


def conflicts(addresses: Addresses, width: int = 4) -> int:
    """Wavefronts beyond one for each piece: what a profiler calls bank conflicts."""
    return wavefronts(addresses, width) - len(pieces(addresses, width))


def swizzle(address: int, bits: int) -> int:
    """Exchange the 16-byte chunks of each 128 bytes by the number of that line.

    `bits` is 1, 2 or 3 for the 32-, 64- and 128-byte mode of TMA and wgmma, 0 for none;
    CuTe writes it Swizzle<bits, 4, 3>.
    """
    line = address // 128
    return address ^ (line % 2**bits) * 16


# --8<-- [end:model]

# --8<-- [start:tiles]
Tile = Callable[[int, int], int]  # row, column -> byte address, of a 32 x 32 fp32 tile


def naive(row: int, column: int) -> int:
    """Rows of 32 words, one after the other."""
    return WORD * (32 * row + column)


def padded(row: int, column: int) -> int:
    """Rows of 33 words, of which the last is never used."""
    return WORD * (33 * row + column)


def swizzled(row: int, column: int) -> int:
    """Rows of 32 words; row r keeps column c at place c XOR r."""
    return WORD * (32 * row + (column ^ row))


def row_of(tile: Tile, row: int) -> list[int]:
    """A warp along a row: lane = column."""
    return [tile(row, lane) for lane in range(LANES)]


def column_of(tile: Tile, column: int) -> list[int]:
    """A warp down a column: lane = row."""
    return [tile(lane, column) for lane in range(LANES)]


# --8<-- [end:tiles]

# --8<-- [start:ldmatrix]
MODES = {"none": 0, "32-byte": 1, "64-byte": 2, "128-byte": 3}


def chunk(row: int, part: int, row_bytes: int, bits: int = 0) -> int:
    """Address of 16 bytes: chunk `part` of `row`, in a tile of rows side by side."""
    return swizzle(row * row_bytes + 16 * part, bits)


def ldmatrix(rows: Sequence[int]) -> int:
    """Wavefronts of one 8 x 8 matrix of 16-bit numbers: eight rows of 16 bytes."""
    if len(rows) != 8:
        raise ValueError(f"bank_conflicts: ldmatrix takes 8 rows, not {len(rows)}")
    return degree(rows, 16)


# --8<-- [end:ldmatrix]


def demo() -> None:
    """Wavefronts of strides, of a tile's rows and columns, and of ldmatrix."""
    print("wavefronts of a warp, by stride in elements")
    strides = (1, 2, 3, 4, 8, 16, 32, 33)
    print(f"{'':16}" + "".join(f"{s:5}" for s in strides))
    for width in (4, 8, 16):
        counts = [
            wavefronts([s * width * i for i in range(LANES)], width) for s in strides
        ]
        print(f"{width:2} bytes a lane " + "".join(f"{n:5}" for n in counts))
    print("\na tile of 32 x 32 fp32     row  column  bytes")
    for tile, size in ((naive, 32 * 32), (padded, 32 * 33), (swizzled, 32 * 32)):
        row = wavefronts(row_of(tile, 5))
        column = wavefronts(column_of(tile, 5))
        print(f"  {tile.__name__:22}{row:6}{column:8}{WORD * size:7}")
    print("\none matrix of ldmatrix, rows of   32 B  64 B  128 B")
    widths = {32: "32-byte", 64: "64-byte", 128: "128-byte"}
    for name in ("side by side", "16 bytes of padding", "swizzled in their own mode"):
        counts = []
        for size, mode in widths.items():
            step = size + 16 if "padding" in name else size
            bits = MODES[mode] if "mode" in name else 0
            counts.append(ldmatrix([chunk(r, 1, step, bits) for r in range(8)]))
        print(f"  {name:30}" + "".join(f"{n:6}" for n in counts))


if __name__ == "__main__":
    demo()
