"""Mutants of a snippet, each of which some case must reject, and the folder of a new snippet.

The files of `tests/snippets/mutants` have a list of them for each snippet, under its id: a file for
each family of kernels. Each row of CASES names in `kills` those that it rejects, with the views
that are drawn from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from warpshelf.contract.digest import CASES_FILE
from warpshelf.contract.snippet import ID, Snippet, is_reserved
from warpshelf.core.files import shape_problem, split_mapping, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project

FOLDER = "tests/snippets/mutants"
FEWEST = 4  # mutants of a kernel
SOURCES = (".py", ".cu", ".cuh")
SHAPE = [{"name": str, "find": str, "replace": str, "count?": int, "file?": str}]
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Mutant:
    """One change: all `count` places where `find` stands in a file of the snippet's folder.

    Without a name that file is `<id>.py`, or else the first that has it.
    """

    name: str
    find: str
    replace: str
    file: str
    count: int = 1
    listed: str = ""  # the file that lists it
    line: int | None = None  # of that file

    def make_finding(self, what: str, mend: str) -> Finding:
        """The finding that something is wrong with it."""
        return Finding(self.listed, self.line, f"mutant {self.name!r} {what}", mend)

    def mutate_text(self, text: str) -> str:
        """The changed text."""
        return text.replace(self.find, self.replace)


def _read_lists(project: Project) -> Iterator[tuple[str, str, int, bytes]]:
    """Each list: its file, its snippet, the line of its key and its text, as split_mapping has it.

    A snippet of no name stands for text above the first key.
    """
    for path in sorted((project.root / FOLDER).glob("*.yml")):
        where = project.relative_path(path)
        for name, line, text in split_mapping(path.read_bytes()):
            yield where, name, line, text


def check_lists(project: Project, ids: Container[str]) -> Iterator[Finding]:
    """What is wrong with the keys of the lists, where these are the ids of snippets."""
    first: dict[str, str] = {}
    for where, name, line, _ in _read_lists(project):
        here = f"{where}:{line}"
        if not name:
            yield Finding(where, line, "does not start with a key", "write the id of a snippet")
        elif name not in ids:
            yield Finding(where, line, f"{name!r} is not a snippet", "fix the id, or drop its list")
        elif first.setdefault(name, here) != here:
            what = f"lists mutants of {name} again (first in {first[name]})"
            yield Finding(where, line, what, "keep one list")


def load_mutants(snippet: Snippet) -> tuple[list[Mutant], list[Finding]]:
    """The mutants of a snippet, and what is wrong with their list. Without a list, neither."""
    lists = (found for found in _read_lists(snippet.project) if found[1] == snippet.id)
    where, _, start, data = next(lists, ("", "", 0, b""))
    try:
        text = data.decode("utf-8")
        rows = yaml.load(text, Loader) or []
        node = yaml.compose(text, Loader)
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = f"is not YAML: {getattr(error, 'problem', None) or error}"
        return [], [Finding(where, mark.line + 1 if mark else start, what, "fix the YAML")]
    if wrong := shape_problem(rows, SHAPE, snippet.id):
        mend = "write name, find and replace; count and file where needed"
        return [], [Finding(where, start, wrong, mend)]
    lines = [item.start_mark.line + 1 for item in node.value] if node is not None else []
    texts = {
        path.name: path.read_text(encoding="utf-8-sig", errors="replace")
        for path in (snippet.path, *sorted(snippet.folder.iterdir()))
        if path.suffix in SOURCES
    }

    def first_with(text: str) -> str:
        return next((name for name, whole in texts.items() if text in whole), snippet.path.name)

    made = [
        Mutant(**{"file": first_with(row["find"]), **row, "listed": where, "line": line})
        for row, line in zip(rows, lines, strict=True)
    ]
    seen: set[str] = set()
    findings = []
    for one in made:
        problems = [("is listed twice", "rename one of them")] if one.name in seen else []
        seen.add(one.name)
        problems += _mutant_problems(snippet, one)
        findings += [one.make_finding(*problem) for problem in problems]
    return made, findings


def _mutant_problems(snippet: Snippet, one: Mutant) -> Iterator[tuple[str, str]]:
    """Why it does not change the snippet: (what, mend)."""
    path = snippet.folder / one.file
    if Path(one.file).name != one.file or not path.is_file():
        mend = "name a file of the snippet's folder"
        yield f"changes {one.file}, which is not in {snippet.id}/", mend
        return
    found = path.read_text(encoding="utf-8-sig", errors="replace").count(one.find)
    if not one.find or found != one.count:
        what = f"looks for {one.find!r:.60}, which {one.file} has {found} times"
        mend = f"copy the text from the file, or write count: {found}"
        yield f"{what}, not {one.count}", mend
    elif one.find == one.replace:
        yield "changes nothing", "write another replacement"


def _string_lines(node: ast.AST) -> dict[str, int]:
    """Every text that stands below a node of a source, and the line of the first of each."""
    found: dict[str, int] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            found.setdefault(inner.value, inner.lineno)
    return found


def _kills_values(tree: ast.AST) -> list[ast.expr]:
    """What `kills` is given below a node, as a key of a dict or as a keyword."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found += [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "kills"]
        elif isinstance(node, ast.keyword) and node.arg == "kills":
            found.append(node.value)
    return found


