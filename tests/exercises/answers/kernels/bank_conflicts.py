"""Bank conflicts: every answer is counted by the page's own model."""

from snippets.bank_conflicts import bank_conflicts as banks

LANES = range(32)


def stride_of_six() -> tuple[str, str]:
    narrow = banks.wavefronts([4 * 6 * lane for lane in LANES])
    wide = banks.wavefronts([16 * 6 * lane for lane in LANES], 16)
    return f"{narrow} wavefronts", f"{wide} wavefronts"


def a_tile_of_doubles() -> tuple[str, str, str]:
    plain, padded = (banks.wavefronts([8 * side * lane for lane in LANES], 8) for side in (32, 33))
    return f"{plain} wavefronts", f"{padded} wavefronts", f"{100 / 33:.1f} %"


def where_the_chunk_goes() -> str:
    return f"byte {banks.chunk(3, 5, 128, banks.MODES['128-byte'])}"


def the_price_of_padding() -> tuple[str, str]:
    unused = 2 * 4 * 128 * 16
    return f"{unused / 1024:.0f} KiB", f"{100 * unused / (227 * 1024):.1f} %"


def mend_the_quads() -> tuple[str, str]:
    apart = [4 * 8 * (lane % 16) for lane in LANES]
    beside = [4 * 4 * (lane % 16) for lane in LANES]
    return (
        f"{banks.wavefronts(apart, 16)} wavefronts",
        f"{banks.wavefronts(beside, 16)} wavefronts",
    )
