"""The one table of what is executed: every form of every instruction, by its pattern.

A row is its name, opcode and modifiers in order, its operands, the least PTX version and the least
target; the comment above it is the chapter of the PTX ISA that it follows. A modifier stands for
itself; `a|b` is one of them; a `?` behind says that it may be left out; `name=` before it gives it
a name. Operands are types, the result first: `t` and whatever else is named before are what that
modifier says. What no row matches is refused, with its form: an instruction half understood is a
wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from papergpu.tree import Instruction

INTEGERS = "u16|u32|u64|s16|s32|s64"
ROUNDINGS = "r=rn|rz|rm|rp"
COMPARISONS = "c=eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
ORDERED = "c=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
FLOATS = "f16|bf16|f32|f64"

TABLE = f"""
# Integer arithmetic instructions
add.integer     add t={INTEGERS}                            : t t t        : 1.0 : 50
add.saturate    add sat s32                                 : s32 s32 s32  : 1.0 : 50
add.pair        add t=u16x2|s16x2                           : t t t        : 8.0 : 90
sub.integer     sub t={INTEGERS}                            : t t t        : 1.0 : 50
sub.saturate    sub sat s32                                 : s32 s32 s32  : 1.0 : 50
mul.part        mul h=lo|hi t={INTEGERS}                    : t t t        : 1.0 : 50
mul.wide        mul wide t=u16|s16|u32|s32                  : wide t t     : 1.0 : 50
mad.part        mad h=lo|hi t={INTEGERS}                    : t t t t      : 1.0 : 50
mad.wide        mad wide t=u16|s16|u32|s32                  : wide t t wide : 1.0 : 50
mad.saturate    mad hi sat s32                              : s32 s32 s32 s32 : 1.0 : 50
div.integer     div t={INTEGERS}                            : t t t        : 1.0 : 50
rem             rem t={INTEGERS}                            : t t t        : 1.0 : 50
abs.integer     abs t=s16|s32|s64                           : t t          : 1.0 : 50
neg.integer     neg t=s16|s32|s64                           : t t          : 1.0 : 50
min.integer     min t={INTEGERS}                            : t t t        : 1.0 : 50
max.integer     max t={INTEGERS}                            : t t t        : 1.0 : 50
popc            popc t=b32|b64                              : u32 t        : 2.0 : 50
clz             clz t=b32|b64                               : u32 t        : 2.0 : 50
brev            brev t=b32|b64                              : t t          : 2.0 : 50
bfe             bfe t=u32|u64|s32|s64                       : t t u32 u32  : 2.0 : 50
bfi             bfi t=b32|b64                               : t t t u32 u32 : 2.0 : 50

# Floating-point instructions
add.float       add {ROUNDINGS}? ftz? sat? t=f32            : t t t        : 1.0 : 50
add.double      add {ROUNDINGS}? t=f64                      : t t t        : 1.0 : 50
add.half        add r=rn? ftz? sat? t=f16                   : t t t        : 4.2 : 53
add.brain       add r=rn? t=bf16                            : t t t        : 7.8 : 90
sub.float       sub {ROUNDINGS}? ftz? sat? t=f32            : t t t        : 1.0 : 50
sub.double      sub {ROUNDINGS}? t=f64                      : t t t        : 1.0 : 50
sub.half        sub r=rn? ftz? sat? t=f16                   : t t t        : 4.2 : 53
sub.brain       sub r=rn? t=bf16                            : t t t        : 7.8 : 90
mul.float       mul {ROUNDINGS}? ftz? sat? t=f32            : t t t        : 1.0 : 50
mul.double      mul {ROUNDINGS}? t=f64                      : t t t        : 1.0 : 50
mul.half        mul r=rn? ftz? sat? t=f16                   : t t t        : 4.2 : 53
mul.brain       mul r=rn? t=bf16                            : t t t        : 7.8 : 90
fma.float       fma {ROUNDINGS} ftz? sat? t=f32             : t t t t      : 2.0 : 50
fma.double      fma {ROUNDINGS} t=f64                       : t t t t      : 1.4 : 50
fma.half        fma r=rn ftz? sat? t=f16                    : t t t t      : 4.2 : 53
fma.brain       fma r=rn t=bf16                             : t t t t      : 7.0 : 80
div.float       div {ROUNDINGS} ftz? t=f32                  : t t t        : 1.4 : 50
div.double      div {ROUNDINGS} t=f64                       : t t t        : 1.4 : 50
rcp.float       rcp {ROUNDINGS} ftz? t=f32                  : t t          : 1.4 : 50
rcp.double      rcp {ROUNDINGS} t=f64                       : t t          : 1.4 : 50
sqrt.float      sqrt {ROUNDINGS} ftz? t=f32                 : t t          : 1.4 : 50
sqrt.double     sqrt {ROUNDINGS} t=f64                      : t t          : 1.4 : 50
abs.float       abs ftz? t=f32                              : t t          : 1.0 : 50
neg.float       neg ftz? t=f32                              : t t          : 1.0 : 50
abs.other       abs t=f16|bf16|f64                          : t t          : 7.0 : 80
neg.other       neg t=f16|bf16|f64                          : t t          : 7.0 : 80
min.float       min ftz? NaN? t=f32|f16                     : t t t        : 1.0 : 50
max.float       max ftz? NaN? t=f32|f16                     : t t t        : 1.0 : 50
min.other       min NaN? t=bf16                             : t t t        : 7.0 : 80
max.other       max NaN? t=bf16                             : t t t        : 7.0 : 80
min.double      min t=f64                                   : t t t        : 1.0 : 50
max.double      max t=f64                                   : t t t        : 1.0 : 50
copysign        copysign t=f32|f64                          : t t t        : 2.0 : 50

