"""What `shelf rivals` does: the public kernels of a snippet's rivals.yml are compiled, and kept."""

from __future__ import annotations

from pathlib import Path

from warpshelf.bench import rivals as building
from warpshelf.bench.rivals import Source
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import rivalry
from warpshelf.readings import rivals


def compile_all(snippet: Snippet, checkouts: Path) -> None:
    """Compile every kernel of the snippet's rivals.yml, and keep the figures.

    Raises:
        ShelfError: an entry is wrong, a commit is not there, or a kernel is not compiled. What was
            kept stays as it was.
    """
    shown = snippet.project.relative(snippet.folder)
    where = f"{shown}/{rivals.FILE}"
    known, findings = rivals.load(snippet.folder, shown)
    if not known and not findings:
        what, mend = "is not there", "write down which kernels of others do the same job"
        raise ShelfError(Finding(where, None, what, mend))
    answers = {}
    for one in known:
        print(f"compiling {one.kernel} of {one.repository}", flush=True)
        try:
            source = Source(one.repository, one.commit, one.file)
            answers[one.digest] = building.compiled(source, one.build(), checkouts)
        except ValueError as error:
            mend = "mend the entry, or fetch that commit"
            findings.append(Finding(where, one.line, f"{one.kernel}: {error}", mend))
    if findings:
        raise ShelfError(findings)
    changed = rivalry.write(snippet.folder, answers)
    print(f"{'wrote' if changed else 'nothing changed in'} {shown}/{rivalry.FILE}")
