"""The statements of a function's body, most of which are instructions.

Their commonest forms are found as a whole, and what they hold is read by its texts; others are read
word by word.
"""

from __future__ import annotations

import re
from functools import lru_cache

from papergpu.declared import SPACES, Declarations
from papergpu.operands import LIST, operands
from papergpu.tree import Block, Instruction, Label, Place, Prototype, Targets
from papergpu.words import GAP, NAME, Unreadable

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
