"""Where the rules of decoding are noted, by opcode."""

from __future__ import annotations

from collections.abc import Callable

from papergpu.forms import Matched
from papergpu.tree import Instruction
from papergpu.writer import Writer

Rule = Callable[[Writer, Instruction, Matched], None]
RULES: dict[str, Rule] = {}


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """The function below decodes the instructions of these opcodes.

    It gets the writer, the instruction, and the row of the table of forms that it has matched.
    """

    def note(function: Rule) -> Rule:
        for opcode in opcodes:
            if opcode in RULES:
                raise ValueError(f"two rules decode {opcode}")
            RULES[opcode] = function
        return function

    return note
