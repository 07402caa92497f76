"""A way through the words of PTX, one after the other. Comments are dropped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

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
    """PTX that cannot be read, said with its line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"{line}: {what}")
        self.line, self.what = line, what


class Cursor:
    """A place in a text: `next` is the word there, from character `start` on up to `end`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line, self._counted = 1, 0
        self.go(0)

    def line_of(self, at: int) -> int:
        """The line of a character, which is none before one that was asked about."""
        self._line += self.text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def go(self, at: int) -> None:
        """Go on to the first word from character `at` on.

        Raises:
            Unreadable: a character that begins no word.
        """
        gap = BETWEEN.match(self.text, at)
        assert gap is not None
        self.start = gap.end()
        line = self.line_of(self.start)
        match = WORD.match(self.text, self.start)
        if match is None or match.lastgroup is None:
            begins = self.text[self.start : self.start + 20].splitlines()[0]
            raise Unreadable(line, f"{begins!r} is no word of PTX")
        self.end = match.end()
        self.next = Word(match.lastgroup, match[0], line)

    def take(self) -> Word:
        word = self.next
        if word.kind == END:
            raise Unreadable(word.line, "the text ends in the middle of something")
        self.go(self.end)
        return word

    def sees(self, *texts: str) -> bool:
        return self.next.text in texts  # that at the end is empty, and no text is

    def took(self, text: str) -> bool:
        if self.next.text == text:
            self.go(self.end)
            return True
        return False

    def want(self, text: str) -> Word:
        if self.next.text != text:
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} stands in place of {text!r}")
        return self.take()

    def name(self) -> str:
        if self.next.kind != "name":
            raise Unreadable(self.next.line, f"{self.next.text[:40]!r} is no name")
        return self.take().text

    def several(self, one: Callable[[], T], closing: str) -> list[T]:
        """What stands, with commas between, up to `closing`, which is taken."""
        found: list[T] = []
        while not self.took(closing):
            if found:
                self.want(",")
            found.append(one())
        return found
