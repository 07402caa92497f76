"""Text and tables as `shelf look` prints them: no wider than the terminal, plain where piped."""

from __future__ import annotations

import os
import sys
import textwrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED = 100  # columns of what is no terminal


def make_console() -> Console:
    """Standard output: as wide as the terminal, or as COLUMNS says where it is piped."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED
    return Console(highlight=False, emoji=False, width=wide)


def print_paragraph(
    out: Console, text: str, indent: int = 0, style: str = "", hanging: int = 0
) -> None:
    """Print a paragraph; its further lines are indented by `hanging` more."""
    space = " " * indent
    lines = textwrap.wrap(
        text,
        max(20, out.width),
        initial_indent=space,
        subsequent_indent=space + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        out.print(Text(line, style), soft_wrap=True)


def print_truncated(out: Console, text: str, indent: int = 0, style: str = "dim") -> None:
    """Print one line, and of what is too long only the beginning."""
    shown = Text(" " * indent + text, style)
    shown.truncate(out.width, overflow="ellipsis")
    out.print(shown, soft_wrap=True)


def print_title(out: Console, text: str) -> None:
    """Print a heading behind an empty line."""
    out.print()
    print_paragraph(out, text, style="bold", hanging=2)


def make_table(*names: str, left: tuple[str, ...] = (), flexible: str = "") -> Table:
    """A table without lines; the column `flexible` is cut to what the terminal has left."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=bool(flexible))
    for name in names:
        if name == flexible:
            drawn.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1)
        else:
            drawn.add_column(name, no_wrap=True, justify="left" if name in left else "right")
    return drawn


def print_table(out: Console, drawn: Table) -> None:
    """Print a table; piped, without the spaces behind its lines."""
    if out.is_terminal:
        out.print(drawn)
        return
    with out.capture() as got:
        out.print(drawn)
    for line in got.get().splitlines():
        out.print(Text(line.rstrip()), soft_wrap=True)
