"""A small CUDA C to PTX, in plain Python: to change a kernel in a browser, where there is no nvcc.

For learning. Scalars, pointers, arrays in shared and local memory, control flow, calls (inlined),
the thread's indices, barriers, shuffles, votes, atomics and common functions of float are taken.
What lies outside is refused by its line. A sum or a product is rounded each for itself, as by
`nvcc -fmad=false`; `expf` and the like are what `-use_fast_math` makes of them. Nothing is
optimised. pycparser reads the text, once what C does not know stands in words that it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pycparser import c_ast  # type: ignore[import-untyped]
from pycparser.c_parser import CParser, ParseError  # type: ignore[import-untyped]

from papergpu.cuda_c_values import (
    Array,
    Place,
    Pointer,
    Value,
    Variable,
    Writer,
    line_of,
    refuse,
    say,
    size_of,
    stored,
)
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
MEMORY = {"shared": 232_448, "local": 512 << 10}  # bytes of a block, and of a thread


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


class Compiler(Writer):
    """Writes the kernels of a tree one after another."""

    def __init__(self, tree: Any, kernels: list[str]) -> None:
        super().__init__()
        self.functions = {one.decl.name: one for one in tree.ext if isinstance(one, c_ast.FuncDef)}
        self.kernels = [name for name in dict.fromkeys(kernels) if name in self.functions]
        if not self.kernels:
            raise Unsupported(
                "line 1: there is no kernel; write `__global__ void name(...) { ... }`"
            )
        self.outer: dict[str, Any] = {}
        self.inside: list[str] = []  # functions that are being inlined
        self.shared: list[str] = []  # arrays, as PTX declares them
        self.given: list[Any] = []  # declarations of shared memory that all kernels have
        self.scope = Scope([self.outer])
        for one in tree.ext:
            if isinstance(one, c_ast.Decl) and "_Thread_local" in one.storage:
                self.given.append(one)
            elif isinstance(one, c_ast.Decl) and not isinstance(one.type, c_ast.FuncDecl):
                self.declaration(one)
                if not isinstance(self.outer.get(one.name), Value):
                    refuse(one, f"{one.name} stands outside of all kernels and is no constant")
            elif not isinstance(one, (c_ast.FuncDef, c_ast.Typedef, c_ast.Decl, c_ast.Pragma)):
                refuse(one, "this is not taken here")

    def write(self) -> str:
        parts = [HEAD, f'.file 1 "{FILE}"\n']
        for name in self.kernels:
            node = self.functions[name]
            self.begin_kernel()
            self.shared = []
            self.scope = Scope([self.outer])
            for one in self.given:
                self.declaration(one)
            self.scope.names.append({})
            self.inside = [name]
            given = []
            for one in self.parameters(node):
                type_ = self.read_type(one.type)
                kept = type_ if not isinstance(type_, Pointer) else Pointer(type_.to, "global")
                kind = "u64" if isinstance(kept, Pointer) else stored(kept)
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

    # ---- declarations

    def declare(self, name: str, type_: Any) -> Variable:
        made = Variable(type_, self.register(type_))
        self.scope.names[-1][name] = made
        return made

    def parameters(self, node: Any) -> Iterator[Any]:
        listed = node.decl.type.args
        for one in listed.params if listed else ():
            if isinstance(one, c_ast.Decl):
                yield one
            elif not (isinstance(one, c_ast.Typename) and self.is_void(one.type)):
                refuse(one, "a parameter without a name")

    @staticmethod
    def is_void(node: Any) -> bool:
        type_ = getattr(node, "type", None)
        return isinstance(type_, c_ast.IdentifierType) and type_.names == ["void"]

    def read_type(self, node: Any, space: str = "") -> Any:
        if isinstance(node, c_ast.PtrDecl):
            return Pointer(self.read_type(node.type), space)
        if isinstance(node, c_ast.ArrayDecl):
            count = 0 if node.dim is None else self.known(self.expression(node.dim))
            if count is None:
                refuse(node, "a constant is wanted here")
            if isinstance(count, float) or not 0 <= count < 1 << 20:
                refuse(node, f"{count} elements")
            return Array(self.read_type(node.type), count)
        if isinstance(node, (c_ast.TypeDecl, c_ast.Typename)):
            return self.read_type(node.type)
        if isinstance(node, c_ast.IdentifierType):
            names = [word for name in node.names for word in TYPEDEFS.get(name, name).split()]
            unsigned = "unsigned" in names
            if unknown := [name for name in names if name not in CHARS]:
                refuse(node, f"the type {unknown[0]}")
            kind = next((one for one in ("char", "_Bool", "short", "double", "float", "long")
                         if one in names), "int")  # fmt: skip
            found = CHARS[kind]
            return f"u{found[1:]}" if unsigned and found[0] == "s" else found
        refuse(node, "this type")

    def find(self, node: Any, name: str) -> Any:
        for names in reversed(self.scope.names):
            if name in names:
                return names[name]
        if name in NUMBERS:
            value = NUMBERS[name]
            return self.constant("f32" if isinstance(value, float) else "s32", value)
        refuse(node, f"{name} is not declared")

    def declaration(self, node: Any) -> None:
        if isinstance(node.type, c_ast.FuncDecl):
            refuse(node, "a function within a function")
        shared = "_Thread_local" in node.storage
        type_ = self.read_type(node.type)
        if shared or isinstance(type_, Array):
            self.memory(node, type_, shared)
        elif "static" in node.storage or "extern" in node.storage:
            refuse(node, f"{node.name} is {node.storage[0]}")
        elif node.init is None:
            zero = self.constant("s64" if isinstance(type_, Pointer) else type_, 0)
            self.set(self.declare(node.name, type_).at, Value(type_, zero.at))
        else:
            value = self.expression(node.init)
            if isinstance(type_, Pointer) and isinstance(value.type, Pointer):
                type_ = Pointer(type_.to, value.type.space)
            value = self.convert(node, value, type_)
            number = not isinstance(type_, Pointer) and self.known(value) is not None
            if number and "const" in node.quals:
                self.scope.names[-1][node.name] = value
            else:
                self.set(self.declare(node.name, type_).at, value)

    def memory(self, node: Any, type_: Any, shared: bool) -> None:
        """An array, in shared memory or in a thread's own."""
        space, size = ("shared" if shared else "local"), size_of(type_)
        name = f"{node.name}_{len(self.shared)}"
        extern = "extern" in node.storage
        if extern != (size == 0) or not (shared or size):
            refuse(node, f"{node.name} has no size" if not size else f"{node.name} is extern")
        if size > MEMORY[space]:
            refuse(node, f"{node.name} has {size} bytes, and {space} memory {MEMORY[space]}")
        # What is extern is as long as the launch says, and begins where the other arrays end.
        self.shared.append(f".{space} .align 16 .b8 {name}[{size}];\n")
        at = self.make(Pointer(type_, space), "mov.u64", name).at
        self.scope.names[-1][node.name] = Place(type_, at, space)
        if node.init is None:
            return
        if shared or not isinstance(node.init, c_ast.InitList) or isinstance(type_.of, Array):
            refuse(node, f"{node.name} cannot begin with values here")
        given = [self.convert(one, self.expression(one), type_.of) for one in node.init.exprs]
        if len(given) > type_.size:
            refuse(node, f"{len(given)} values for {type_.size} elements")
        given += [self.constant(type_.of, 0)] * (type_.size - len(given))
        for k, value in enumerate(given):
            self.store(Place(type_.of, f"{at}+{k * size_of(type_.of)}", space), value)

    # ---- statements

    def statement(self, node: Any) -> None:
        if node is None or isinstance(node, (c_ast.EmptyStatement, c_ast.Pragma)):
            return
        name = type(node).__name__
        method = getattr(self, f"do_{name}", None)
        if name != "Compound" and (line := line_of(node)) != self.line and line:
            self.line = line
            self.emit(f".loc 1 {line} 0")
        if method:
            method(node)
        elif isinstance(node, c_ast.Decl):
            self.declaration(node)
        else:
            self.expression(node, used=False)

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
            self.line = line_of(node)
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
        self.loop(node, isinstance(node, c_ast.While), None)

    do_DoWhile = do_While

    def do_Break(self, node: Any) -> None:
        if not self.scope.loops:
            refuse(node, "outside of a loop")
        self.emit(f"bra {self.scope.loops[-1][isinstance(node, c_ast.Break)]}")

    do_Continue = do_Break

    def do_Return(self, node: Any) -> None:
        if not self.scope.end:
            if node.expr is not None:
                refuse(node, "a kernel returns nothing")
            self.emit("ret")
            return
        if (self.scope.result is None) != (node.expr is None):
            refuse(node, "what it returns is not what the function says")
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

    def expression(self, node: Any, used: bool = True) -> Value:
        """What an expression is; an array is the address of its first element."""
        found = self.evaluate(node)
        if found is None and used:
            refuse(node, "a function that returns nothing, as a value")
        return Value("s32", "0") if found is None else self.load(node, found)

    def evaluate(self, node: Any) -> Any:
        """A Value, or the Variable or the Place that has it; None of a function without one."""
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            refuse(node, f"{type(node).__name__} is not taken here")
        return method(node)

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
        refuse(node, "this cannot be assigned to")

    def of_ID(self, node: Any) -> Any:
        return self.find(node, node.name)

    def of_Constant(self, node: Any) -> Value:
        if node.type == "string":
            refuse(node, "a text")
        text = node.value.lower()
        if node.type == "char":
            if len(text) != 3:
                refuse(node, f"the character {node.value}")
            return self.constant("s8", ord(node.value[1]))
        if "float" in node.type or "double" in node.type:
            return self.constant("f32" if text.endswith("f") else "f64", float(text.rstrip("fl")))
        value = int(re.sub(r"^0(?=\d)", "0o", text.rstrip("ul")), 0)
        if value >= 1 << 64:
            refuse(node, f"{node.value} is too large")
        narrow = 1 << (32 if "u" in text or text[0] == "0" else 31)  # what is decimal is signed
        bits = 64 if "l" in text or value >= narrow else 32
        sign = "u" if "u" in text or value >= 1 << bits - 1 else "s"
        return self.constant(f"{sign}{bits}", value)

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
            refuse(node, f"a field {node.field.name}")
        return self.make("u32", "mov.u32", f"%{AXES[name]}.{node.field.name}")

    def of_ArrayRef(self, node: Any) -> Place:
        base, index = self.expression(node.name), self.expression(node.subscript)
        if not isinstance(base.type, Pointer):
            refuse(node, f"{say(base.type)} has no elements")
        moved = self.move(node, base, index)
        return Place(base.type.to, moved.at, base.type.space)

    def of_UnaryOp(self, node: Any) -> Any:
        op, inner = node.op, node.expr
        if op == "sizeof":
            return self.constant("u64", size_of(self.read_type(inner)))
        if op == "&":
            found = self.evaluate(inner)
            if not isinstance(found, Place):
                refuse(node, "the address of what is in no memory")
            return Value(Pointer(found.type, found.space), found.at)
        if op in ("++", "--", "p++", "p--"):
            target = self.evaluate(inner)
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
                refuse(node, f"{say(value.type)} points to nothing")
            return Place(value.type.to, value.at, value.type.space)
        if op == "!":
            at = self.test(node, value)
            return self.make("pred", "not.pred", at)
        if isinstance(value.type, (Pointer, Array)):
            refuse(node, f"{op} of {say(value.type)}")
        value = self.convert(node, value, self.promoted(value.type))
        if op == "+":
            return value
        if op == "-":
            if (known := self.known(value)) is not None:
                return self.constant(value.type, -known)
            if value.type[0] == "u":
                signed = f"s{value.type[1:]}"
                return Value(value.type, self.make(signed, f"neg.{signed}", value.at).at)
            return self.make(value.type, f"neg.{value.type}", value.at)
        if op == "~" and value.type[0] != "f":
            return self.make(value.type, f"not.{self.bits(value.type)}", value.at)
        refuse(node, f"{op} of {say(value.type)}")

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

    def of_Assignment(self, node: Any) -> Value:
        target = self.evaluate(node.lvalue)
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
            refuse(node, f"{name or 'this'} is no function that is known here")
        return found

    def inline(self, node: Any, name: str, given: list[Any]) -> Value | None:
        if name in self.inside or len(self.inside) > 20:
            refuse(node, f"{name} calls itself" if name in self.inside else "calls nest too deep")
        if name in self.kernels:
            refuse(node, f"{name} is a kernel")
        function = self.functions[name]
        wanted = list(self.parameters(function))
        if len(wanted) != len(given):
            refuse(node, f"{name} takes {len(wanted)} arguments and gets {len(given)}")
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
