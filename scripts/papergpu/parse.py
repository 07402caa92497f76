"""PTX text read into its tree.

What a reader of PTX need not know is kept nonetheless (alignments, linkage, limits of a launch),
and what it does not know is refused with its line: a directive that is passed over is a program
that does something else.
"""

from __future__ import annotations

import re
from functools import lru_cache

from papergpu.operands import END, GAP, LIST, NAME, Cursor, Unreadable, integer, operand, operands
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

__all__ = ["Unreadable", "parse"]

# ---- what PTX declares, word by word: variables, parameters and registers

LINKAGE = (".extern", ".visible", ".weak", ".common")
SPACES = (".reg", ".param", ".shared", ".global", ".const", ".local", ".tex")


class Declarations(Cursor):
    """Reads declarations where they stand."""

    def number(self) -> int:
        if self.next.kind != "integer":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is no number")
        return integer(self.take().text).value

    def linkage(self) -> tuple[str, ...]:
        said = []
        while self.sees(*LINKAGE):
            said.append(self.take().text.removeprefix("."))
        return tuple(said)

    def parameter(self) -> Variable:
        if not self.sees(".param", ".reg"):
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} begins no parameter")
        return self.variable(self.take().text.removeprefix("."), ())

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
        if self.took("{"):
            return [value for inner in self.several(self.values, "}") for value in inner]
        line, start, end = self.next.line, self.start, self.start
        while not self.sees(",", ";", "}"):
            end = self.end
            self.take()
        try:
            return [operand(self.text[start:end])]
        except ValueError as error:
            raise Unreadable(line, str(error)) from None


# ---- the statements of a function's body, most of which are instructions: their commonest forms
# are found as a whole, and what they hold is read by its texts; others are read word by word

THREE = r"[0-9]{1,9}[ \t]+[0-9]{1,9}[ \t]+[0-9]{1,9}"
# The statements of which programs mostly consist, and the end of a block. Others are read by words.
STATEMENT = re.compile(
    rf"""{GAP}
    (?: (?:@{GAP}(?P<unless>!?){GAP}(?P<guard>{NAME}){GAP})?(?P<opcode>{NAME})(?P<operands>{LIST});
    | \.loc[ \t]+(?P<loc>{THREE})(?![\w$.])
      (?:{GAP},{GAP}function_name{GAP}(?P<function>{NAME}(?:\+\d+)?))?
      (?:{GAP},{GAP}inlined_at[ \t]+(?P<caller>{THREE}))?
      (?!{GAP},)(?P<place>)
    | (?P<label>{NAME}){GAP}:(?!{GAP}\.(?:branchtargets|callprototype))
    | (?P<close>\}})
    )""",
    re.X | re.S,
)
CLOSING = {"{": "}", "(": ")", "[": "]"}


