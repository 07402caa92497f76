"""Source code as a fenced block that shows the code and nothing but the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from warpshelf.core.markup import escape, plain

# How pymdownx.snippets finds what it would include or remove; see `neutral`.
INCLUDE = re.compile(
    r"""[ \t]*;*-+8<-+(?:[ \t]+(?:"(?:\\"|[^"])+"|'(?:\\'|[^'])+'))?$"""  # a file, or a block
)
SECTION = re.compile(
    r"(?i)^(?P<before>.*?)(?<!;)(?!(?<=-)-)(?P<marker>;*-+8<-+[ \t]+"
    r"\[[ \t]*(?:start|end)[ \t]*:[ \t]*[a-z][-_0-9a-z]*[ \t]*\].*)$"
)
MARKER = re.compile(
    r"[ \t]*(?:#|//)[ \t]*-+8<-+[ \t]+"
    r"\[[ \t]*(start|end)[ \t]*:[ \t]*([A-Za-z][-_0-9A-Za-z]*)[ \t]*\][ \t]*"
)


class Listing(NamedTuple):
    """One file of a snippet: the label of its tab, "python" or "cuda", its name, its text.

    `ways` is Markdown that stands below it: where the file is to be had.
    """

    label: str
    language: str
    name: str
    text: str
    ways: str = ""


def section_names(text: str) -> list[str]:
    """The names of the marked sections of a source file, in order."""
    found = (MARKER.fullmatch(line) for line in plain(text).split("\n"))
    return list(dict.fromkeys(m[2] for m in found if m and m[1].lower() == "start"))


def section(text: str, name: str) -> str:
    """The lines of a source file between the marks `[start:name]` and `[end:name]`.

    Marks of other sections inside are left out.
    Raises ValueError where the file has no such section.
    """
    kept: list[str] | None = None
    for line in plain(text).split("\n"):
        mark = MARKER.fullmatch(line)
        if mark and mark[2] == name:
            if mark[1].lower() == "end":
                break
            kept = kept or []
        elif kept is not None and not mark:
            kept.append(line)
    if kept is None:
        known = ", ".join(section_names(text)) or "none"
        raise ValueError(f"no section {name!r}, only {known}; mark it with [start:{name}]")
    return "\n".join(kept).strip("\n")


def neutral(line: str) -> str:
    """A line that pymdownx.snippets turns back into `line`, by its escape: `;` before a marker."""
    if "8<-" not in line:
        return line
    if INCLUDE.fullmatch(line):
        bare = line.lstrip(" \t")
        return f"{line[: len(line) - len(bare)]};{bare}"
    if found := SECTION.match(line):
        return f"{found['before']};{found['marker']}"
    return line


def fence(text: str, language: str, title: str) -> str:
    """A fenced code block that shows `text` without its section marks."""
    lines = [line for line in plain(text).split("\n") if not MARKER.fullmatch(line)]
    body = "\n".join(neutral(line) for line in lines).strip("\n")
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
    lexer = {"cuda": "c++"}.get(language, language)
    return f'{ticks}{lexer} title="{title}"\n{body}\n{ticks}'


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.split("\n"))


def opening(text: str, kind: str) -> str:
    """The section of a file that stands open: the one called `kind`, or else its first, or ""."""
    names = section_names(text)
    return kind if kind in names else (names or [""])[0]


def listing(item: Listing, kind: str, folded: bool = False) -> str:
    """A file: the section that opens unless all is `folded`, the whole file in a fold, its ways."""
    _, language, name, text, ways = item
    whole = fence(text, language, name)
    fold = f'??? abstract "All of {name}"\n\n{_indented(whole)}'
    if folded:
        parts = [fold]
    elif first := opening(text, kind):
        parts = [fence(section(text, first), language, name), fold]
    else:
        parts = [whole]
    return "\n\n".join(filter(None, (*parts, ways)))


def listings(code: Sequence[Listing], kind: str, folded: bool = False) -> str:
    """Files in content tabs, or the only file without one; `kind` names the section to open."""
    if len(code) == 1:
        return listing(code[0], kind, folded)
    tabs = (
        f'=== "{escape(item.label)}"\n\n{_indented(listing(item, kind, folded))}' for item in code
    )
    return "\n\n".join(tabs)
