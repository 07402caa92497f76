"""Reading a profile: the figures are those of the four reports on the page."""

N = 2048


def sms_from_a_report() -> str:
    blocks, waves = 16_384, 102.40
    return f"{blocks / waves / min(16, 4, 16, 4):.0f} SMs"


def issue_from_warps() -> str:
    return f"{100 * (1 - 3.93 / 12.27):.1f} %"


def bytes_twice() -> tuple[str, str]:
    compulsory = 4 * 4 * N * N
    naive, quads = 60.13e9 * 72.83e-3, 21.62e9 * 8.92e-3
    return f"{naive / compulsory:.0f} times", f"{quads / compulsory:.1f} times"


def occupancy_by_hand() -> tuple[str, str]:
    def share(registers: int) -> str:
        threads, warps = 256, 32
        blocks = min(65_536 // (registers * threads), 64 // 32, warps // (threads // 32))
        return f"{100 * blocks * (threads // 32) / warps:.0f} %"

    return share(128), share(96)


def who_is_to_blame() -> str:
    return f"{1 / (1 - 0.04):.2f} times"
