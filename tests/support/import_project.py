"""A project with two snippets that nothing runs, and bundles to import into it."""

from __future__ import annotations

import json
from pathlib import Path

import made_up_records
import pytest

from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import bundle, store
from warpshelf.records.bundle import ImportTerms

IDS = ("softmax", "stream")


class Checkout:
    """A project with two snippets, and bundles to import into it."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root / "checkout")
        self.bundle = root / "bundle.json"
        self.snippets = []
        for name in IDS:
            folder = self.project.snippets / name
            folder.mkdir(parents=True)
            (folder / f"{name}.py").write_text(f'"""{name}."""\n')
            self.snippets.append(Snippet(self.project, name, folder))

    def make_record(self, name: str = "softmax", **more: object) -> dict:
        digest = {snippet.id: snippet.digest for snippet in self.snippets}[name]
        made = made_up_records.make_record(
            facts=made_up_records.make_facts(), snippet=name, digest=digest
        )
        return made_up_records.make_honest(made) | more

    def make_cpu_record(self, name: str = "softmax") -> dict:
        digest = {snippet.id: snippet.digest for snippet in self.snippets}[name]
        made = made_up_records.make_record(
            0, facts=made_up_records.make_facts(), snippet=name, digest=digest
        )
        return made_up_records.make_honest(made)

    def add_cpu_records(self) -> Checkout:
        """With the records of the CPU in place, which every other is checked against."""
        for snippet in self.snippets:
            store.save_record(snippet, self.make_cpu_record(snippet.id))
        return self

    def import_bundle(self, content: object, **terms: object) -> tuple[list[str], list[str]]:
        """Import a bundle of this text, these bytes or these records."""
        if isinstance(content, list):
            content = json.dumps({"schema": 1, "records": content})
        data = content.encode() if isinstance(content, str) else content
        assert isinstance(data, bytes)
        self.bundle.write_bytes(data)
        taken = bundle.import_bundle(self.project, self.snippets, self.bundle, ImportTerms(**terms))
        return [self.project.relative_path(path) for path in taken.written], taken.left

    def assert_refused(self, content: object, says: str = "", **terms: object) -> list[str]:
        """See that a bundle is refused and that nothing is written; the lines that say why."""
        before = self.read_files()
        with pytest.raises(ShelfError, match=says or None) as refused:
            self.import_bundle(content, **terms)
        assert self.read_files() == before
        return one_line_each(refused.value)

    def read_files(self) -> dict[str, bytes]:
        """Every file but the bundle."""
        root = self.project.root.parent
        found = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if name != "bundle.json"}


def one_line_each(error: ShelfError) -> list[str]:
    lines = [str(finding) for finding in error.findings]
    assert lines
    assert str(error).splitlines() == lines
    for line in lines:
        assert line.isprintable()
        assert len(line) < 2100
    return lines
