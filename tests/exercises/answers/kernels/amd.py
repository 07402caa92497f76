"""AMD GPUs."""

MATRIX_CORES, CLOCK = 1216, 2100e6  # an MI325X
TILES, DIES = 16, 8  # tiles of a side, and dies


def balance() -> str:
    return f"{1307e12 / 5.3e12:.0f} operations a byte"


def accumulators() -> tuple[str, str]:
    side, waves, lanes, file = 256, 8, 64, 512 * 1024
    return f"{side * side // (waves * lanes)} registers", f"{100 * side * side * 4 / file:.0f} %"


def peak_from_cycles() -> str:
    operations, cycles = 2 * 32 * 32 * 16, 32
    return f"{operations * MATRIX_CORES * CLOCK / cycles / 1e12:,.0f} Tflop/s"


def _panels(tiles: list[int]) -> str:
    rows, columns = {one // TILES for one in tiles}, {one % TILES for one in tiles}
    return f"{len(rows) + len(columns)} panels"


def panels() -> tuple[str, str, str]:
    every = range(TILES * TILES)
    own = len(every) // DIES
    patch = [row * TILES + column for row in range(4) for column in range(8)]
    assert len(patch) == own
    return _panels([*every[::DIES]]), _panels([*every[:own]]), _panels(patch)
