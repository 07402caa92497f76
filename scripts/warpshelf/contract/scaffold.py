"""A new snippet's folder: a small one of its kind that runs and passes, to be made another."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from warpshelf.contract import mutants
from warpshelf.contract.snippet import ID, is_reserved
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project

KINDS = {  # the templates of each, below templates/<kind>/
    "triton": ("snippet.py", "cases.py", "mutants.yml"),
    "cuda": ("snippet.py", "snippet.cu", "cases.py", "mutants.yml"),
    "program": ("snippet.py", "cases.py"),
    "model": ("snippet.py", "cases.py"),
}
PLACEHOLDER = "reading-id"
READING = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def create_snippet(
    project: Project, name: str, kind: str, source: str = PLACEHOLDER, topic: str | None = None
) -> list[Path]:
    """Write `snippets/<name>/` and its mutants; embed it on the topic's page where one is given.

    Raises:
        ShelfError: the name is no id, is reserved or is taken, the kind is unknown, the source is
            no id of a reading, or the topic has no page.
    """
    folder = project.snippets / name
    where = project.relative_path(folder)
    if not ID.fullmatch(name):
        mend = "use small letters, digits and underscores, a letter first"
        raise ShelfError(Finding(where, None, f"{name!r} is no snippet id", mend))
    if is_reserved(name):
        what = f"{name!r} has another meaning here"
        raise ShelfError(Finding(where, None, what, "choose another id"))
    if kind not in KINDS:
        what = f"there is no kind {kind!r} of snippet"
        raise ShelfError(Finding(where, None, what, f"say --kind {' or '.join(KINDS)}"))
    if folder.exists() or folder.with_suffix(".py").exists():
        raise ShelfError(Finding(where, None, "is there already", "choose another id"))
    page = project.docs / f"{topic}.md" if topic else None
    if not READING.fullmatch(source):
        mend = "name one as in online-softmax"
        raise ShelfError(Finding(where, None, f"{source!r} is no id of a reading", mend))
    own = page is None or page.resolve().is_relative_to(project.docs.resolve())
    if page is not None and not (own and page.is_file()):
        mend = "name a topic such as kernels/softmax"
        raise ShelfError(Finding(project.relative_path(page), None, "is no page", mend))
    written = []
    for template in KINDS[kind]:
        kept = files("warpshelf.contract") / "templates" / kind / f"{template}.txt"
        text = kept.read_text(encoding="utf-8").replace("@id@", name)
        path = _target_path(project, name, template)
        write_atomically(path, text.replace("@source@", source))
        written.append(path)
    if page is not None:
        before = page.read_text(encoding="utf-8").rstrip("\n")
        title = name.replace("_", " ").capitalize()
        write_atomically(page, f'{before}\n\n## {title}\n\n--8<-- "{name}/whole.md"\n')
        written.append(page)
    return written


def _target_path(project: Project, name: str, template: str) -> Path:
    if template == "mutants.yml":
        return mutants.mutants_path(project, name)
    return project.snippets / name / template.replace("snippet.", f"{name}.")


def next_steps(name: str, source: str = PLACEHOLDER, topic: str | None = None) -> str:
    """What the author does next, a line each."""
    steps = [
        f"python snippets/{name}/{name}.py   runs it: it scales, averages or counts; make it yours",
        f"shelf run {name}   verifies it here and writes its record",
        f"shelf check --mutants {name}   says which case rejects which mutant of a kernel",
    ]
    if source == PLACEHOLDER:
        steps.append(f"name the reading that it comes from in place of `{source}` in its docstring")
    if topic is None:
        steps.append(f'embed it on a page: --8<-- "{name}/whole.md"')
    steps.append("shelf check   says what a pull request still lacks; commit the folder whole")
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
