"""What one thread's instructions compute, as plainly as possible: the truth for fast code.

Operands and results are bit patterns, as Python integers without sign. Integers are computed
without bounds and cut once, floats as fractions and rounded once, so nothing here can share a
rounding error, an overflow or a vectorised shortcut with an engine. It is far slower, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from papergpu import arithmetic, conversions, floats, logic
from papergpu.forms import HANDLERS, find_form, type_bits

__all__ = ["HANDLERS", "evaluate", "evaluate_all"]
# They note their handlers when they are imported.
HANDLER_MODULES = (arithmetic, conversions, floats, logic)
PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "u16x2": "u16", "s16x2": "s16"}
CARRIED = ("addc", "subc", "madc")


def evaluate(written: str, *operands: int) -> int:
    """The result of the form `written`, such as `add.rn.f32`, of operands given by their bits.

    Raises:
        UnknownForm: no row of the table of forms has it.
    """
    return evaluate_all(written, *operands)[0]


def evaluate_all(written: str, *operands: int) -> tuple[int, ...]:
    """All results of a form: the second is a carry, or another predicate.

    What takes a carry has it as its last operand.
    """
    words = written.split(".")
    pair = next((word for word in words if word in PAIRS), "")
    if pair and words[0] != "cvt":
        return _evaluate_pair(words, pair, operands)
    found = find_form(written, len(operands) + 1 - (words[0] in CARRIED or "cc" in words))
    given = HANDLERS[words[0]](found, *operands)
    made = given if isinstance(given, tuple) else (given,)
    kinds = (found.types[0].replace("bool", "b32"), *("b32" for _ in made[1:]))
    return tuple(one & ((1 << type_bits(kind)) - 1) for one, kind in zip(made, kinds, strict=True))


def _evaluate_pair(words: list[str], pair: str, operands: Sequence[int]) -> tuple[int, ...]:
    """What is done to both halves apart."""
    single = {**PAIRS, "u32": "u16", "s32": "s16"}
    relu = words[0] in ("min", "max") and "relu" in words
    form = ".".join(single.get(word, word) for word in words if not (relu and word == "relu"))
    size = 2 * type_bits(PAIRS[pair])
    both = words[0] == "setp"
    halves = []
    for at in (0, size // 2):
        part = [bits >> at & ((1 << size // 2) - 1) for bits in operands]
        if words[0] in ("setp", "set") and len(operands) > 2:
            part[2] = operands[2]  # the predicate that both are combined with
        made = evaluate(form, *part)
        halves.append(0 if relu and made >> (size // 2 - 1) else made)
    if both:
        return halves[0], halves[1]
    return (halves[0] | halves[1] << size // 2,)
