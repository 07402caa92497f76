"""PTX that is written by hand, executed on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from papergpu.decode import decode, memory_of
from papergpu.launch import Memory, Result, Settings, loaded
from papergpu.parse import parse

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel_of(body: str, parameters: int = 1, module: str = "") -> str:
    """A module with a kernel `k` of pointers p0, p1 and so on, in registers %rd0, %rd1 ...

    `body` has %r, %rd, %f, %fd, %h and %p of its own accord, 64 each.
    """
    given = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"  ld.param.u64 %rd{i}, [p{i}];" for i in range(parameters))
    registers = " ".join(
        f".reg .{kind} %{name}<64>;"
        for kind, name in (("b32", "r"), ("b64", "rd"), ("f32", "f"), ("f64", "fd"),
                           ("b16", "h"), ("pred", "p"))
    )  # fmt: skip
    return f"{HEAD}{module}\n.visible .entry k({given}) {{\n{registers}\n{loads}\n{body}\n}}\n"


def execute(
    ptx: str,
    *arrays: Any,
    name: str = "k",
    grid: Any = 1,
    block: Any = 32,
    settings: Settings | None = None,
    **more: Any,
) -> Result:
    """Launch kernel `name` on arrays, passed as pointers, and numpy scalars, passed as they are."""
    module = parse(ptx)
    kernel = loaded(decode(module, name), memory_of(module))
    values, touched = [], []
    for number, one in enumerate(arrays):
        if isinstance(one, np.ndarray):
            values.append(one.ctypes.data.to_bytes(8, "little"))
            touched.append(Memory(one.ctypes.data, one.nbytes, f"p{number}"))
        else:
            values.append(one.tobytes())
    return kernel.launch(
        three(grid), three(block), values, touched, settings=settings or Settings(threads=1), **more
    )


def three(given: Any) -> tuple[int, int, int]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    return (*sizes, 1, 1)[:3]
