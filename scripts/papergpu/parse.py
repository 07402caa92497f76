"""PTX text read into its tree.

What a reader of PTX need not know is kept nonetheless (alignments, linkage, limits of a launch),
and what it does not know is refused with its line: a directive that is passed over is a program
that does something else.
"""

from __future__ import annotations

import re
from functools import lru_cache

from papergpu.lexer import (
    END,
    GAP,
    LIST,
    NAME,
    Cursor,
    Unreadable,
    parse_integer,
    parse_operand,
    parse_operands,
)
from papergpu.syntax_tree import (
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
LIMITS = (".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
          ".reqnctapercluster", ".maxclusterrank", ".explicitcluster",
          ".blocksareclusters")  # fmt: skip

FILE = re.compile(r'(?<![\w$])\.file\s+([0-9]{1,9})\s+"((?:[^"\\\n]|\\.)*)"')
SECTION = re.compile(r'[^{]*\{(?:[^}"/]++|"[^"]*"|//[^\n]*|/)*+\}')

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


class _Parser(Cursor):
    """Reads a module: its declarations, and the statements of its functions."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.files: dict[int, str] = {}
        self.place: Place | None = None
        self.places: dict[tuple[int, int, int], Place] = {}  # so that a caller has its own caller

    def expect_number(self) -> int:
        if self.next.kind != "integer":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is not a number")
        return parse_integer(self.advance().text).value

    def parse_linkage(self) -> tuple[str, ...]:
        said = []
        while self.next_is(*LINKAGE):
            said.append(self.advance().text.removeprefix("."))
        return tuple(said)

    def parse_parameter(self) -> Variable:
        if not self.next_is(".param", ".reg"):
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is not a parameter")
        return self.parse_variable(self.advance().text.removeprefix("."), ())

    def parse_variables(self, linkage: tuple[str, ...]) -> list[Variable]:
        """One statement that declares some, of one type."""
        space = self.advance().text.removeprefix(".")
        first = self.parse_variable(space, linkage)
        found = [first]
        while self.accept(","):
            found.append(self.parse_declarator(first))
        self.expect(";")
        return found

    def parse_variable(self, space: str, linkage: tuple[str, ...]) -> Variable:
        line, align, lanes, pointer, kind = self.next.line, None, 1, None, ""
        while self.next.kind == "directive":
            word = self.advance().text
            if word == ".align":
                # Behind .ptr it is of what is pointed to, which is wider than any promise needed.
                number = self.expect_number()
                align = align if pointer is not None else number
            elif word == ".attribute":
                self.expect("(")
                self.parse_list(self.skip_attribute, ")")
            elif word == ".ptr":
                pointer = "generic"
            elif pointer is not None and word in (".global", ".shared", ".const", ".local"):
                pointer = word.removeprefix(".")
            elif word in (".v2", ".v4", ".v8"):
                lanes = int(word[2:])
            elif not kind:
                kind = word.removeprefix(".")
            else:
                raise Unreadable(line, f"{word!r} does not belong in a declaration")
        if not kind:
            raise Unreadable(line, "a variable has no type")
        return self.parse_declarator(
            Variable(space, kind, "", line, lanes, align, linkage=linkage, pointer=pointer)
        )

    def skip_attribute(self) -> None:
        self.advance()
        if self.accept("("):
            self.parse_list(self.expect_number, ")")

    def parse_declarator(self, like: Variable) -> Variable:
        """A variable of the type of `like`, from its name on."""
        line, name = self.next.line, self.expect_name()
        span, values, count = None, None, 1
        if self.accept("<"):
            span = self.expect_number()
            self.expect(">")
        while self.accept("["):
            count *= 0 if self.next_is("]") else self.expect_number()
            self.expect("]")
        if self.accept("="):
            values = tuple(self.parse_values())
        return Variable(
            like.space, like.type, name, line, like.lanes, like.align, count, span, values,
            like.linkage, like.pointer,
        )  # fmt: skip

    def parse_values(self) -> list[Operand]:
        """An initial value, or those in braces, inner braces opened."""
        if self.accept("{"):
            return [value for inner in self.parse_list(self.parse_values, "}") for value in inner]
        line, start, end = self.next.line, self.start, self.start
        while not self.next_is(",", ";", "}"):
            end = self.end
            self.advance()
        try:
            return [parse_operand(self.text[start:end])]
        except ValueError as error:
            raise Unreadable(line, str(error)) from None

    def parse_file(self) -> None:
        self.expect(".file")
        number = self.expect_number()
        self.files[number] = self.advance().text.strip('"')
        while self.accept(","):
            self.expect_number()  # when it was changed, and its size

    def parse_block(self) -> Block:
        # A block that is written in a thousand blocks is refused before it exhausts the stack.
        found = Block(self.expect("{").line)
        self.depth += 1
        if self.depth > 64:
            raise Unreadable(found.line, "blocks are nested more than 64 deep")
        at = self.start
        while True:
            match = STATEMENT.match(self.text, at)
            kind = match.lastgroup if match is not None else None
            if match is None or kind is None:
                self.move_to(at)
                self.parse_statement(found)
                at = self.start
                continue
            at = match.end()
            if kind == "operands":
                found.items.append(self.parse_instruction(match))
            elif kind == "place":
                self.place = self.parse_location(*match.group("loc", "function", "caller"))
            elif kind == "label":
                found.items.append(Label(match["label"], self.find_line(match.start("label"))))
            else:
                self.move_to(at)
                self.depth -= 1
                return found

    def parse_statement(self, found: Block) -> None:
        word = self.next
        if word.text == "{":
            found.items.append(self.parse_block())
        elif word.kind == "directive":
            self.parse_directive(found)
        elif word.text == "@" or word.kind == "name":
            self.parse_labelled(found)
        elif not self.accept(";"):
            raise Unreadable(word.line, f"{word.text[:40]!r} is not a statement")

    def parse_directive(self, found: Block) -> None:
        if self.accept(".pragma"):
            found.pragmas.append(self.advance().text.strip('"'))
            self.expect(";")
        elif self.next_is(".file"):
            self.parse_file()
        else:
            linkage = self.parse_linkage()
            if not self.next_is(*SPACES):
                raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is not a statement")
            found.items.extend(self.parse_variables(linkage))

    def parse_labelled(self, found: Block) -> None:
        word = self.advance()
        if not self.accept(":"):
            raise self.explain_unfinished(word.text)
        if self.accept(".branchtargets"):
            labels = self.parse_list(self.expect_name, ";")
            found.items.append(Targets(word.text, tuple(labels), word.line))
        else:
            self.expect(".callprototype")
            results = self.parse_list(self.parse_parameter, ")") if self.accept("(") else []
            self.expect_name()
            given = self.parse_list(self.parse_parameter, ")") if self.accept("(") else []
            self.expect(";")
            found.items.append(Prototype(word.text, tuple(results), tuple(given), word.line))

    def parse_location(self, loc: str, function: str | None, caller: str | None) -> Place:
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

    def parse_instruction(self, match: re.Match[str]) -> Instruction:
        form, guard, given = match.group("opcode", "guard", "operands")
        line = self.find_line(match.start("opcode"))
        try:
            read = parse_operands(given)
        except ValueError as error:
            self.move_to(match.start("operands"))
            while self.end < match.end():
                self.advance()  # what is no word is told rather
            raise Unreadable(line, str(error)) from None
        opcode, modifiers = _split_form(form)
        unless = bool(match["unless"])
        return Instruction(form, opcode, modifiers, read, line, guard or "", unless, self.place)

    def explain_unfinished(self, form: str) -> Unreadable:
        """What is wrong with an instruction that does not end as one, from its opcode on."""
        opened: list[str] = []
        while True:
            word = self.advance()
            if word.text in CLOSING:
                opened.append(CLOSING[word.text])
            elif opened and word.text == opened[-1]:
                opened.pop()
            elif word.text == ";" and not opened:
                return Unreadable(word.line, f"{form[:40]} has malformed operands")
            elif word.text in (";", "}", ")", "]") or word.kind == "directive":
                what = "found instead of ','" if opened else "is not an operand"
                return Unreadable(word.line, f"{word.text[:40]!r} {what}")

    def parse_module(self) -> Module:
        # LLVM writes its files behind the functions that name them.
        self.files.update({int(number): name for number, name in FILE.findall(self.text)})
        self.expect(".version")
        line = self.next.line
        major, _, minor = self.advance().text.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise Unreadable(line, "the version must be a number such as 8.7")
        self.expect(".target")
        found = Module(
            (int(major), int(minor)), self.expect_name(), files=self.files, text=self.text
        )
        while self.accept(","):
            self.expect_name()  # debug and texmode_*, which say nothing of what is executed
        while self.next.kind != END:
            self.parse_top_level(found)
        return found

    def parse_top_level(self, found: Module) -> None:
        """One statement of the module."""
        line = self.next.line
        if self.accept(".address_size"):
            found.address_size = self.expect_number()
        elif self.next_is(".file"):
            self.parse_file()
        elif self.accept(".section"):
            found_end = SECTION.match(self.text, self.start)  # data for debuggers
            if found_end is None:
                raise Unreadable(line, "a .section has no end")
            self.move_to(found_end.end())
        elif self.accept(".pragma"):
            self.advance()
            self.expect(";")
        else:
            linkage = self.parse_linkage()
            if self.next_is(".entry", ".func"):
                found.functions.append(self.parse_function(linkage))
            elif self.next_is(*SPACES):
                found.variables += self.parse_variables(linkage)
            else:
                raise Unreadable(line, f"{self.next.text[:40]!r} is not a module statement")

    def parse_function(self, linkage: tuple[str, ...]) -> Function:
        head = self.advance()
        kernel = head.text == ".entry"
        results: list[Variable] = []
        if not kernel and self.accept("("):
            results = self.parse_list(self.parse_parameter, ")")
        found = Function(self.expect_name(), kernel, head.line, results=results, linkage=linkage)
        if self.accept("("):
            found.parameters = self.parse_list(self.parse_parameter, ")")
        while self.next_is(*LIMITS):
            name = self.advance().text.removeprefix(".")
            values = [self.expect_number()] if self.next.kind == "integer" else []
            while values and self.accept(","):
                values.append(self.expect_number())
            found.directives[name] = tuple(values)
        self.place = None
        self.places = {}
        if self.next_is("{"):
            found.body = self.parse_block()
        else:
            self.expect(";")
        return found


@lru_cache(1 << 12)
def _split_form(form: str) -> tuple[str, tuple[str, ...]]:
    """The opcode and the modifiers of a form."""
    opcode, *modifiers = form.split(".")
    return opcode, tuple(modifiers)


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        Unreadable: it is no PTX that this reads, with the line and what stands there.
    """
    return _Parser(text).parse_module()
