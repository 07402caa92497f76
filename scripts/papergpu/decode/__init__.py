"""From a module's tree to the program that the engine runs.

A module as `parse` reads it enters, with the name of one of its kernels; what leaves is its
`Program`: arrays of instructions whose handlers are named, whose registers have their places, and
in which every call is the body of what it calls. What is not executed is refused with its line.
"""

from __future__ import annotations

from papergpu.decode.encoding import encoded, watched
from papergpu.decode.walk import Walk
from papergpu.errors import Unsupported
from papergpu.program import EXIT, Program
from papergpu.tree import Module
from papergpu.variables import Globals, memory_of

__all__ = ["decode", "memory_of"]


def decode(module: Module, name: str, globals_: Globals | None = None) -> Program:
    """The kernel `name` of `module`, decoded; `globals_` say where the module's variables stand.

    Raises:
        Unsupported: it has an instruction that is not executed, or there is no such kernel.
    """
    kernels = {one.name: one for one in module.functions if one.kernel and one.body}
    if name not in kernels:
        raise Unsupported(f"the module has no kernel {name}: it has {', '.join(kernels) or 'none'}")
    kernel = kernels[name]
    walk = Walk(module, kernel, globals_ or memory_of(module))
    assert kernel.body is not None
    walk.block(kernel.body)
    writer = walk.writer
    writer.guard = None
    writer.emit("", EXIT)
    if writer.in_flight:
        sums = [one for one, written in writer.in_flight.items() if written]
        writer.steps = watched(writer.steps, sums)
    return encoded(walk, kernel, module)
