"""Text and tables as `shelf look` prints them: no wider than the terminal, plain where piped."""

from __future__ import annotations

import os
import sys
import textwrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED = 100  # columns without a terminal


class Output(Console):
    """Standard output: as wide as the terminal, or as COLUMNS says if piped."""

    def __init__(self) -> None:
        wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED
        super().__init__(highlight=False, emoji=False, width=wide)

    def print_paragraph(
        self, text: str, indent: int = 0, style: str = "", hanging: int = 0
    ) -> None:
        """Print a paragraph; its further lines are indented by `hanging` more."""
        first, further = " " * indent, " " * (indent + hanging)
        wrapper = textwrap.TextWrapper(max(20, self.width), first, further)
        wrapper.break_long_words = wrapper.break_on_hyphens = False
        for line in wrapper.wrap(text):
            self.print(Text(line, style), soft_wrap=True)

    def print_truncated(self, text: str, indent: int) -> None:
        """Print one dim line, cut if it is too long."""
        shown = Text(" " * indent + text, "dim")
        shown.truncate(self.width, overflow="ellipsis")
        self.print(shown, soft_wrap=True)

    def print_title(self, text: str) -> None:
        """Print a heading behind an empty line."""
        self.print()
        self.print_paragraph(text, style="bold", hanging=2)

    def print_table(self, drawn: Table) -> None:
        """Print a table; piped, without the spaces behind its lines."""
        if self.is_terminal:
            self.print(drawn)
            return
        with self.capture() as got:
            self.print(drawn)
        for line in got.get().splitlines():
            self.print(Text(line.rstrip()), soft_wrap=True)


def make_table(*names: str, left: tuple[str, ...] = (), flexible: str = "") -> Table:
    """A table without lines; the column `flexible` is cut to what the terminal has left."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=bool(flexible))
    for name in names:
        if name == flexible:
            drawn.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1)
        else:
            drawn.add_column(name, no_wrap=True, justify="left" if name in left else "right")
    return drawn
