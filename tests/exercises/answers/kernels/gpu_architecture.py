"""GPU architecture: an H100's counts, as the page gives them."""


def warps_to_hide_a_load() -> tuple[str, str]:
    issued, wait = 12, 600
    return f"{1 + wait / issued:.0f} warps", f"{100 * 16 * issued / (issued + wait):.1f} %"


def what_fits() -> tuple[str, str]:
    threads, registers, shared = 384, 168, 100
    warps = threads // 32
    blocks = min(65_536 // (threads * registers), 227 // shared, 64 // warps, 32)
    return f"{blocks} block", f"{blocks * warps} warps"


def cheap_and_dear() -> str:
    return f"{4 * 1024 // 16} operations"


def a_word_from_afar() -> tuple[str, str]:
    rate = 132 * 128 * 1.755e9
    return f"{rate / 1e12:.1f} TB/s", f"{rate / 3.35e12:.1f} times"
