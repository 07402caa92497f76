"""Kernel fusion."""

from snippets.fused_traffic.fused_traffic import VERSIONS, Operation, traffic

MEMORY = 3.35e12  # bytes a second
TENSOR = 8192**2 * 2


def _moved(name: str, wanted: tuple[str, ...] = ("sum",)) -> int:
    return sum(one.moved for one in traffic(VERSIONS[name], ["skip"], wanted))


def an_epilogue_s_worth() -> tuple[str, ...]:
    saved = [_moved(name) - _moved("epilogue") for name in ("four kernels", "two kernels")]
    return tuple(f"{1e6 * one * TENSOR / MEMORY:.0f} µs" for one in saved)


def launches_or_bytes() -> tuple[str, ...]:
    size = 3e-6 * MEMORY
    return f"{size / 1e6:.1f} MB", f"{size / 8 / 1e6:.2f} million elements"


def axpydot() -> tuple[str, ...]:
    axpy, dot = Operation("z", ("w", "v")), Operation("r", ("z", "u"))
    apart, fused = (
        sum(one.moved for one in traffic(kernels, ["w", "v", "u"], ["z"]))
        for kernels in (((axpy,), (dot,)), ((axpy, dot),))
    )
    return f"{apart} vectors", f"{fused} vectors", f"{apart / fused:.2f} times"


def kept_for_the_backward_pass() -> str:
    return f"{_moved('epilogue', ('sum', 'biased'))} tensors"
