"""From a module's tree to the program that the engine runs.

A module as `parse` reads it enters, with the name of one of its kernels; what leaves is its
`Program`: arrays of instructions whose handlers are named, whose registers have their places, and
in which every call is the body of what it calls. What is not executed is refused with its line.
"""

from __future__ import annotations

from papergpu.decode.encoding import encode_program, insert_touches
from papergpu.decode.kernel import KernelDecoder
from papergpu.errors import Unsupported
from papergpu.program import EXIT, Program
from papergpu.syntax_tree import Module
from papergpu.variables import Globals, layout_globals

__all__ = ["decode", "layout_globals"]


def decode(module: Module, name: str, globals_: Globals | None = None) -> Program:
    """The kernel `name` of `module`, decoded; `globals_` say where the module's variables stand.

    Raises:
        Unsupported: it has an instruction that is not executed, or there is no such kernel.
    """
    kernels = {one.name: one for one in module.functions if one.kernel and one.body}
    if name not in kernels:
        raise Unsupported(f"the module has no kernel {name}: it has {', '.join(kernels) or 'none'}")
    kernel = kernels[name]
    decoder = KernelDecoder(module, kernel, globals_ or layout_globals(module))
    assert kernel.body is not None
    decoder.decode_block(kernel.body)
    writer = decoder.writer
    writer.guard = None
    writer.emit("", EXIT)
    if writer.in_flight:
        sums = [one for one, written in writer.in_flight.items() if written]
        writer.steps = insert_touches(writer.steps, sums)
    return encode_program(decoder, kernel, module)
