"""C++ cut into words, as far as its declarations have to be told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r'''(?P<skip>\s+|//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/)'''
    r'''|(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'''
    r'''|(?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')'''
    r'''|(?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)'''
    r'''|(?P<name>[A-Za-z_]\w*)'''
    r'''|(?P<mark2>.)''',
    re.DOTALL,
)  # fmt: skip
_LINE = re.compile(r"[ \t]*#(?:[^\n\\/]|\\\n|\\.|/(?![*/])|/\*.*?\*/|//[^\n]*)*", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A word of C++; `kind` is name, number, text, mark, or line for a line of the preprocessor."""

    kind: str
    text: str
    start: int
    end: int


def tokens(text: str) -> Iterator[Token]:
    """The words of a text, without spaces and comments; a line of the preprocessor is one."""
    at, fresh = 0, True
    while at < len(text):
        if fresh:
            found = _LINE.match(text, at)
            if found:
                yield Token("line", found[0], found.start(), found.end())
                at, fresh = found.end(), False
                continue
        one = _TOKEN.match(text, at)
        assert one is not None
        at = one.end()
        if one.lastgroup == "skip" or one["skip"] is not None:
            fresh = fresh or "\n" in one[0]
            # Spaces in front of a # on a fresh line were taken with it or stand here.
            if "\n" in one[0]:
                at = one.start() + one[0].rindex("\n") + 1 if one[0].isspace() else at
            continue
        fresh = False
        kind = one.lastgroup or "mark"
        yield Token({"mark2": "mark", "mark": "text", "raw": "text"}.get(kind, kind), one[0],
                    one.start(), one.end())  # fmt: skip


def blanked(text: str) -> str:
    """Spaces for a text; its lines, and those of the preprocessor, stay."""
    kept, at = [], 0
    for one in tokens("\n" + text):
        if one.kind == "line":
            start, end = one.start - 1, one.end - 1
            kept.append(re.sub(r"[^\n]", " ", text[at:start]) + text[start:end])
            at = end
    kept.append(re.sub(r"[^\n]", " ", text[at:]))
    return "".join(kept)


def macros_of(words: Sequence[Token]) -> dict[str, set[str]]:
    """The names of macros, and the names in what they stand for."""
    found: dict[str, set[str]] = {}
    for one in words:
        if one.kind != "line":
            continue
        define = re.match(r"\s*#\s*define\s+(\w+)(.*)", one.text, re.DOTALL)
        if define:
            names = set(re.findall(r"[A-Za-z_]\w*", define[2]))
            found.setdefault(define[1], set()).update(
                names | ({"("} if define[2][:1] == "(" else set())
            )
    return found


def straight(words: Sequence[Token]) -> list[Token]:
    """Words without lines of the preprocessor; where a branch of #if opens what another closes, or
    both open it, only the first branch is read."""
    found: list[Token] = []
    starts: list[list[int]] = []  # of each branch of each #if that is open
    for one in words:
        if one.kind != "line":
            found.append(one)
            continue
        what = one.text.lstrip(" \t#").split(maxsplit=1)[:1]
        word = re.sub(r"\W.*", "", what[0]) if what else ""
        if word in ("if", "ifdef", "ifndef"):
            starts.append([len(found)])
        elif word in ("else", "elif") and starts:
            starts[-1].append(len(found))
        elif word == "endif" and starts:
            branches = starts.pop()
            ends = [*branches[1:], len(found)]
            depths = [
                sum((t.text in ("(", "{", "[")) - (t.text in (")", "}", "]")) for t in found[a:b])
                for a, b in zip(branches, ends, strict=True)
            ]
            if len(branches) > 1 and any(depths):
                del found[branches[1] :]
    return found


def untemplated(texts: Sequence[str]) -> list[str]:
    """Words without what stands between < and >, where that is a list of a template."""
    found: list[str] = []
    depth = 0
    for at, text in enumerate(texts):
        if text == "<" and (depth or (at and re.match(r"[A-Za-z_]", texts[at - 1]))):
            depth += 1
        elif text == ">" and depth:
            depth -= 1
        elif depth and text in (";", "{"):
            return list(texts)  # it was "less than"
        elif not depth:
            found.append(text)
    return list(texts) if depth else found
