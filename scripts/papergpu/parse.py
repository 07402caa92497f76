"""PTX text read into its tree.

What a reader of PTX need not know is kept nonetheless (alignments, linkage, limits of a launch),
and what it does not know is refused with its line: a directive that is passed over is a program
that does something else.
"""

from __future__ import annotations

from papergpu.operands import Operands, integer
from papergpu.tree import (
    Block,
    Function,
    Instruction,
    Label,
    Module,
    Operand,
    Place,
    Prototype,
    Targets,
    Variable,
)
from papergpu.words import END, Unreadable

__all__ = ["Unreadable", "parse"]

LINKAGE = (".extern", ".visible", ".weak", ".common")
SPACES = (".reg", ".param", ".shared", ".global", ".const", ".local", ".tex")
LIMITS = (".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
          ".reqnctapercluster", ".maxclusterrank", ".explicitcluster",
          ".blocksareclusters")  # fmt: skip


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        Unreadable: it is no PTX that this reads, with the line and what stands there.
    """
    return _Reader(text).module()


class _Reader(Operands):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        # LLVM writes its files behind the functions that name them.
        self.files: dict[int, str] = {
            integer(number.text).value: name.text.strip('"')
            for word, number, name in zip(self.words, self.words[1:], self.words[2:], strict=False)
            if word.text == ".file" and number.kind == "integer" and name.kind == "text"
        }
        self.place: Place | None = None
        self.places: dict[tuple[int, int, int], Place] = {}  # so that a caller has its own caller

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
        self.places = {}
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
        self.depth += 1
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
                file_of = self.files.get(at[0], str(at[0]))
                caller = self.places.get(at) or Place(file_of, at[1], at[2])
            else:
                raise Unreadable(self.next.line, f"{what!r} is no part of .loc")
        found = Place(self.files.get(file, str(file)), line, column, function, caller)
        self.places[file, line, column] = found
        return found

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
