"""What PTX declares, word by word: variables, parameters and registers."""

from __future__ import annotations

from papergpu.operands import integer, operand
from papergpu.tree import Operand, Variable
from papergpu.words import Cursor, Unreadable

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
