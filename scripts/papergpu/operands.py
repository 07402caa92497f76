"""A way through the words of PTX, and the operands that stand among them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from papergpu.tree import Address, Float, Integer, Name, Operand, Opposite, Vector
from papergpu.words import END, Unreadable, Word, words

CLOSING = {"{": "}", "(": ")", "[": "]"}
T = TypeVar("T")


class Cursor:
    """The words of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        self.words = words(text)
        self.at = 0

    @property
    def next(self) -> Word:
        return self.words[self.at]

    def take(self) -> Word:
        word = self.words[self.at]
        if word.kind == END:
            raise Unreadable(word.line, "the text ends in the middle of something")
        self.at += 1
        return word

    def sees(self, *texts: str) -> bool:
        return self.words[self.at].text in texts  # that at the end is empty, and no text is

    def took(self, text: str) -> bool:
        if self.words[self.at].text == text:
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
        return integer(self.take().text).value

    def several(self, one: Callable[[], T], closing: str) -> list[T]:
        """What stands, with commas between, up to `closing`, which is taken."""
        found: list[T] = []
        while not self.took(closing):
            if found:
                self.want(",")
            found.append(one())
        return found


class Operands(Cursor):
    """Reads operands where they stand."""

    def operand(self, depth: int = 0) -> Operand:
        if depth > 8:
            raise Unreadable(self.next.line, "an operand holds more than 8 others in one another")
        word = self.take()
        if word.kind == "name":
            found: Operand = self.behind(word)
        elif word.text in ("-", "!"):
            found = Opposite(word.text, self.operand(depth + 1))
        elif word.text in ("{", "("):
            items = self.several(lambda: self.operand(depth + 1), CLOSING[word.text])
            found = Vector(tuple(items), word.text)
        elif word.text == "[":
            base, *more = self.several(lambda: self.operand(depth + 1), "]") or [Name("")]
            found = Address(base, tuple(more))
        elif word.kind == "integer":
            found = integer(word.text)
        elif word.kind == "float":
            found = Float(int(word.text[2:], 16), 32 if word.text[1] in "fF" else 64)
        elif word.kind == "decimal":
            found = Float(int.from_bytes(struct.pack(">d", float(word.text)), "big"), 64)
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
        if self.words[self.at].text in (",", ";", "]", "}"):
            return plain(text)
        while self.sees("+", "-"):
            sign = 1 if self.take().text == "+" else -1
            sign = -sign if self.took("-") else sign
            offset += sign * self.number()
        return Name(text, offset)


@lru_cache(1 << 14)
def plain(text: str) -> Name:
    """A name with nothing added to it."""
    return Name(text)


@lru_cache(1 << 14)
def integer(text: str) -> Integer:
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