# Comparison and selection instructions
setp.integer    setp {COMPARISONS} t=b16|b32|b64|{INTEGERS} : pred t t     : 1.0 : 50
setp.float      setp {ORDERED} ftz? t=f32                   : pred t t     : 1.0 : 50
setp.other      setp {ORDERED} t=f16|bf16|f64               : pred t t     : 1.0 : 50
selp            selp t=b16|b32|b64|f32|f64|{INTEGERS}       : t t t pred   : 1.0 : 50

# Logic and shift instructions
logic           o=and|or|xor t=pred|b16|b32|b64             : t t t        : 1.0 : 50
not             not t=pred|b16|b32|b64                      : t t          : 1.0 : 50
lop3            lop3 t=b32                                  : t t t t u32  : 4.3 : 50
shl             shl t=b16|b32|b64                           : t t u32      : 1.0 : 50
shr             shr t=b16|b32|b64|{INTEGERS}                : t t u32      : 1.0 : 50
shf             shf s=l|r m=clamp|wrap t=b32                : t t t u32    : 3.1 : 50
prmt            prmt t=b32                                  : t t t u32    : 2.0 : 50

# Data movement and conversion instructions
mov             mov t=pred|b16|b32|b64|f32|f64|{INTEGERS}   : t t          : 1.0 : 50
cvt.integer     cvt sat? d=u8|s8|{INTEGERS} t=u8|s8|{INTEGERS} : d t       : 1.0 : 50
cvt.from        cvt {ROUNDINGS} d={FLOATS} t=u8|s8|{INTEGERS} : d t        : 1.0 : 50
cvt.to          cvt i=rni|rzi|rmi|rpi ftz? d=u8|s8|{INTEGERS} t={FLOATS} : d t : 1.0 : 50
cvt.wider       cvt ftz? d=f32|f64 t={FLOATS}               : d t          : 1.0 : 50
cvt.narrower    cvt {ROUNDINGS} ftz? sat? d=f16|bf16|f32 t=f32|f64 : d t   : 1.0 : 50
cvt.pair        cvt r=rn|rz relu? d=f16x2|bf16x2 f32        : d f32 f32    : 7.0 : 80
cvt.eight       cvt r=rn satfinite d=e4m3x2|e5m2x2 f32      : d f32 f32    : 7.8 : 89
"""


@dataclass(frozen=True)
class Form:
    """A row of the table."""

    name: str
    slots: tuple[tuple[str, tuple[str, ...], bool], ...]  # name, choices, whether it may be absent
    operands: tuple[str, ...]
    version: tuple[int, int]
    target: int
    chapter: str

    def match(self, words: tuple[str, ...]) -> dict[str, str] | None:
        """What each named slot is in `words`, an opcode with its modifiers; None if they differ."""
        return _match(self.slots, words)


@dataclass(frozen=True)
class Matched:
    """A form, and what an instruction has in its slots."""

    form: Form
    slots: Mapping[str, str]

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the operands, the result first."""
        wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
        named = dict(self.slots)
        if "t" in named:
            named["wide"] = wide.get(named["t"], "")
        return tuple(named.get(one, one) for one in self.form.operands)


class Unknown(ValueError):
    """An instruction that no row of the table has."""


def _match(
    slots: tuple[tuple[str, tuple[str, ...], bool], ...], words: tuple[str, ...]
) -> dict[str, str] | None:
    if not slots:
        return None if words else {}
    (name, choices, optional), *rest = slots
    if words and words[0] in choices:
        found = _match(tuple(rest), words[1:])
        if found is not None:
            return {name: words[0], **found}
    return _match(tuple(rest), words) if optional else None


def _rows() -> Iterator[Form]:
    chapter = ""
    for line in filter(None, map(str.strip, TABLE.splitlines())):
        if line.startswith("#"):
            chapter = line.removeprefix("#").strip()
            continue
        pattern, operands, version, target = (part.strip() for part in line.split(" : "))
        name, *modifiers = pattern.split()
        slots = []
        for one in modifiers:
            key, _, choices = one.removesuffix("?").rpartition("=")
            slots.append((key or choices, tuple(choices.split("|")), one.endswith("?")))
        major, _, minor = version.partition(".")
        types = tuple(operands.split())
        yield Form(name, tuple(slots), types, (int(major), int(minor)), int(target), chapter)


FORMS = tuple(_rows())


@cache
def find(written: str) -> Matched:
    """The row of a form as it is written: `add.rn.f32`.

    Raises:
        Unknown: there is none.
    """
    words = tuple(written.split("."))
    for form in FORMS:
        slots = form.match(words)
        if slots is not None:
            return Matched(form, slots)
    raise Unknown(f"{written} is in no row of the table of forms")


def unknown(instructions: Iterator[Instruction]) -> dict[str, int]:
    """The forms among `instructions` that no row has, each with the line of its first."""
    found: dict[str, int] = {}
    for one in instructions:
        try:
            find(one.form)
        except Unknown:
            found.setdefault(one.form, one.line)
    return found
