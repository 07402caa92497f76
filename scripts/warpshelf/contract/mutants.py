"""Mutants of a snippet, each of which some case must reject, and the folder of a new snippet.

`tests/snippets/mutants/<id>.yml` is a list of them; each row of CASES names in `kills` those that
it rejects, with the views that are drawn from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from warpshelf.contract.digest import CASES_FILE
from warpshelf.contract.snippet import ID, Snippet, is_reserved
from warpshelf.core.files import shape_problem, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project

FEWEST = 4  # mutants of a kernel
SHAPE = [{"name": str, "find": str, "replace": str, "count?": int, "file?": str}]
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Mutant:
    """One change: all `count` places where `find` stands in a file of the snippet's folder."""

    name: str
    find: str
    replace: str
    file: str
    count: int = 1
    line: int | None = None  # of the list

    def mutate_text(self, text: str) -> str:
        """The changed text."""
        return text.replace(self.find, self.replace)


def mutants_path(project: Project, name: str) -> Path:
    """Where the mutants of the snippet `name` are listed."""
    return project.root / "tests" / "snippets" / "mutants" / f"{name}.yml"


def load_mutants(snippet: Snippet) -> tuple[list[Mutant], list[Finding]]:
    """The mutants of a snippet, and what is wrong with their list. Without a list, neither."""
    path = mutants_path(snippet.project, snippet.id)
    where = snippet.project.relative_path(path)
    try:
        text = path.read_bytes().decode("utf-8")
        rows = yaml.load(text, Loader) or []
        node = yaml.compose(text, Loader)
    except FileNotFoundError:
        return [], []
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = f"is not YAML: {getattr(error, 'problem', None) or error}"
        return [], [Finding(where, mark.line + 1 if mark else None, what, "fix the YAML")]
    if wrong := shape_problem(rows, SHAPE, "the list"):
        mend = "write name, find and replace; count and file where needed"
        return [], [Finding(where, None, wrong, mend)]
    lines = [item.start_mark.line + 1 for item in node.value] if node is not None else []
    made = [
        Mutant(**{"file": snippet.path.name, **row, "line": line})
        for row, line in zip(rows, lines, strict=True)
    ]
    seen: set[str] = set()
    findings = []
    for one in made:
        problems = [("is listed twice", "rename one of them")] if one.name in seen else []
        seen.add(one.name)
        for what, mend in (*problems, *_mutant_problems(snippet, one)):
            findings.append(Finding(where, one.line, f"mutant {one.name!r} {what}", mend))
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
    where = snippet.project.relative_path(mutants_path(snippet.project, snippet.id))
    cases = snippet.project.relative_path(snippet.cases_path)
    if len(made) < FEWEST:
        what = f"holds {len(made)} mutants" if made else "is missing"
        mend = f"list at least {FEWEST} changed copies that some case rejects"
        return [Finding(where, None, what, mend)]
    names = {mutant.name for mutant in made}
    for given in _kills_values(snippet.cases.tree):
        for name, line in _string_lines(given).items():
            if name not in names:
                what = f"kills names {name!r}, which is not a mutant"
                findings.append(Finding(cases, line, what, f"name one of {where}"))
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
            what = f"mutant {mutant.name!r} is in the kills of no case in {CASES_FILE}"
            findings.append(Finding(where, mutant.line, what, "add it to the kills of a case"))
    return findings


# A new snippet's folder: a small one of its kind that runs and passes, to be made another.

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
    """Write `snippets/<name>/` and its mutants; embed it on the topic's page where one is given."""
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
    for template in KINDS[kind]:
        kept = files("warpshelf.contract") / "templates" / kind / f"{template}.txt"
        text = kept.read_text(encoding="utf-8").replace("@id@", name)
        written.append(folder / template.replace("snippet.", f"{name}."))
        if template == "mutants.yml":
            written[-1] = mutants_path(project, name)
        write_atomically(written[-1], text.replace("@source@", source))
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
