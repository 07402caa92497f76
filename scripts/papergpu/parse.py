"""PTX text read into its tree.

What a reader of PTX need not know is kept nonetheless (alignments, linkage, limits of a launch),
and what it does not know is refused with its line: a directive that is passed over is a program
that does something else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from papergpu.tree import (
    Address,
    Block,
    Float,
    Function,
    Instruction,
    Integer,
    Label,
    Module,
    Name,
    Operand,
    Opposite,
    Place,
    Prototype,
    Targets,
    Variable,
    Vector,
)
from papergpu.words import END, Unreadable, Word, words

__all__ = ["Unreadable", "parse"]

LINKAGE = (".extern", ".visible", ".weak", ".common")
SPACES = (".reg", ".param", ".shared", ".global", ".const", ".local", ".tex")
LIMITS = (".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
          ".reqnctapercluster", ".maxclusterrank", ".explicitcluster",
          ".blocksareclusters")  # fmt: skip
CLOSING = {"{": "}", "(": ")", "[": "]"}
T = TypeVar("T")


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        Unreadable: it is no PTX that this reads, with the line and what stands there.
    """
    return _Reader(text).module()


class _Reader:
    def __init__(self, text: str) -> None:
        self.words = words(text)
        self.at = 0
        self.files: dict[int, str] = {}
        self.place: Place | None = None

    # Words.

    @property
    def next(self) -> Word:
        return self.words[self.at]

    def take(self) -> Word:
        word = self.next
        if word.kind == END:
            raise Unreadable(word.line, "the text ends in the middle of something")
        self.at += 1
        return word

    def sees(self, *texts: str) -> bool:
        return self.next.kind != END and self.next.text in texts

    def took(self, text: str) -> bool:
        if self.sees(text):
            self.at += 1
            return True
        return False

    def want(self, text: str) -> Word:
        if not self.sees(text):
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} stands in place of {text!r}")
        return self.take()

    def name(self) -> str:
        if self.next.kind != "name":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is no name")
        return self.take().text

    def number(self) -> int:
        if self.next.kind != "integer":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is no number")
        return _integer(self.take().text).value

    def several(self, one: Callable[[], T], closing: str) -> list[T]:
        """What stands, with commas between, up to `closing`, which is taken."""
        found: list[T] = []
        while not self.took(closing):
            if found:
                self.want(",")
            found.append(one())
        return found

    # The module.

    def module(self) -> Module:
        self.want(".version")
        major, _, minor = self.take().text.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise Unreadable(self.words[self.at - 1].line, "the version is none, such as 8.7")
        self.want(".target")
        found = Module((int(major), int(minor)), self.name(), files=self.files)
        while self.took(","):
            self.name()  # debug and texmode_*, which say nothing of what is executed
        while self.next.kind != END:
            self.top(found)
        return found

    def top(self, found: Module) -> None:
        """One statement of the module."""
        line = self.next.line
        if self.took(".address_size"):
            found.address_size = self.number()
        elif self.sees(".file"):
            self.file()
        elif self.took(".section"):
            self.section()
        elif self.took(".pragma"):
            self.take()
            self.want(";")
        else:
            linkage = self.linkage()
            if self.sees(".entry", ".func"):
                found.functions.append(self.function(linkage))
            elif self.sees(*SPACES):
                found.variables += self.variables(linkage)
            else:
                raise Unreadable(line, f"{self.next.text[:40]!r} begins no statement of a module")

    def linkage(self) -> tuple[str, ...]:
        said = []
        while self.sees(*LINKAGE):
            said.append(self.take().text.removeprefix("."))
        return tuple(said)

    def file(self) -> None:
        self.want(".file")
        number = self.number()
        self.files[number] = self.take().text.strip('"')
        while self.took(","):
            self.number()  # when it was changed, and its size

    def section(self) -> None:
        """Debugging data, which nobody executes."""
        while not self.took("{"):
            self.take()
        while not self.took("}"):
            self.take()

    def function(self, linkage: tuple[str, ...]) -> Function:
        head = self.take()
        kernel = head.text == ".entry"
        results: list[Variable] = []
        if not kernel and self.took("("):
            results = self.several(self.parameter, ")")
        found = Function(self.name(), kernel, head.line, results=results, linkage=linkage)
        if self.took("("):
            found.parameters = self.several(self.parameter, ")")
        while self.sees(*LIMITS):
            name = self.take().text.removeprefix(".")
            values = [self.number()] if self.next.kind == "integer" else []
            while values and self.took(","):
                values.append(self.number())
            found.directives[name] = tuple(values)
        self.place = None
        if self.sees("{"):
            found.body = self.block()
        else:
            self.want(";")
        return found

    def parameter(self) -> Variable:
        if not self.sees(".param", ".reg"):
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} begins no parameter")
        return self.variable(self.take().text.removeprefix("."), ())

    # Variables.

    def variables(self, linkage: tuple[str, ...]) -> list[Variable]:
        """One statement that declares some, of one type."""
        space = self.take().text.removeprefix(".")
        first = self.variable(space, linkage)
        found = [first]
        while self.took(","):
            found.append(self.named(first))
        self.want(";")
        return found

    def variable(self, space: str, linkage: tuple[str, ...]) -> Variable:
        line, align, lanes, pointer, kind = self.next.line, None, 1, None, ""
        while self.next.kind == "directive":
            word = self.take().text
            if word == ".align":
                # Behind .ptr it is of what is pointed to, which is wider than any promise needed.
                number = self.number()
                align = align if pointer is not None else number
            elif word == ".attribute":
                self.want("(")
                self.several(self.attribute, ")")
            elif word == ".ptr":
                pointer = "generic"
            elif pointer is not None and word in (".global", ".shared", ".const", ".local"):
                pointer = word.removeprefix(".")
            elif word in (".v2", ".v4", ".v8"):
                lanes = int(word[2:])
            elif not kind:
                kind = word.removeprefix(".")
            else:
                raise Unreadable(line, f"{word!r} is no part of a declaration")
        if not kind:
            raise Unreadable(line, "a variable has no type")
        return self.named(
            Variable(space, kind, "", line, lanes, align, linkage=linkage, pointer=pointer)
        )

    def attribute(self) -> None:
        self.take()
        if self.took("("):
            self.several(self.number, ")")

    def named(self, like: Variable) -> Variable:
        """A variable of the type of `like`, from its name on."""
        line, name = self.next.line, self.name()
        span, values, count = None, None, 1
        if self.took("<"):
            span = self.number()
            self.want(">")
        while self.took("["):
            count *= 0 if self.sees("]") else self.number()
            self.want("]")
        if self.took("="):
            values = tuple(self.values())
        return Variable(
            like.space, like.type, name, line, like.lanes, like.align, count, span, values,
            like.linkage, like.pointer,
        )  # fmt: skip

    def values(self) -> list[Operand]:
        """An initial value, or those in braces, inner braces opened."""
        if not self.took("{"):
            return [self.operand()]
        return [value for inner in self.several(self.values, "}") for value in inner]

    # Bodies.

    def block(self) -> Block:
        # A block that is written in a thousand blocks is refused before it exhausts the stack.
        found = Block(self.want("{").line)
        self.depth = getattr(self, "depth", 0) + 1
        if self.depth > 64:
            raise Unreadable(found.line, "more than 64 blocks stand in one another")
        while not self.took("}"):
            self.statement(found)
        self.depth -= 1
        return found

    def statement(self, found: Block) -> None:
        word = self.next
        if word.text == "{":
            found.items.append(self.block())
        elif word.kind == "directive":
            self.directed(found)
        elif word.kind == "name" and self.words[self.at + 1].text == ":":
            self.labelled(found)
        elif word.text == "@" or word.kind == "name":
            found.items.append(self.instruction())
        elif not self.took(";"):
            raise Unreadable(word.line, f"{word.text[:40]!r} begins no statement")

    def directed(self, found: Block) -> None:
        if self.took(".loc"):
            self.place = self.location()
        elif self.took(".pragma"):
            found.pragmas.append(self.take().text.strip('"'))
            self.want(";")
        elif self.sees(".file"):
            self.file()
        else:
            linkage = self.linkage()
            if not self.sees(*SPACES):
                raise Unreadable(self.next.line, f"{self.next.text[:40]!r} begins no statement")
            found.items.extend(self.variables(linkage))

    def labelled(self, found: Block) -> None:
        word = self.take()
        self.want(":")
        if self.took(".branchtargets"):
            labels = self.several(self.name, ";")
            found.items.append(Targets(word.text, tuple(labels), word.line))
        elif self.took(".callprototype"):
            results = self.several(self.parameter, ")") if self.took("(") else []
            self.name()
            given = self.several(self.parameter, ")") if self.took("(") else []
            self.want(";")
            found.items.append(Prototype(word.text, tuple(results), tuple(given), word.line))
        else:
            found.items.append(Label(word.text, word.line))

    def location(self) -> Place:
        file, line, column = self.number(), self.number(), self.number()
        function, caller = "", None
        while self.took(","):
            what = self.name().partition(" ")[0]
            if what == "function_name":
                function = self.name()
                if self.took("+"):
                    function += f"+{self.number()}"
            elif what == "inlined_at":
                at = self.number(), self.number(), self.number()
                caller = Place(self.files.get(at[0], str(at[0])), at[1], at[2])
            else:
                raise Unreadable(self.next.line, f"{what!r} is no part of .loc")
        return Place(self.files.get(file, str(file)), line, column, function, caller)

    def instruction(self) -> Instruction:
        guard, unless = "", False
        if self.took("@"):
            unless = self.took("!")
            guard = self.name()
        word = self.next
        opcode, *modifiers = self.name().split(".")
        operands: list[Operand] = []
        while not self.took(";"):
            if operands:
                self.want(",")
            operands.append(self.operand())
        return Instruction(
            opcode, tuple(modifiers), tuple(operands), word.line, guard, unless, self.place
        )

    # Operands.

    def operand(self, depth: int = 0) -> Operand:
        if depth > 8:
            raise Unreadable(self.next.line, "an operand holds more than 8 others in one another")
        word = self.take()
        if word.text in ("-", "!"):
            found: Operand = Opposite(word.text, self.operand(depth + 1))
        elif word.text in ("{", "("):
            items = self.several(lambda: self.operand(depth + 1), CLOSING[word.text])
            found = Vector(tuple(items), word.text)
        elif word.text == "[":
            base, *more = self.several(lambda: self.operand(depth + 1), "]") or [Name("")]
            found = Address(base, tuple(more))
        elif word.kind == "integer":
            found = _integer(word.text)
        elif word.kind == "float":
            found = Float(int(word.text[2:], 16), 32 if word.text[1] in "fF" else 64)
        elif word.kind == "decimal":
            found = Float(int.from_bytes(struct.pack(">d", float(word.text)), "big"), 64)
        elif word.kind == "name":
            found = self.behind(word)
        else:
            raise Unreadable(word.line, f"{word.text[:40]!r} is no operand")
        if self.took("|"):
            return Vector((found, self.operand(depth + 1)), "|")
        return found

    def behind(self, word: Word) -> Operand:
        """A name, with the bytes that are added to it; `generic(name)` of an initial value."""
        text, offset = word.text, 0
        if text == "generic" and self.took("("):
            text = self.name()
            self.want(")")
        while self.sees("+", "-"):
            sign = 1 if self.take().text == "+" else -1
            sign = -sign if self.took("-") else sign
            offset += sign * self.number()
        return Name(text, offset)


def _integer(text: str) -> Integer:
    digits = text.removesuffix("U")
    base = {"0x": 16, "0b": 2}.get(
        digits[:2].lower(), 8 if digits[0] == "0" and digits != "0" else 10
    )
    try:
        value = int(digits[2:] if base in (16, 2) else digits, base)
    except ValueError:
        value = int(digits)
    return Integer(value, text.endswith("U"))
