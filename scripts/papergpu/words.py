"""PTX cut into words. Comments are dropped, save what the compiler says in one of inlining."""

from __future__ import annotations

import re
from typing import NamedTuple

# Those that are met most often stand first; none begins as another does, but for the numbers.
# Inline assembly may be written `.reg.b32 x;`: its directives are two.
WORD = re.compile(
    r"""
    [ \t]*+
    (?:
      (?P<name>[%$A-Za-z_][\w$]*(?:(?:\.|::)[\w$]+)*)
    | (?P<mark>[{}()\[\],;:@!|+\-<>=*])
    | (?P<space>[\r\n][ \t\r\n]* | //[^\n]* | /\*.*?\*/ | \Z)
    | (?P<directive>\.[A-Za-z_][\w$]*(?:::[\w$]+)*)
    | (?P<float>0[fF][0-9a-fA-F]{8}(?![\w$]) | 0[dD][0-9a-fA-F]{16}(?![\w$]))
    | (?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?(?![\w$]))
    | (?P<integer>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?(?![\w$]))
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<other>.)
    )
    """,
    re.X | re.S,
)
END = "end"


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


def words(text: str) -> list[Word]:
    """All words of `text`, and one of kind `END` behind them.

    Raises:
        Unreadable: a character that begins no word.
    """
    found: list[Word] = []
    line = 1
    for match in WORD.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            line += match["space"].count("\n")
            continue
        if kind is None or kind == "other":
            at = match.start("other")
            raise Unreadable(line, f"{text[at : at + 20].splitlines()[0]!r} is no word of PTX")
        found.append(Word(kind, match[kind], line))
    found.append(Word(END, "", line))
    return found