def check_mutants(snippet: Snippet) -> list[Finding]:
    """What is wrong with the mutants of a kernel, as far as the sources tell without running."""
    if snippet.kind != "kernel" or snippet.findings or snippet.cases is None:
        return []
    made, findings = load_mutants(snippet)
    if findings:
        return findings
    cases = snippet.project.relative_path(snippet.cases_path)
    if len(made) < FEWEST:
        what = f"has {len(made) or 'no'} mutants of {snippet.id}"
        mend = f"list at least {FEWEST} changed copies that some case rejects"
        where, line = (made[0].listed, made[0].line) if made else (FOLDER, None)
        return [Finding(where, line, what, mend)]
    names = {mutant.name for mutant in made}
    for given in _kills_values(snippet.cases.tree):
        for name, line in _string_lines(given).items():
            if name not in names:
                what = f"kills names {name!r}, which is not a mutant"
                findings.append(Finding(cases, line, what, f"name one of {made[0].listed}"))
    rows = snippet.cases.find_value("CASES")
    for row in rows.elts if isinstance(rows, ast.Tuple | ast.List) else ():
        # A function that makes rows may take the names in whatever way it likes.
        called = isinstance(row, ast.Call) and _string_lines(row).keys() & names
        if isinstance(row, ast.Dict | ast.Call) and not called and not _kills_values(row):
            mend = "list a mutant that it rejects in kills, or drop the case"
            findings.append(Finding(cases, row.lineno, "the case kills no mutant", mend))
    said = _string_lines(snippet.cases.tree)
    for mutant in made:
        if mutant.name not in said:
            what = f"is in the kills of no case in {CASES_FILE}"
            findings.append(mutant.make_finding(what, "add it to the kills of a case"))
    return findings


# A new snippet's folder: a small one of its kind that runs and passes, to be made another.

KINDS = ("triton", "cuda", "program", "model")  # their files stand in templates/<kind>.txt
PLACEHOLDER = "reading-id"
READING = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def create_snippet(
    project: Project, name: str, kind: str, source: str = PLACEHOLDER, topic: str | None = None
) -> list[Path]:
    """Write `snippets/<name>/` and its mutants; embed it on the topic's page where one is given.

    The mutants go to the end of the file of the topic's name, where there is one, else of the id's.
    """
    folder = project.snippets / name
    page = project.docs / f"{topic}.md" if topic else None
    own = page and page.is_file() and page.resolve().is_relative_to(project.docs.resolve())
    taken = folder.exists() or folder.with_suffix(".py").exists()
    letters = "use small letters, digits and underscores, a letter first"
    for wrong, path, what, mend in (
        (not ID.fullmatch(name), folder, f"{name!r} is not a snippet id", letters),
        (is_reserved(name), folder, f"{name!r} is a reserved name", "choose another id"),
        (kind not in KINDS, folder, f"no kind of snippet is called {kind!r}",
         f"use --kind {' or '.join(KINDS)}"),
        (taken, folder, "already exists", "choose another id"),
        (not READING.fullmatch(source), folder, f"{source!r} is not the id of a reading",
         "give one such as online-softmax"),
        (page and not own, page or folder, "is not a page", "name a topic such as kernels/softmax"),
    ):  # fmt: skip
        if wrong:
            raise ShelfError(Finding(project.relative_path(path), None, what, mend))
    written = []
    kept = (files("warpshelf.contract") / "templates" / f"{kind}.txt").read_text(encoding="utf-8")
    filled = kept.replace("@id@", name).replace("@source@", source)
    _, *parts = re.split(r"^==== (\S+)\n", filled, flags=re.MULTILINE)
    for template, text in zip(parts[::2], parts[1::2], strict=True):
        path = folder / template.replace("snippet.", f"{name}.")
        if template == "mutants.yml":
            families = (project.root / FOLDER / f"{part}.yml" for part in (topic or "").split("/"))
            path = next(filter(Path.is_file, families), project.root / FOLDER / f"{name}.yml")
            if path.is_file():
                text = f"{path.read_text(encoding='utf-8').rstrip()}\n\n{text}"
        write_atomically(path, text)
        written.append(path)
    if page is not None:
        before = page.read_text(encoding="utf-8").rstrip("\n")
        title = name.replace("_", " ").capitalize()
        write_atomically(page, f'{before}\n\n## {title}\n\n--8<-- "{name}/whole.md"\n')
        written.append(page)
    return written


def next_steps(name: str, source: str = PLACEHOLDER, topic: str | None = None) -> str:
    """What the author does next, a line each."""
    steps = [
        f"python snippets/{name}/{name}.py   runs it; now write your own idea",
        f"shelf run {name}   verifies it here and writes its record",
        f"shelf check --mutants {name}   shows which case rejects which mutant of a kernel",
    ]
    if source == PLACEHOLDER:
        steps.append(f"replace `{source}` in its docstring by the id of the reading it comes from")
    if topic is None:
        steps.append(f'embed it on a page: --8<-- "{name}/whole.md"')
    steps.append("shelf check   lists what a pull request still lacks; commit the whole folder")
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
