"""Blackwell."""

FLOPS = 8192  # bf16, a cycle and SM
BLOCK = 227 * 1024  # bytes of shared memory
COLUMNS, LEAST = 512, 32


def columns() -> tuple[str, ...]:
    sums = 192  # one column for each: 128 lanes are the rows, a sum is 32 bits
    asked = LEAST
    while asked < sums:
        asked *= 2
    return f"{sums} columns", f"{asked} columns", f"{COLUMNS // sums} tiles"


def _stage(rows: int, columns: int, depth: int = 64) -> int:
    return 2 * depth * (rows + columns)


def stages() -> tuple[str, ...]:
    said = []
    for loaded in (_stage(128, 256), _stage(128, 256 // 2)):
        said += [f"{loaded / 1024:.0f} KB", f"{BLOCK // loaded} stages"]
    return tuple(said)


def bytes_a_cycle() -> tuple[str, ...]:
    said = []
    # Rows of A in an SM, columns of its product, columns of B in its shared memory.
    for rows, across, held in ((128, 128, 128), (128, 256, 256), (128, 256, 128)):
        cycles = 2 * rows * across * 16 / FLOPS
        said.append(f"{_stage(rows, held, depth=16) / cycles:.0f}")
    return tuple(said)


def bytes_of_a_format() -> tuple[str, ...]:
    bits = [element + 8 / block for element, block in ((8, 32), (4, 32), (4, 16))]
    return tuple(f"{one / 8 * 4096**2 / 1e6:.1f} MB" for one in bits)


def a_ring_over_the_rack() -> tuple[str, ...]:
    pairs = ((8, 450e9), (72, 900e9))
    return tuple(f"{1e3 * 2 * (p - 1) / p * 1e9 / rate:.2f} ms" for p, rate in pairs)
