"""What `shelf check --mutants ID` shows: the matrix of a snippet's mutants and cases."""

from __future__ import annotations

import json

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench import mutants
from warpshelf.bench.mutants import Matrix
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding

WIDEST = 400  # columns of a table: more than forty cases and a name need
MARKS = {True: "x", False: "."}  # rejected, or not


def show(snippet: Snippet, as_json: bool) -> list[Finding]:
    """Run every mutant of `snippet` by every case and print the matrix; what it finds wrong.

    Raises:
        ShelfError: it cannot be run.
    """
    with Reporter(1) as reporter:
        # Only a terminal is told how far it is: a log has no use for a line a mutant.
        found = mutants.matrix(snippet, began=reporter if reporter.live else lambda job: None)
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
        return found.findings()
    console = Console(highlight=False, emoji=False)
    drawn = table(found)
    # Names that are folded to a few letters tell nothing: let a line be longer than the terminal.
    console.width = max(console.width, WIDEST)
    console.print(drawn, soft_wrap=True)
    for index, case in enumerate(found.cases):
        console.print(f"{index:3}  {case}", markup=False, soft_wrap=True)
    return found.findings()


def table(found: Matrix) -> Table:
    """Mutants by cases; a case that cannot run here has an empty cell."""
    drawn = Table(title=escape(f"{found.snippet.id}: mutants by case"))
    drawn.add_column("mutant", no_wrap=True)
    for index in range(len(found.cases)):
        drawn.add_column(str(index), justify="center")
    for name, judged in found.judged.items():
        cells = (
            MARKS[judged[index] is not None] if index in judged else ""
            for index in range(len(found.cases))
        )
        drawn.add_row(escape(name), *cells)
    return drawn
