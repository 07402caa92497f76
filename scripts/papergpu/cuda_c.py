"""A small CUDA C to PTX, in plain Python: to change a kernel in a browser, where there is no nvcc.

For learning. Scalars, pointers, arrays in shared and local memory, control flow, calls (inlined),
the thread's indices, barriers, shuffles, votes, atomics and common functions of float are taken.
What lies outside is refused by its line. A sum or a product is rounded each for itself, as by
`nvcc -fmad=false`; `expf` and the like are what `-use_fast_math` makes of them. Nothing is
optimised. pycparser reads the text, once what C does not know stands in words that it does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from pycparser import c_ast  # type: ignore[import-untyped]
from pycparser.c_parser import CParser, ParseError  # type: ignore[import-untyped]

from papergpu.errors import Unsupported

FILE = "kernel.cu"
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
CHARS = {"char": "s8", "bool": "bool", "_Bool": "bool", "short": "s16", "float": "f32",
         "double": "f64", "long": "s64", "int": "s32", "signed": "s32",
         "unsigned": "u32"}  # fmt: skip
TYPEDEFS = {"size_t": "unsigned long", "int8_t": "char", "uint8_t": "unsigned char",
            "int16_t": "short", "uint16_t": "unsigned short", "int32_t": "int",
            "uint32_t": "unsigned", "int64_t": "long", "uint64_t": "unsigned long",
            "bool": "_Bool"}  # fmt: skip
# What C has no word for. Columns move, lines stay.
WORDS = [
    (r'extern\s*"C"', ""), (r"__launch_bounds__\s*\([^()]*\)", ""),
    (r"\b(?:__device__|__host__|__forceinline__|__noinline__|inline)\b", ""),
    (r"\b__shared__\b", "_Thread_local"), (r"\b__restrict__\b", "restrict"),
    (r"\bconstexpr\b", "const"), (r"^[ \t]*#[ \t]*(?:include|pragma)\b.*", ""),
]  # fmt: skip
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\()?[ \t]*(.*?)[ \t]*$")
KERNEL = re.compile(r"\b__global__\s+(?=[^()]*?(\w+)\s*\()")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
AXES = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}
NUMBERS = {"INFINITY": float("inf"), "NAN": float("nan"), "FLT_MAX": 3.4028234663852886e38,
           "INT_MAX": 2**31 - 1, "warpSize": 32, "true": 1, "false": 0}  # fmt: skip
# Of one float: what PTX does, and what its argument or its result is multiplied by.
FLOATS = {
    "sqrt": "sqrt.rn.f32", "rsqrt": "rsqrt.approx.f32", "fabs": "abs.f32",
    "floor": "cvt.rmi.f32.f32",
    "ceil": "cvt.rpi.f32.f32", "trunc": "cvt.rzi.f32.f32", "rint": "cvt.rni.f32.f32",
    "sin": "sin.approx.f32", "cos": "cos.approx.f32", "tanh": "tanh.approx.f32",
    "exp2": "ex2.approx.f32", "log2": "lg2.approx.f32",
}  # fmt: skip
ATOMICS = {"Add": "add", "Min": "min", "Max": "max", "And": "and", "Or": "or", "Xor": "xor",
           "Exch": "exch", "CAS": "cas", "Sub": "add"}  # fmt: skip
SHUFFLES = {"": ("idx", 31), "_up": ("up", 0), "_down": ("down", 31), "_xor": ("bfly", 31)}
COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
COMPUTED = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or",
            "^": "xor", "<<": "shl", ">>": "shr"}  # fmt: skip
SIZES = {"f32": 4, "f64": 8, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8,
         "u64": 8, "bool": 1}  # fmt: skip
MOST = 100_000  # lines of PTX
MEMORY = {"shared": 232_448, "local": 512 << 10}  # bytes of a block, and of a thread


class Pointer(NamedTuple):
    to: Any
    space: str


class Array(NamedTuple):
    of: Any
    size: int


class Value(NamedTuple):
    """A number or an address: its type, and the register or the constant that has it."""

    type: Any
    at: str


class Place(NamedTuple):
    """Memory: what is there, the register with its address, and the space."""

    type: Any
    at: str
    space: str


@dataclass
class Variable:
    """One in a register. `type` may be a pointer whose space its first value says."""

    type: Any
    at: str


@dataclass
class Scope:
    """Names that are known, in a function that is being written."""

    names: list[dict[str, Any]]
    end: str = ""  # where a return of an inlined function goes, and its result
    result: Variable | None = None
    loops: list[tuple[str, str]] = field(default_factory=list)  # continue, break


def compile_cuda(text: str) -> str:
    """The PTX of all kernels of a text, with the lines that they are from.

    Raises:
        Unsupported: something is not taken, with its line.
    """
    kernels, prepared = _prepare(text)
    try:
        return Compiler(CParser().parse(prepared, FILE), kernels).write()
    except ParseError as error:
        found = re.fullmatch(rf"{FILE}(?::(\d+))?(?::\d+)?:\s*(.*)", str(error), re.DOTALL)
        line, what = found.groups() if found else (None, str(error))
        said = " ".join(what.split())
        raise Unsupported(f"line {line or 1}: {said}, in what is taken here") from None
    except RecursionError:
        raise Unsupported("line 1: it nests too deep") from None


def _prepare(text: str) -> tuple[list[str], str]:
    """The names of the kernels, and the text as C, line by line the same."""
    text = COMMENT.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
    kernels = [found[1] for found in KERNEL.finditer(text)]
    text = KERNEL.sub(" ", text)
    macros: dict[str, str] = {}
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, by in WORDS:
            line = re.sub(pattern, by, line)
        if found := DEFINE.match(line):
            if found[2]:
                raise Unsupported(f"line {number}: a macro with arguments; write a function")
            macros[found[1]] = found[3]
            line = ""
        elif line.lstrip().startswith("#"):
            raise Unsupported(f"line {number}: {line.strip().split()[0]} is not taken here")
        for _ in range(8):
            line = re.sub(r"\b[A-Za-z_]\w*\b", lambda one: macros.get(one[0], one[0]), line)
            if len(line) > 10_000:
                raise Unsupported(f"line {number}: its macros make it too long")
        lines.append(line)
    known = " ".join(f"typedef {of} {name};" for name, of in TYPEDEFS.items())
    return kernels, f"{known} {chr(10).join(lines)}"


def _line_of(node: Any) -> int:
    return int(node.coord.line) if getattr(node, "coord", None) else 0


def _refuse(node: Any, what: str) -> NoReturn:
    raise Unsupported(f"line {_line_of(node)}: {what}")


def _size_of(type_: Any) -> int:
    if isinstance(type_, Array):
        return _size_of(type_.of) * type_.size
    return 8 if isinstance(type_, Pointer) else SIZES[type_]


def _stored(type_: str) -> str:
    return "u8" if type_ == "bool" else type_


def _say(type_: Any) -> str:
    if isinstance(type_, Pointer):
        return f"a pointer to {_say(type_.to)}"
    return f"an array of {_say(type_.of)}" if isinstance(type_, Array) else str(type_)


class Compiler:
    """Writes the kernels of a tree one after another."""

    def __init__(self, tree: Any, kernels: list[str]) -> None:
        self.functions = {one.decl.name: one for one in tree.ext if isinstance(one, c_ast.FuncDef)}
        self.kernels = [name for name in dict.fromkeys(kernels) if name in self.functions]
        if not self.kernels:
            raise Unsupported(
                "line 1: there is no kernel; write `__global__ void name(...) { ... }`"
            )
        self.outer: dict[str, Any] = {}
        self.inside: list[str] = []  # functions that are being inlined
        self.lines: list[str] = []
        self.registers: dict[str, int] = {}
        self.shared: list[str] = []  # arrays, as PTX declares them
        self.labels = 0
        self.given: list[Any] = []  # declarations of shared memory that all kernels have
        self.scope = Scope([self.outer])
        self.line = 0
        for one in tree.ext:
            if isinstance(one, c_ast.Decl) and "_Thread_local" in one.storage:
                self.given.append(one)
            elif isinstance(one, c_ast.Decl) and not isinstance(one.type, c_ast.FuncDecl):
                if "const" not in one.quals or one.init is None:
                    _refuse(one, f"{one.name} stands outside of all kernels and is no const")
                self.outer[one.name] = self.constant(one.init, self.read_type(one.type))
            elif not isinstance(one, (c_ast.FuncDef, c_ast.Typedef, c_ast.Decl, c_ast.Pragma)):
                _refuse(one, "this is not taken here")

    def write(self) -> str:
        parts = [HEAD, f'.file 1 "{FILE}"\n']
        for name in self.kernels:
            node = self.functions[name]
            self.lines, self.registers, self.shared, self.labels = [], {}, [], 0
            self.scope = Scope([self.outer])
            for one in self.given:
                self.declaration(one)
            self.scope.names.append({})
            self.inside = [name]
            given = []
            for one in self.parameters(node):
                type_ = self.read_type(one.type)
                kept = type_ if not isinstance(type_, Pointer) else Pointer(type_.to, "global")
                kind = "u64" if isinstance(kept, Pointer) else _stored(kept)
                given.append(f".param .{kind} {one.name}")
                made = self.declare(one.name, kept)
                self.emit(f"ld.param.{kind} {made.at}, [{one.name}]")
            self.statement(node.body)
            self.emit("ret")
            parts.append(f".visible .entry {name}({', '.join(given)})\n{{\n")
            classes = {"p": "pred", "r": "b32", "rd": "b64", "f": "f32", "fd": "f64"}
            parts += [f".reg .{classes[kind]} %{kind}<{many + 1}>;\n"
                      for kind, many in self.registers.items()]  # fmt: skip
            parts += [*self.shared, *(f"{line}\n" for line in self.lines), "}\n"]
        return "".join(parts)

    # ---- what is written

    def emit(self, text: str) -> None:
        self.lines.append(text if text.endswith(":") or text[0] == "." else f"{text};")
        if len(self.lines) > MOST:
            raise Unsupported(f"line {self.line}: it becomes more than {MOST:,} lines of PTX")

    def register(self, type_: Any) -> str:
        kind = "rd" if isinstance(type_, Pointer) or type_ in ("s64", "u64") else {
            "f32": "f", "f64": "fd", "pred": "p"}.get(type_, "r")  # fmt: skip
        self.registers[kind] = self.registers.get(kind, 0) + 1
        return f"%{kind}{self.registers[kind]}"

    def make(self, type_: Any, form: str, *given: str) -> Value:
        """The result of an instruction, in a register of its own."""
        at = self.register(type_)
        self.emit(f"{form} {', '.join((at, *given))}")
        return Value(type_, at)

    def label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    def declare(self, name: str, type_: Any) -> Variable:
        made = Variable(type_, self.register(type_))
        self.scope.names[-1][name] = made
        return made

    def set(self, at: str, value: Value) -> None:
        self.emit(f"mov.{self.bits(value.type)} {at}, {value.at}")

    @staticmethod
    def bits(type_: Any) -> str:
        if type_ in ("f32", "f64", "pred"):
            return str(type_)
        return "b64" if isinstance(type_, Pointer) or type_ in ("s64", "u64") else "b32"

    # ---- declarations

    def parameters(self, node: Any) -> Iterator[Any]:
        listed = node.decl.type.args
        for one in listed.params if listed else ():
            if isinstance(one, c_ast.Decl):
                yield one
            elif not (isinstance(one, c_ast.Typename) and self.is_void(one.type)):
                _refuse(one, "a parameter without a name")

    @staticmethod
    def is_void(node: Any) -> bool:
        type_ = getattr(node, "type", None)
        return isinstance(type_, c_ast.IdentifierType) and type_.names == ["void"]

    def read_type(self, node: Any, space: str = "") -> Any:
        if isinstance(node, c_ast.PtrDecl):
            return Pointer(self.read_type(node.type), space)
        if isinstance(node, c_ast.ArrayDecl):
            count = 0 if node.dim is None else self.number(node.dim)
            if isinstance(count, float) or not 0 <= count < 1 << 20:
                _refuse(node, f"{count} elements")
            return Array(self.read_type(node.type), count)
        if isinstance(node, (c_ast.TypeDecl, c_ast.Typename)):
            return self.read_type(node.type)
        if isinstance(node, c_ast.IdentifierType):
            names = [word for name in node.names for word in TYPEDEFS.get(name, name).split()]
            unsigned = "unsigned" in names
            if unknown := [name for name in names if name not in CHARS]:
                _refuse(node, f"the type {unknown[0]}")
            kind = next((one for one in ("char", "_Bool", "short", "double", "float", "long")
                         if one in names), "int")  # fmt: skip
            found = CHARS[kind]
            return f"u{found[1:]}" if unsigned and found[0] == "s" else found
        _refuse(node, "this type")

    def number(self, node: Any) -> int | float:
        """The value of an expression that is known now."""
        if isinstance(node, c_ast.Constant) and node.type != "string":
            return self.literal(node)[1]
        if isinstance(node, c_ast.ID):
            found = self.find(node, node.name)
            if isinstance(found, tuple) and not isinstance(found, (Place, Value)):
                return found[1]  # type: ignore[no-any-return]
        if isinstance(node, c_ast.UnaryOp) and node.op in ("-", "+", "sizeof"):
            if node.op == "sizeof":
                return _size_of(self.read_type(node.expr))
            return -self.number(node.expr) if node.op == "-" else self.number(node.expr)
        if isinstance(node, c_ast.BinaryOp) and node.op in ("+", "-", "*", "/", "%", "<<", ">>"):
            a, b = self.number(node.left), self.number(node.right)
            if isinstance(a, float) or isinstance(b, float) or node.op in "+-*":
                table = {"+": a + b, "-": a - b, "*": a * b}
                if node.op in table:
                    return table[node.op]
            elif node.op in ("/", "%") and b:
                whole = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                return whole if node.op == "/" else a - whole * b
            elif node.op in ("<<", ">>") and 0 <= b < 64:
                return a << b if node.op == "<<" else a >> b
        _refuse(node, "a constant is wanted here")

    def constant(self, node: Any, type_: Any) -> tuple[Any, int | float]:
        value = self.number(node)
        if isinstance(type_, (Pointer, Array)):
            _refuse(node, f"{_say(type_)} as a constant")
        if type_[0] == "f":
            return type_, float(value)
        if not abs(value) < 1 << 64:
            _refuse(node, f"{value} as {type_}")
        return type_, int(value)

    def literal(self, node: Any) -> tuple[str, int | float]:
        text = node.value.lower()
        if node.type == "char":
            if len(text) != 3:
                _refuse(node, f"the character {node.value}")
            return "s8", ord(node.value[1])
        if "float" in node.type or "double" in node.type:
            single = text.endswith("f")
            return ("f32" if single else "f64"), float(text.rstrip("fl"))
        try:
            value = int(re.sub(r"^0(?=\d)", "0o", text.rstrip("ul")), 0)
        except ValueError:
            _refuse(node, f"the number {node.value}")
        wide = text.rstrip("u").endswith("l") or text.endswith("l") or value >= 1 << 32
        if value >= 1 << 64:
            _refuse(node, f"{node.value} is too large")
        signed = "u" not in text and value < (1 << 63 if wide else 1 << 31)
        return f"{'s' if signed else 'u'}{64 if wide else 32}", value

    def immediate(self, type_: str, value: int | float) -> Value:
        if type_ == "f32":
            try:
                packed = struct.pack(">f", value)
            except OverflowError:
                packed = struct.pack(">f", float("inf") if value > 0 else float("-inf"))
            return Value(type_, f"0f{packed.hex()}")
        if type_ == "f64":
            return Value(type_, f"0d{struct.pack('>d', value).hex()}")
        return Value(type_, str(int(value)))

    def find(self, node: Any, name: str) -> Any:
        for names in reversed(self.scope.names):
            if name in names:
                return names[name]
        if name in NUMBERS:
            value = NUMBERS[name]
            return ("f32" if isinstance(value, float) else "s32"), value
        _refuse(node, f"{name} is not declared")

    def declaration(self, node: Any) -> None:
        if isinstance(node.type, c_ast.FuncDecl):
            _refuse(node, "a function within a function")
        shared = "_Thread_local" in node.storage
        type_ = self.read_type(node.type)
        if shared or isinstance(type_, Array):
            self.memory(node, type_, shared)
        elif "const" in node.quals and node.init is not None and (known := self.known(node)):
            self.scope.names[-1][node.name] = known
        elif "static" in node.storage or "extern" in node.storage:
            _refuse(node, f"{node.name} is {node.storage[0]}")
        elif node.init is None:
            made = self.declare(node.name, type_)
            zero = self.immediate("s64" if isinstance(type_, Pointer) else type_, 0)
            self.set(made.at, Value(type_, zero.at))
        else:
            value = self.expression(node.init)
            if isinstance(type_, Pointer) and isinstance(value.type, Pointer):
                type_ = Pointer(type_.to, value.type.space)
            value = self.convert(node, value, type_)
            self.set(self.declare(node.name, type_).at, value)

    def known(self, node: Any) -> tuple[Any, int | float] | None:
        try:
            return self.constant(node.init, self.read_type(node.type))
        except Unsupported:
            return None

    def memory(self, node: Any, type_: Any, shared: bool) -> None:
        """An array, in shared memory or in a thread's own."""
        space, size = ("shared" if shared else "local"), _size_of(type_)
        name = f"{node.name}_{len(self.shared)}"
        extern = "extern" in node.storage
        if extern != (size == 0) or not (shared or size):
            _refuse(node, f"{node.name} has no size" if not size else f"{node.name} is extern")
        if size > MEMORY[space]:
            _refuse(node, f"{node.name} has {size} bytes, and {space} memory {MEMORY[space]}")
        # What is extern is as long as the launch says, and begins where the other arrays end.
        self.shared.append(f".{space} .align 16 .b8 {name}[{size}];\n")
        at = self.make(Pointer(type_, space), "mov.u64", name).at
        self.scope.names[-1][node.name] = Place(type_, at, space)
        if node.init is None:
            return
        if shared or not isinstance(node.init, c_ast.InitList) or isinstance(type_.of, Array):
            _refuse(node, f"{node.name} cannot begin with values here")
        given = [self.convert(one, self.expression(one), type_.of) for one in node.init.exprs]
        if len(given) > type_.size:
            _refuse(node, f"{len(given)} values for {type_.size} elements")
        given += [self.immediate(type_.of, 0)] * (type_.size - len(given))
        for k, value in enumerate(given):
            self.store(Place(type_.of, f"{at}+{k * _size_of(type_.of)}", space), value)

    # ---- statements

    def statement(self, node: Any) -> None:
        if node is None or isinstance(node, (c_ast.EmptyStatement, c_ast.Pragma)):
            return
        name = type(node).__name__
        method = getattr(self, f"do_{name}", None)
        if name != "Compound" and (line := _line_of(node)) != self.line and line:
            self.line = line
            self.emit(f".loc 1 {line} 0")
        if method:
            method(node)
        elif isinstance(node, c_ast.Decl):
            self.declaration(node)
        elif name in ("Assignment", "UnaryOp", "FuncCall", "BinaryOp", "TernaryOp", "ID", "Cast",
                      "Constant", "ExprList", "ArrayRef"):  # fmt: skip
            self.expression(node, used=False)
        else:
            _refuse(node, f"{name} is not taken here")

    def do_Compound(self, node: Any) -> None:
        self.scope.names.append({})
        for one in node.block_items or ():
            self.statement(one)
        self.scope.names.pop()

    def do_DeclList(self, node: Any) -> None:
        for one in node.decls:
            self.declaration(one)

    def do_If(self, node: Any) -> None:
        other, end = self.label(), self.label()
        self.branch_unless(node.cond, other)
        self.statement(node.iftrue)
        if node.iffalse:
            self.emit(f"bra {end}")
        self.emit(f"{other}:")
        if node.iffalse:
            self.statement(node.iffalse)
            self.emit(f"{end}:")

    def loop(self, node: Any, first: bool, after: Any) -> None:
        begin, again, end = self.label(), self.label(), self.label()
        self.emit(f"{begin}:")
        if node.cond is not None and first:
            self.branch_unless(node.cond, end)
        self.scope.loops.append((again, end))
        self.statement(node.stmt)
        self.scope.loops.pop()
        self.emit(f"{again}:")
        if after is not None:
            self.line = _line_of(node)
            self.emit(f".loc 1 {self.line} 0")
            self.expression(after, used=False)
        if node.cond is not None and not first:
            self.branch_unless(node.cond, end)
        self.emit(f"bra {begin}")
        self.emit(f"{end}:")

    def do_For(self, node: Any) -> None:
        self.scope.names.append({})
        self.statement(node.init)
        self.loop(node, True, node.next)
        self.scope.names.pop()

    def do_While(self, node: Any) -> None:
        self.loop(node, True, None)

    def do_DoWhile(self, node: Any) -> None:
        self.loop(node, False, None)

    def do_Break(self, node: Any) -> None:
        self.leave(node, 1)

    def do_Continue(self, node: Any) -> None:
        self.leave(node, 0)

    def leave(self, node: Any, which: int) -> None:
        if not self.scope.loops:
            _refuse(node, "outside of a loop")
        self.emit(f"bra {self.scope.loops[-1][which]}")

    def do_Return(self, node: Any) -> None:
        if not self.scope.end:
            if node.expr is not None:
                _refuse(node, "a kernel returns nothing")
            self.emit("ret")
            return
        if (self.scope.result is None) != (node.expr is None):
            _refuse(node, "what it returns is not what the function says")
        if self.scope.result is not None:
            value = self.expression(node.expr)
            result = self.scope.result
            if isinstance(result.type, Pointer) and isinstance(value.type, Pointer):
                result.type = Pointer(result.type.to, value.type.space)
            self.set(result.at, self.convert(node, value, result.type))
        self.emit(f"bra {self.scope.end}")

    def branch_unless(self, node: Any, label: str) -> None:
        self.emit(f"@!{self.truth(node)} bra {label}")

    # ---- expressions

    def truth(self, node: Any) -> str:
        """A predicate: whether an expression is not zero."""
        return self.test(node, self.expression(node))

    def test(self, node: Any, value: Value) -> str:
        if value.type == "pred":
            return value.at
        if isinstance(value.type, Array):
            _refuse(node, "an array as a condition")
        kind = "u64" if isinstance(value.type, Pointer) else self.promoted(value.type)
        compared = "neu" if kind[0] == "f" else "ne"
        zero = self.immediate(kind, 0).at
        value = value if kind == "u64" else self.convert(node, value, kind)
        return self.make("pred", f"setp.{compared}.{kind}", value.at, zero).at

    @staticmethod
    def promoted(type_: str) -> str:
        return "s32" if type_ in ("pred", "bool", "s8", "u8", "s16", "u16") else type_

    def common(self, node: Any, a: Value, b: Value) -> str:
        """The type in which two numbers are computed."""
        for one in (a, b):
            if isinstance(one.type, (Pointer, Array)):
                _refuse(node, f"{_say(one.type)} in arithmetic")
        pair = {self.promoted(a.type), self.promoted(b.type)}
        return next(one for one in ("f64", "f32", "u64", "s64", "u32", "s32") if one in pair)

    def convert(self, node: Any, value: Value, to: Any) -> Value:
        """A value as it is in another type."""
        of, at = value.type, value.at
        if of == to:
            return value
        if isinstance(to, Pointer) or isinstance(of, Pointer):
            if isinstance(to, Pointer) and isinstance(of, Pointer):
                if to.space in ("", of.space):
                    return Value(Pointer(to.to, of.space), at)
                _refuse(node, f"a pointer to {of.space} memory where one to {to.space} stood")
            if isinstance(to, Pointer) and at == "0":
                return Value(to, at)
            _refuse(node, f"{_say(of)} as {_say(to)}")
        if isinstance(to, Array) or isinstance(of, Array):
            _refuse(node, f"{_say(of)} as {_say(to)}")
        if to == "bool":
            return Value(to, self.make("s32", "selp.b32", "1", "0", self.test(node, value)).at)
        if of == "pred":
            number = self.make("s32", "selp.b32", "1", "0", at)
            return number if to == "s32" else self.convert(node, number, to)
        if not at.startswith("%") and of[0] != "f":
            if to[0] == "f":
                return self.immediate(to, int(at))
            bits = 8 * SIZES[to]
            kept = int(at) & (1 << bits) - 1
            return Value(to, str(kept - (1 << bits) if to[0] == "s" and kept >> bits - 1 else kept))
        source = self.promoted(of)
        if to[0] == "f":
            rounded = "" if (source, to) == ("f32", "f64") else ".rn"
            return self.make(to, f"cvt{rounded}.{to}.{source}", at)
        if source[0] == "f":
            wide = to if SIZES[to] >= 4 else "s32"
            found = self.make(wide, f"cvt.rzi.{wide}.{source}", at)
            return found if wide == to else self.convert(node, found, to)
        if SIZES[to] == 8:
            if SIZES[source] == 8:
                return Value(to, at)
            return self.make(to, f"cvt.{'s64.s32' if source == 's32' else 'u64.u32'}", at)
        if SIZES[source] == 8:
            at = self.make("u32", "cvt.u32.u64", at).at
        if SIZES[to] == 4:
            return Value(to, at)
        if SIZES[to] >= SIZES[of] and of[0] in "ub":
            return Value(to, at)
        if to[0] == "u":
            return self.make(to, "and.b32", at, str((1 << 8 * SIZES[to]) - 1))
        left = str(32 - 8 * SIZES[to])
        return self.make(to, "shr.s32", self.make("s32", "shl.b32", at, left).at, left)

    def expression(self, node: Any, used: bool = True) -> Value:
        """What an expression is; an array is the address of its first element."""
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            _refuse(node, f"{type(node).__name__} is not taken here")
        value = method(node)
        if value is None:
            if used:
                _refuse(node, "a function that returns nothing, as a value")
            return Value("s32", "0")
        return self.load(node, value)

    def load(self, node: Any, found: Any) -> Value:
        if isinstance(found, Variable):
            # Its value now: the variable may change before this is used.
            return self.make(found.type, f"mov.{self.bits(found.type)}", found.at)
        if isinstance(found, Place):
            if isinstance(found.type, Array):
                return Value(Pointer(found.type.of, found.space), found.at)
            if isinstance(found.type, Pointer):
                _refuse(node, "a pointer that lies in memory")
            return self.make(found.type, f"ld.{found.space}.{_stored(found.type)}", f"[{found.at}]")
        if isinstance(found, tuple) and not isinstance(found, Value):
            return self.immediate(*found)
        return found  # type: ignore[no-any-return]

    def store(self, place: Place, value: Value) -> None:
        at = value.at
        if not at.startswith("%"):
            at = self.make(value.type, f"mov.{self.bits(value.type)}", at).at
        self.emit(f"st.{place.space}.{_stored(place.type)} [{place.at}], {at}")

    def assign(self, node: Any, target: Any, value: Value) -> Value:
        """Put a value into a variable or into memory; what is there then."""
        if isinstance(target, Variable):
            both = isinstance(target.type, Pointer) and isinstance(value.type, Pointer)
            if both and not target.type.space:
                target.type = Pointer(target.type.to, value.type.space)
            value = self.convert(node, value, target.type)
            self.set(target.at, value)
            return value
        if isinstance(target, Place) and isinstance(target.type, str):
            value = self.convert(node, value, target.type)
            self.store(target, value)
            return value
        _refuse(node, "this cannot be assigned to")

    def of_ID(self, node: Any) -> Any:
        return self.find(node, node.name)

    def of_Constant(self, node: Any) -> Value:
        if node.type == "string":
            _refuse(node, "a text")
        return self.immediate(*self.literal(node))

    def of_ExprList(self, node: Any) -> Value:
        *first, last = node.exprs
        for one in first:
            self.expression(one, used=False)
        return self.expression(last)

    def of_Cast(self, node: Any) -> Any:
        to = self.read_type(node.to_type.type)
        value = self.expression(node.expr)
        return self.convert(node, value, to)

    def of_StructRef(self, node: Any) -> Value:
        name = node.name.name if isinstance(node.name, c_ast.ID) else ""
        if name not in AXES or node.field.name not in "xyz" or node.type != ".":
            _refuse(node, f"a field {node.field.name}")
        return self.make("u32", "mov.u32", f"%{AXES[name]}.{node.field.name}")

    def of_ArrayRef(self, node: Any) -> Place:
        base, index = self.expression(node.name), self.expression(node.subscript)
        if not isinstance(base.type, Pointer):
            _refuse(node, f"{_say(base.type)} has no elements")
        moved = self.move(node, base, index)
        return Place(base.type.to, moved.at, base.type.space)

    def move(self, node: Any, base: Value, index: Value, back: bool = False) -> Value:
        """An address so many elements further."""
        type_ = base.type
        if not type_.space:
            _refuse(node, "a pointer that points nowhere")
        if isinstance(index.type, (Pointer, Array)) or index.type[0] == "f":
            _refuse(node, f"{_say(index.type)} as an index")
        index = self.convert(node, index, self.promoted(index.type))
        size = _size_of(type_.to)
        if not index.at.startswith("%"):
            far = int(index.at) * (-size if back else size)
            return self.make(type_, "add.s64", base.at, str(far)) if far else base
        if SIZES[index.type] == 4:
            far_at = self.make("s64", f"mul.wide.{index.type}", index.at, str(size)).at
        else:
            far_at = self.make("s64", "mul.lo.s64", index.at, str(size)).at
        return self.make(type_, "sub.s64" if back else "add.s64", base.at, far_at)

    def of_UnaryOp(self, node: Any) -> Any:
        op, inner = node.op, node.expr
        if op == "sizeof":
            return self.immediate("u64", self.number(node))
        if op == "&":
            method = getattr(self, f"of_{type(inner).__name__}", None)
            found = method(inner) if method else None
            if not isinstance(found, Place):
                _refuse(node, "the address of what is in no memory")
            return Value(Pointer(found.type, found.space), found.at)
        if op in ("++", "--", "p++", "p--"):
            target = getattr(self, f"of_{type(inner).__name__}")(inner)
            before = self.load(node, target)
            one = Value("s32", "1")
            if isinstance(before.type, Pointer):
                after = self.move(node, before, one, back="-" in op)
            else:
                after = self.compute(node, "-" if "-" in op else "+", before, one)
            after = self.assign(node, target, after)
            return before if op[0] == "p" else after
        value = self.expression(inner)
        if op == "*":
            if not isinstance(value.type, Pointer):
                _refuse(node, f"{_say(value.type)} points to nothing")
            return Place(value.type.to, value.at, value.type.space)
        if op == "!":
            at = self.test(node, value)
            return self.make("pred", "not.pred", at)
        if isinstance(value.type, (Pointer, Array)):
            _refuse(node, f"{op} of {_say(value.type)}")
        value = self.convert(node, value, self.promoted(value.type))
        if op == "+":
            return value
        if op == "-":
            if not value.at.startswith("%") and value.type[0] != "f":
                return self.convert(node, Value("s64", str(-int(value.at))), value.type)
            if value.type[0] == "u":
                signed = f"s{value.type[1:]}"
                return Value(value.type, self.make(signed, f"neg.{signed}", value.at).at)
            return self.make(value.type, f"neg.{value.type}", value.at)
        if op == "~" and value.type[0] != "f":
            return self.make(value.type, f"not.{self.bits(value.type)}", value.at)
        _refuse(node, f"{op} of {_say(value.type)}")

    def of_BinaryOp(self, node: Any) -> Value:
        if node.op in ("&&", "||"):
            found, end = self.register("pred"), self.label()
            self.emit(f"mov.pred {found}, {self.truth(node.left)}")
            self.emit(f"@{'!' if node.op == '&&' else ''}{found} bra {end}")
            self.emit(f"mov.pred {found}, {self.truth(node.right)}")
            self.emit(f"{end}:")
            return Value("pred", found)
        a = self.expression(node.left)
        return self.compute(node, node.op, a, self.expression(node.right))

    def compute(self, node: Any, op: str, a: Value, b: Value) -> Value:
        if isinstance(a.type, Pointer) or isinstance(b.type, Pointer):
            return self.compute_address(node, op, a, b)
        if op in ("<<", ">>"):
            kind = self.promoted(a.type)
            if kind[0] == "f" or self.promoted(b.type)[0] == "f":
                _refuse(node, f"{op} of a float")
            a, b = self.convert(node, a, kind), self.convert(node, b, "u32")
            form = f"shl.{self.bits(kind)}" if op == "<<" else f"shr.{kind}"
            return self.make(kind, form, a.at, b.at)
        kind = self.common(node, a, b)
        a, b = self.convert(node, a, kind), self.convert(node, b, kind)
        if op in COMPARED:
            how = "neu" if op == "!=" and kind[0] == "f" else COMPARED[op]
            return self.make("pred", f"setp.{how}.{kind}", a.at, b.at)
        form = COMPUTED[op]
        if op in "&|^":
            if kind[0] == "f":
                _refuse(node, f"{op} of a float")
            return self.make(kind, f"{form}.{self.bits(kind)}", a.at, b.at)
        if kind[0] == "f":
            if op == "%":
                _refuse(node, "% of a float")
            return self.make(kind, f"{form}.rn.{kind}", a.at, b.at)
        return self.make(kind, f"{form}{'.lo' if op == '*' else ''}.{kind}", a.at, b.at)

    def compute_address(self, node: Any, op: str, a: Value, b: Value) -> Value:
        if isinstance(a.type, Pointer) and isinstance(b.type, Pointer):
            if op in COMPARED:
                return self.make("pred", f"setp.{COMPARED[op]}.u64", a.at, b.at)
            if op == "-" and a.type == b.type:
                far = self.make("s64", "sub.s64", a.at, b.at)
                return self.make("s64", "div.s64", far.at, str(_size_of(a.type.to)))
        elif isinstance(a.type, Pointer) and op in "+-":
            return self.move(node, a, b, back=op == "-")
        elif isinstance(b.type, Pointer) and op == "+":
            return self.move(node, b, a)
        elif op in COMPARED and "0" in (a.at, b.at):
            return self.make("pred", f"setp.{COMPARED[op]}.u64", a.at, b.at)
        _refuse(node, f"{_say(a.type)} {op} {_say(b.type)}")

    def of_Assignment(self, node: Any) -> Value:
        method = getattr(self, f"of_{type(node.lvalue).__name__}", None)
        target = method(node.lvalue) if method else None
        value = self.expression(node.rvalue)
        if node.op != "=":
            value = self.compute(node, node.op[:-1], self.load(node, target), value)
        return self.assign(node, target, value)

    def of_TernaryOp(self, node: Any) -> Value:
        """Both sides are written where they are needed; the type of both is known only then."""
        other, end = self.label(), self.label()
        self.branch_unless(node.cond, other)
        yes = self.expression(node.iftrue)
        place = len(self.lines)
        self.emit(f"bra {end}")
        self.emit(f"{other}:")
        no = self.expression(node.iffalse)
        pointers = isinstance(yes.type, Pointer) or isinstance(no.type, Pointer)
        kind = (yes if isinstance(yes.type, Pointer) else no).type if pointers else self.common(
            node, yes, no)  # fmt: skip
        result = self.register(kind)
        self.set(result, self.convert(node, no, kind))
        rest, self.lines = self.lines[place:], self.lines[:place]
        self.set(result, self.convert(node, yes, kind))
        self.lines += rest
        self.emit(f"{end}:")
        return Value(kind, result)

    # ---- calls

    def of_FuncCall(self, node: Any) -> Any:
        name = node.name.name if isinstance(node.name, c_ast.ID) else ""
        given = list(node.args.exprs) if node.args else []
        if name in self.functions:
            return self.inline(node, name, given)
        values = [self.expression(one) for one in given]
        found = self.intrinsic(node, name, values)
        if found is NotImplemented:
            _refuse(node, f"{name or 'this'} is no function that is known here")
        return found

    def inline(self, node: Any, name: str, given: list[Any]) -> Value | None:
        if name in self.inside or len(self.inside) > 20:
            _refuse(node, f"{name} calls itself" if name in self.inside else "calls nest too deep")
        if name in self.kernels:
            _refuse(node, f"{name} is a kernel")
        function = self.functions[name]
        wanted = list(self.parameters(function))
        if len(wanted) != len(given):
            _refuse(node, f"{name} takes {len(wanted)} arguments and gets {len(given)}")
        values = [self.expression(one) for one in given]
        returned = function.decl.type.type
        result = None
        if not self.is_void(returned):
            type_ = self.read_type(returned)
            result = Variable(type_, self.register(type_))
        outside, line = self.scope, self.line
        self.scope = Scope([self.outer, {}], self.label(), result)
        self.inside.append(name)
        for one, value in zip(wanted, values, strict=True):
            type_ = self.read_type(one.type)
            if isinstance(type_, Array):
                type_ = Pointer(type_.of, "")
            if isinstance(type_, Pointer) and isinstance(value.type, Pointer):
                type_ = Pointer(type_.to, value.type.space)
            converted = self.convert(node, value, type_)
            self.set(self.declare(one.name, type_).at, converted)
        self.statement(function.body)
        self.emit(f"{self.scope.end}:")
        self.inside.pop()
        self.scope, self.line = outside, line
        self.emit(f".loc 1 {line} 0")
        return Value(result.type, result.at) if result else None

    def intrinsic(self, node: Any, name: str, values: list[Value]) -> Any:
        """A function of CUDA's; NotImplemented if it is none that is known."""

        def want(*types: str) -> list[str]:
            if len(values) != len(types):
                _refuse(node, f"{name} takes {len(types)} arguments and gets {len(values)}")
            pairs = zip(values, types, strict=True)
            return [self.convert(node, value, type_).at for value, type_ in pairs]

        if name == "__syncthreads":
            want()
            self.emit("bar.sync 0")
            return None
        if name == "__syncwarp":
            mask = want("u32")[0] if values else "-1"
            self.emit(f"bar.warp.sync {mask}")
            return None
        if name in ("__threadfence", "__threadfence_block"):
            self.emit(f"membar.{'gl' if name == '__threadfence' else 'cta'}")
            return None
        if found := re.fullmatch(r"__shfl(|_up|_down|_xor)_sync", name):
            return self.shuffle(node, found[1], values)
        if name == "__ballot_sync":
            mask, _ = want("u32", "s32")
            return self.make("u32", "vote.sync.ballot.b32", self.test(node, values[1]), mask)
        if name in ("__any_sync", "__all_sync"):
            mask, _ = want("u32", "s32")
            at = self.test(node, values[1])
            return self.make("pred", f"vote.sync.{name[2:5]}.pred", at, mask)
        if name == "__activemask":
            return self.make("u32", "activemask.b32", *want())
        if name in ("__popc", "__clz", "__brev"):
            form = {"__popc": "popc", "__clz": "clz", "__brev": "brev"}[name]
            return self.make("u32" if form == "brev" else "s32", f"{form}.b32", *want("u32"))
        if found := re.fullmatch(r"atomic(\w+)", name):
            return self.atomic(node, ATOMICS.get(found[1], ""), found[1] == "Sub", values)
        if name == "__ldg" and len(values) == 1 and isinstance(values[0].type, Pointer):
            return Place(values[0].type.to, values[0].at, values[0].type.space)
        if name in ("min", "max", "fminf", "fmaxf", "fmin", "fmax") and len(values) == 2:
            kind = "f32" if name.endswith("f") else self.common(node, *values)
            return self.make(kind, f"{name.strip('f')}.{kind}", *want(kind, kind))
        if name in ("abs", "fabs") and len(values) == 1 and self.promoted(values[0].type) != "f32":
            kind = self.common(node, values[0], Value("s32", "0"))
            return self.make(kind, f"abs.{kind}", *want(kind))
        if name in ("fmaf", "fma"):
            kind = "f32" if name == "fmaf" else self.common(node, *values[:2])
            return self.make(kind, f"fma.rn.{kind}", *want(kind, kind, kind))
        if name == "sqrt" and len(values) == 1 and values[0].type == "f64":
            return self.make("f64", "sqrt.rn.f64", *want("f64"))
        if name in ("__fdividef", "fdividef"):
            return self.make("f32", "div.approx.f32", *want("f32", "f32"))
        if name == "__float_as_int":
            return Value("s32", self.make("s32", "mov.b32", *want("f32")).at)
        if name == "__int_as_float":
            return self.make("f32", "mov.b32", *want("s32"))
        plain = name.removeprefix("__")
        plain = plain if plain in (*FLOATS, "exp", "log") else plain.removesuffix("f")
        if plain in FLOATS or plain in ("exp", "log"):
            if len(values) == 1 and not name.endswith("f") and values[0].type == "f64":
                _refuse(node, f"{name} of a double; write {name}f")
            (at,) = want("f32")
            if plain == "exp":
                at = self.make("f32", "mul.rn.f32", at, "0f3FB8AA3B").at  # log2(e)
                return self.make("f32", "ex2.approx.f32", at)
            if plain == "log":
                at = self.make("f32", "lg2.approx.f32", at).at
                return self.make("f32", "mul.rn.f32", at, "0f3F317218")  # ln(2)
            return self.make("f32", FLOATS[plain], at)
        return NotImplemented

    def shuffle(self, node: Any, way: str, values: list[Value]) -> Value:
        if len(values) not in (3, 4):
            _refuse(node, f"a shuffle takes 3 or 4 arguments and gets {len(values)}")
        width = 32 if len(values) == 3 else int(values[3].at) if values[3].at.isdigit() else 0
        if width not in (1, 2, 4, 8, 16, 32):
            _refuse(node, "the width of a shuffle is a constant power of 2, at most 32")
        kind = values[1].type
        kind = kind if isinstance(kind, (Pointer, Array)) else self.promoted(kind)
        if kind not in ("s32", "u32", "f32"):
            _refuse(node, f"a shuffle of {_say(kind)}")
        mode, last = SHUFFLES[way]
        mask, lane = (self.convert(node, values[k], "u32").at for k in (0, 2))
        given = self.convert(node, values[1], kind).at
        word = self.make("u32", "mov.b32", given).at if kind == "f32" else given
        bounds = str(32 - width << 8 | last)
        found = self.make("u32", f"shfl.sync.{mode}.b32", word, lane, bounds, mask)
        return self.make("f32", "mov.b32", found.at) if kind == "f32" else Value(kind, found.at)

    def atomic(self, node: Any, op: str, minus: bool, values: list[Value]) -> Value:
        if not op or len(values) != (3 if op == "cas" else 2):
            _refuse(node, "an atomic that is not taken here")
        if not isinstance(values[0].type, Pointer):
            _refuse(node, f"{_say(values[0].type)} in place of a pointer")
        kind, space = values[0].type.to, values[0].type.space
        bits = op in ("and", "or", "xor", "exch", "cas")
        taken = {"add": ("s32", "u32", "u64", "f32", "f64"), "min": ("s32", "u32", "s64", "u64")}
        if (
            kind not in ("s32", "u32", "u64", "f32")
            or space not in ("global", "shared")
            or (kind not in taken.get(op if op != "max" else "min", (kind,)))
        ):
            _refuse(node, f"an atomic {op} of {_say(kind)}")
        given = [self.convert(node, one, kind) for one in values[1:]]
        if minus:
            zero = self.immediate(kind, 0)
            given = [self.compute(node, "-", zero, given[0])]
        form = self.bits(kind).replace("f32", "b32") if bits else kind if kind != "s32" or (
            op in ("min", "max")) else "u32"  # fmt: skip
        words = [self.make("u32", "mov.b32", one.at).at if bits and kind == "f32" else one.at
                 for one in given]  # fmt: skip
        found = self.make("u32" if bits and kind == "f32" else kind,
                          f"atom.{space}.{op}.{form}", f"[{values[0].at}]", *words)  # fmt: skip
        return self.make("f32", "mov.b32", found.at) if bits and kind == "f32" else found