class Bodies(Declarations):
    """Reads bodies where they stand."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.files: dict[int, str] = {}
        self.place: Place | None = None
        self.places: dict[tuple[int, int, int], Place] = {}  # so that a caller has its own caller

    def file(self) -> None:
        self.want(".file")
        number = self.number()
        self.files[number] = self.take().text.strip('"')
        while self.took(","):
            self.number()  # when it was changed, and its size

    def block(self) -> Block:
        # A block that is written in a thousand blocks is refused before it exhausts the stack.
        found = Block(self.want("{").line)
        self.depth += 1
        if self.depth > 64:
            raise Unreadable(found.line, "more than 64 blocks stand in one another")
        at = self.start
        while True:
            match = STATEMENT.match(self.text, at)
            kind = match.lastgroup if match is not None else None
            if match is None or kind is None:
                self.go(at)
                self.statement(found)
                at = self.start
                continue
            at = match.end()
            if kind == "operands":
                found.items.append(self.instruction(match))
            elif kind == "place":
                self.place = self.placed(*match.group("loc", "function", "caller"))
            elif kind == "label":
                found.items.append(Label(match["label"], self.line_of(match.start("label"))))
            else:
                self.go(at)
                self.depth -= 1
                return found

    def statement(self, found: Block) -> None:
        word = self.next
        if word.text == "{":
            found.items.append(self.block())
        elif word.kind == "directive":
            self.directed(found)
        elif word.text == "@" or word.kind == "name":
            self.labelled(found)
        elif not self.took(";"):
            raise Unreadable(word.line, f"{word.text[:40]!r} begins no statement")

    def directed(self, found: Block) -> None:
        if self.took(".pragma"):
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
        if not self.took(":"):
            raise self.unfinished(word.text)
        if self.took(".branchtargets"):
            labels = self.several(self.name, ";")
            found.items.append(Targets(word.text, tuple(labels), word.line))
        else:
            self.want(".callprototype")
            results = self.several(self.parameter, ")") if self.took("(") else []
            self.name()
            given = self.several(self.parameter, ")") if self.took("(") else []
            self.want(";")
            found.items.append(Prototype(word.text, tuple(results), tuple(given), word.line))

    def placed(self, loc: str, function: str | None, caller: str | None) -> Place:
        """What a .loc says: three numbers; where they are inlined, a name and three more."""
        called = None
        if caller is not None:
            file, line, column = map(int, caller.split())
            called = self.places.get((file, line, column)) or Place(
                self.files.get(file, str(file)), line, column
            )
        file, line, column = map(int, loc.split())
        found = self.places[file, line, column] = Place(
            self.files.get(file, str(file)), line, column, function or "", called
        )
        return found

    def instruction(self, match: re.Match[str]) -> Instruction:
        form, guard, given = match.group("opcode", "guard", "operands")
        line = self.line_of(match.start("opcode"))
        try:
            read = operands(given)
        except ValueError as error:
            self.go(match.start("operands"))
            while self.end < match.end():
                self.take()  # what is no word is told rather
            raise Unreadable(line, str(error)) from None
        opcode, modifiers = _parted(form)
        unless = bool(match["unless"])
        return Instruction(form, opcode, modifiers, read, line, guard or "", unless, self.place)

    def unfinished(self, form: str) -> Unreadable:
        """What is wrong with an instruction that does not end as one, from its opcode on."""
        opened: list[str] = []
        while True:
            word = self.take()
            if word.text in CLOSING:
                opened.append(CLOSING[word.text])
            elif opened and word.text == opened[-1]:
                opened.pop()
            elif word.text == ";" and not opened:
                return Unreadable(word.line, f"{form[:40]} has operands that are none")
            elif word.text in (";", "}", ")", "]") or word.kind == "directive":
                what = "stands in place of ','" if opened else "is no operand"
                return Unreadable(word.line, f"{word.text[:40]!r} {what}")


@lru_cache(1 << 12)
def _parted(form: str) -> tuple[str, tuple[str, ...]]:
    """The opcode and the modifiers of a form."""
    opcode, *modifiers = form.split(".")
    return opcode, tuple(modifiers)


LIMITS = (".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
          ".reqnctapercluster", ".maxclusterrank", ".explicitcluster",
          ".blocksareclusters")  # fmt: skip

FILE = re.compile(r'(?<![\w$])\.file\s+([0-9]{1,9})\s+"((?:[^"\\\n]|\\.)*)"')
SECTION = re.compile(r'[^{]*\{(?:[^}"/]++|"[^"]*"|//[^\n]*|/)*+\}')


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        Unreadable: it is no PTX that this reads, with the line and what stands there.
    """
    return _Reader(text).module()


class _Reader(Bodies):
    def module(self) -> Module:
        # LLVM writes its files behind the functions that name them.
        self.files.update({int(number): name for number, name in FILE.findall(self.text)})
        self.want(".version")
        line = self.next.line
        major, _, minor = self.take().text.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise Unreadable(line, "the version is none, such as 8.7")
        self.want(".target")
        found = Module((int(major), int(minor)), self.name(), files=self.files, text=self.text)
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

    def section(self) -> None:
        """Debugging data, which nobody executes."""
        line, found = self.next.line, SECTION.match(self.text, self.start)
        if found is None:
            raise Unreadable(line, "a .section has no end")
        self.go(found.end())

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
