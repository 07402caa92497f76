"""Why a record may be slower than the one before it, in the words of a person.

They stand in slower.yml beside a snippet, apart from what machines wrote: a record stays byte for
byte what its machine made and, where a job made it, what the job signed. Each names its record by
key and date, so words about one measurement never excuse the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from warpshelf.contract.digest import SLOWER_FILE
from warpshelf.core import shapes
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records.schema import DATE

Reasons = Mapping[tuple[str, str], str]  # by the key and the date of a record

SHAPE = [{"record": str, "date": DATE, "because": str}]
MEND = "write `record`, `date` and `because` of each, or let `shelf history ID --because` do it"


def place(project: Project, snippet: str) -> Path:
    """Where the reasons of a snippet stand."""
    return project.snippets / snippet / SLOWER_FILE


def load(project: Project, snippet: str) -> Reasons:
    """The reasons of a snippet; none where there is no file.

    Raises:
        ShelfError: the file is no list of them.
    """
    path = place(project, snippet)
    if not path.is_file():
        return {}
    import yaml  # takes a while, and hardly any snippet has such a file

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(project, path, None, f"cannot be read: {error}") from None
    try:
        rows = yaml.load(text, yaml.BaseLoader)  # dates stay text
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise _refused(project, path, mark and mark.line + 1, "is not YAML") from None
    if wrong := shapes.problem(rows or [], SHAPE, "slower"):
        raise _refused(project, path, None, wrong)
    return {(row["record"], row["date"]): row["because"] for row in rows or []}


def add(project: Project, snippet: str, key: str, date: str, because: str) -> Path:
    """Write down why the record of `key` and `date` is slower; the file's path.

    Raises:
        ShelfError: the file that is there is no list of reasons.
    """
    import yaml

    reasons = {**load(project, snippet), (key, date): because}
    rows = [
        {"record": record, "date": made, "because": words}
        for (record, made), words in sorted(reasons.items())
    ]
    path = place(project, snippet)
    write_atomically(path, yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=88))
    return path


def _refused(project: Project, path: Path, line: int | None, what: str) -> ShelfError:
    return ShelfError(Finding(project.relative(path), line, what, MEND))
