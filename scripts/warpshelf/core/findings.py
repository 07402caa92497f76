"""What a check found wrong, one line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

LONGEST = 1000  # characters that one line shows of what is wrong, and of its mend


def printable_line(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, at most `longest` characters of it.

    Line breaks, terminal escapes, direction marks and odd spaces are spelled out: they would split
    the line, recolour the terminal or reorder what is read.
    """
    cut = text if len(text) <= longest else text[:longest] + "…"
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut
    )


def install_hint(extra: str) -> str:
    """The mend for a missing library: install the extra of pyproject.toml that has it."""
    return f"install the extra: `.venv/bin/pip install -c constraints.txt -e '.[{extra}]'`"


@total_ordering
@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where it is, what it is, and how to mend it.

    `path` is relative to the project root, with `/`; `line` counts from 1, None is the whole file.
    """

    path: str
    line: int | None
    what: str
    mend: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        mend = f"; {printable_line(self.mend)}" if self.mend else ""
        return printable_line(f"{place}: {self.what}") + mend

    def __lt__(self, other: Finding) -> bool:
        key, its = ((one.path, one.line or 0, one.what, one.mend) for one in (self, other))
        return key < its


class ShelfError(Exception):
    """Something is wrong. `findings` says what; `str()` gives a line for each."""

    def __init__(self, findings: Finding | Iterable[Finding]) -> None:
        self.findings = [findings] if isinstance(findings, Finding) else list(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def file_error(shown: str, what: str, mend: str, line: int | None = None) -> ShelfError:
    """The error that says what is wrong with the file `shown`."""
    return ShelfError(Finding(shown, line, what, mend))
