"""What `shelf compare` shows of one snippet."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench import comparison
from warpshelf.bench.pool import Job
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project


def show(project: Project, snippet: Snippet, as_json: bool) -> None:
    """Run `snippet` here, and print what it shows beside its records.

    Raises:
        ShelfError: it failed here, or cannot run here.
    """
    with Reporter(1) as reporter:
        found = comparison.compare(
            project, snippet, lambda event: reporter(event) if isinstance(event, Job) else None
        )
    for line in found.remarks:
        sys.stderr.write(f"{line}\n")
    if as_json:
        print(json.dumps(found.rows, indent=1))
        return
    console = Console(highlight=False, emoji=False)
    table = Table("case", "function", "quantity", *found.machines, title=snippet.id)
    for row in found.rows:
        figures = (row["values"].get(name, "") for name in found.machines)
        table.add_row(*map(escape, (row["case"], row["name"], row["quantity"], *figures)))
    console.print(table)
    console.print(f"here: {found.device}", markup=False, soft_wrap=True)
