"""The words of PTX, and operands by their texts.

A text of an operand is read once: most stand in a program several times. Comments are dropped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from papergpu.syntax_tree import Address, Float, Integer, Name, Negated, Operand, Vector

# ---- a way through the words of PTX, one after the other

GAP = r"(?:[ \t\r\n]++|//[^\n]*+|/\*.*?\*/)*+"
NAME = r"[%$A-Za-z_][\w$]*+(?:(?:\.|::)[\w$]++)*+"
INTEGER = r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?"
# Those that are met most often stand first; none begins as another does, but for the numbers.
# Inline assembly may be written `.reg.b32 x;`: its directives are two.
WORD = re.compile(
    rf"""
      (?P<name>{NAME})
    | (?P<mark>[{{}}()\[\],;:@!|+\-<>=*])
    | (?P<directive>\.[A-Za-z_][\w$]*(?:::[\w$]+)*)
    | (?P<float>0[fF][0-9a-fA-F]{{8}}(?![\w$]) | 0[dD][0-9a-fA-F]{{16}}(?![\w$]))
    | (?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?(?![\w$]))
    | (?P<integer>{INTEGER}(?![\w$]))
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<end>\Z)
    """,
    re.X | re.S,
)
BETWEEN = re.compile(GAP, re.S)
END = "end"
T = TypeVar("T")


class Word(NamedTuple):
    """A word, what kind of word it is, and the line it stands on, from 1."""

    kind: str
    text: str
    line: int


class Unreadable(ValueError):
    """PTX that cannot be read; the message has its line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"{line}: {what}")
        self.line, self.what = line, what


class Cursor:
    """A place in a text: `next` is the word there, from character `start` on up to `end`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line, self._counted = 1, 0
        self.move_to(0)

    def find_line(self, at: int) -> int:
        """The line of a character, which is none before one that was asked about."""
        self._line += self.text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def move_to(self, at: int) -> None:
        """Go on to the first word from character `at` on.

        Raises:
            Unreadable: a character that begins no word.
        """
        gap = BETWEEN.match(self.text, at)
        assert gap is not None
        self.start = gap.end()
        line = self.find_line(self.start)
        match = WORD.match(self.text, self.start)
        if match is None or match.lastgroup is None:
            begins = self.text[self.start : self.start + 20].splitlines()[0]
            raise Unreadable(line, f"{begins!r} is not a word of PTX")
        self.end = match.end()
        self.next = Word(match.lastgroup, match[0], line)

    def advance(self) -> Word:
        word = self.next
        if word.kind == END:
            raise Unreadable(word.line, "the text ends too early")
        self.move_to(self.end)
        return word

    def next_is(self, *texts: str) -> bool:
        return self.next.text in texts  # that at the end is empty, and no text is

    def accept(self, text: str) -> bool:
        if self.next.text == text:
            self.move_to(self.end)
            return True
        return False

    def expect(self, text: str) -> Word:
        if self.next.text != text:
            raise Unreadable(self.next.line, f"expected {text!r}, found {self.next.text[:40]!r}")
        return self.advance()

    def expect_name(self) -> str:
        if self.next.kind != "name":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is not a name")
        return self.advance().text

    def parse_list(self, one: Callable[[], T], closing: str) -> list[T]:
        """What stands, with commas between, up to `closing`, which is taken."""
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(one())
        return found


COMMENT = r"//[^\n]*+|/\*.*?\*/"
_INNER = rf"(?:[^;:/{{}}\[\]()\"]++|{COMMENT})*+"
# What an instruction has behind its opcode: no bracket is open at its end.
LIST = (
    rf"(?:[^;:/{{}}\[\]()\"]++|\{{{_INNER}\}}|\({_INNER}\)|{COMMENT}"
    rf"|\[(?:[^;:/\[\]()\"]++|{COMMENT})*+\])*+"
)
_COMMENT = re.compile(COMMENT, re.S)
_PLAIN = re.compile(NAME)
_PART = re.compile(r"(?:[^,\[{(]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+")
_MOVED = re.compile(
    rf"(?:generic{GAP}\(\s*(?P<of>{NAME})\s*\)|(?P<name>{NAME}))"
    rf"(?P<by>(?:\s*[+-]\s*-?\s*{INTEGER})*)"
)
_STEP = re.compile(rf"([+-])\s*(-?)\s*({INTEGER})")
_INTEGER = re.compile(INTEGER)
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_DECIMAL = re.compile(r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?")


def parse_operands(text: str) -> tuple[Operand, ...]:
    """The operands of an instruction, from behind its opcode up to its semicolon.

    Raises:
        ValueError: one of them is none.
    """
    if "/" in text:
        text = _COMMENT.sub(" ", text)
    return tuple([parse_operand(one) for one in split_operands(text)])


def split_operands(text: str) -> list[str]:
    """What stands between the commas of a text that are in no bracket."""
    if not text or text.isspace():
        return []
    if not ("[" in text or "{" in text or "(" in text):
        return text.split(",")
    found: list[str] = _PART.findall(text)
    if ",".join(found) != text:
        raise ValueError(f"{text.strip()[:40]!r} are not operands")
    return found


@lru_cache(1 << 16)
def parse_operand(text: str) -> Operand:
    """The operand that a text is.

    Raises:
        ValueError: it is none.
    """
    text = text.strip(" \t\r\n")
    if _PLAIN.fullmatch(text):
        return Name(text)
    brackets = text[:1] + text[-1:]
    if brackets == "[]":
        base, *more = [parse_operand(one) for one in split_operands(text[1:-1])] or [Name("")]
        return Address(base, tuple(more))
    if brackets in ("{}", "()"):
        return Vector(tuple([parse_operand(one) for one in split_operands(text[1:-1])]), text[0])
    first, bar, second = text.partition("|")
    if bar and "|" not in second:
        return Vector((parse_operand(first), parse_operand(second)), "|")
    if text[:1] in ("-", "!") and not text[1:].lstrip().startswith(("-", "!")):
        return Negated(text[0], parse_operand(text[1:]))
    moved = _MOVED.fullmatch(text)
    if moved is not None:
        steps = _STEP.findall(moved["by"])
        by = sum(parse_integer(size).value * (1 if sign == "+" else -1) * (-1 if minus else 1)
                 for sign, minus, size in steps)  # fmt: skip
        return Name(moved["of"] or moved["name"], by)
    if _FLOAT.fullmatch(text):
        return Float(int(text[2:], 16), 32 if text[1] in "fF" else 64)
    if _DECIMAL.fullmatch(text):
        return Float(int.from_bytes(struct.pack(">d", float(text)), "big"), 64)
    if _INTEGER.fullmatch(text):
        return parse_integer(text)
    raise ValueError(f"{text[:40]!r} is not an operand")


@lru_cache(1 << 14)
def parse_integer(text: str) -> Integer:
    """The constant that is written so: `0x1F`, `017`, `5U`."""
    digits = text.removesuffix("U")
    base = {"0x": 16, "0b": 2}.get(
        digits[:2].lower(), 8 if digits[0] == "0" and digits != "0" else 10
    )
    try:
        value = int(digits[2:] if base in (16, 2) else digits, base)
    except ValueError:
        value = int(digits)
    return Integer(value, text.endswith("U"))
