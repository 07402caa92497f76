"""The class of an instruction, by its form: what a table of counts tells apart."""

from __future__ import annotations

from functools import cache

SPACES = ("global", "shared", "local", "parameter", "constant", "generic")
CLASSES = (
    "multiply-add", "float", "special function", "integer", "conversion", "move", "matrix",
    *(f"load {space}" for space in SPACES),
    *(f"store {space}" for space in SPACES if space != "constant"),
    *(f"atomic {space}" for space in SPACES if space in ("global", "shared", "generic")),
    "shuffle and vote", "async", "barrier", "control", "hint",
)  # fmt: skip
FLOATS = frozenset(
    ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32",
     "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "ue8m0x2")
)  # fmt: skip
# Opcodes whose class does not depend on their modifiers.
BY_OPCODE = {
    "multiply-add": "fma mad mad24 madc dp2a dp4a",
    "special function": "ex2 lg2 sin cos rcp sqrt rsqrt tanh",
    "integer": "addc subc mul24 sad popc clz bfind fns brev bfe bfi bmsk szext and or xor not cnot "
    "lop3 shl shr shf rem prmt rem vadd vsub vmin vmax vabsdiff vmad vset vshl vshr "
    + " ".join(
        f"v{one}{n}"
        for one in ("add", "sub", "avrg", "absdiff", "min", "max", "set")
        for n in (2, 4)
    ),
    "float": "copysign testp",
    "conversion": "cvt",
    "move": "mov selp slct cvta isspacep mapa getctarank",
    "matrix": "mma tcgen05",
    "shuffle and vote": "shfl vote match activemask redux elect movmatrix",
    "async": "cp tensormap multimem",
    "barrier": "bar barrier membar fence mbarrier",
    "control": "bra brx call ret exit trap brkpt nanosleep pmevent setmaxnreg griddepcontrol "
    "stacksave stackrestore alloca clusterlaunchcontrol",
    "hint": "prefetch prefetchu discard applypriority createpolicy",
}
# Those of numbers that may be integers or floats.
BY_TYPE = frozenset(("add", "sub", "mul", "div", "min", "max", "abs", "neg", "setp", "set"))
ACCESSES = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
NAMES = {"param": "parameter", "const": "constant"}
_OPCODES = {word: name for name, words in BY_OPCODE.items() for word in words.split()}


@cache
def class_of(form: str) -> str:
    """The class of a form as it is written: `integer` of `add.s32`.

    Raises:
        KeyError: its opcode is none that this knows.
    """
    opcode, *modifiers = form.split(".")
    if opcode in ACCESSES:
        if "async" in modifiers:
            return "async"
        space = next((one for one in map(_space, modifiers) if one in SPACES), "generic")
        return f"{ACCESSES[opcode]} {space}"
    if opcode in ("ldmatrix", "stmatrix"):
        return "load shared" if opcode == "ldmatrix" else "store shared"
    if opcode == "wmma":
        access = {"load": "load", "store": "store"}.get(modifiers[0] if modifiers else "")
        if access is None:
            return "matrix"
        space = next((one for one in map(_space, modifiers) if one in SPACES), "generic")
        return f"{access} {space}"
    if opcode == "wgmma":
        return "matrix" if modifiers[:1] == ["mma_async"] else "barrier"
    if opcode == "mbarrier":
        return "barrier"
    if opcode in BY_TYPE:
        return "float" if FLOATS.intersection(modifiers) else "integer"
    return _OPCODES[opcode]


def _space(modifier: str) -> str:
    name = modifier.partition("::")[0]
    return NAMES.get(name, name)
