"""What `shelf rivals` does: the public kernels of a snippet's rivals.yml are compiled, and kept."""

from __future__ import annotations

from pathlib import Path

from warpshelf.bench import rivals as building
from warpshelf.bench.rivals import Source
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import rivalry
from warpshelf.look.rivalry import Answer
from warpshelf.readings import rivals
from warpshelf.readings.rivals import Rival


def compile_all(snippet: Snippet, checkouts: Path | None) -> None:
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
        print(f"compiling {one.kernel} of {one.repository or one.package}", flush=True)
        try:
            answers[one.digest] = _compiled(one, snippet.folder, checkouts)
        except ValueError as error:
            mend = "mend the entry, or fetch that commit"
            mend = f"mend {one.file}, or pip install {one.package}" if one.package else mend
            findings.append(Finding(where, one.line, f"{one.kernel}: {error}", mend))
    if findings:
        raise ShelfError(findings)
    changed = rivalry.write(snippet.folder, answers)
    print(f"{'wrote' if changed else 'nothing changed in'} {shown}/{rivalry.FILE}")


def _compiled(one: Rival, folder: Path, checkouts: Path | None) -> Answer:
    if one.package:
        return building.compiled_here(folder, one.build())
    if checkouts is None:
        raise ValueError("there is no folder of clones; name one with --checkouts")
    return building.compiled(Source(one.repository, one.commit, one.file), one.build(), checkouts)
