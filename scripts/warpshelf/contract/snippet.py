"""A snippet as its source declares it: its parts, its needs, and what its modules get wrong."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from warpshelf.contract import architectures, digest, syntax
from warpshelf.contract.architectures import need_problems
from warpshelf.contract.syntax import ParsedModule
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

# What the contract asks of a snippet's two modules, read from their source without running them.
#
# Enters: a snippet as it was read, and the syntax trees of its modules. Leaves: a row for each
# thing that is missing, misplaced or too wide to be shown.

COLUMNS = 88  # of a line that a page shows
SECTIONS = ("Shapes", "Bytes", "FLOPs", "Error", "Raises", "Source")
CASES_FILE = digest.CASES_FILE

# What cases.py must define, by kind, with the mend where it does not.
NEEDED = {
    "kernel": {
        "CASES": "add a tuple of dicts: the small adversarial cases",
        "TIMED": "add a tuple of dicts: the sizes to time on a GPU",
        "inputs": "add `def inputs(case, device, generator):` which returns a tuple of tensors",
        "reference": "add `def reference(*inputs):` which returns the truth in float64",
        "VARIANTS": 'add `VARIANTS = {"name": function}`: our kernels',
        "PEERS": 'add `PEERS = {"torch": function}`: what a user would pick instead',
    },
    "program": {
        "facts": "add `def facts():` which returns rows with a value and the value expected",
    },
}
NEEDED["model"] = NEEDED["program"]
KERNEL_NAMES = {"VARIANTS", "CASES", "TIMED", "COUNTED", "PEERS"}
FUNCTIONS = ("inputs", "reference", "cost", "facts", "predictions")
# Every name by which cases.py speaks to the tooling: none of them stands in the snippet itself.
PROOF = (
    *NEEDED["kernel"], "COUNTED", "cost", "facts", "predictions", "GOALS", "TOLERANCE", "LIMITS",
    "SPACE", "NEEDS",
)  # fmt: skip


class FileFinding(NamedTuple):
    """A finding before it has its path: the file's name, the line, what is wrong, the mend."""

    file: str
    line: int | None
    what: str
    mend: str


class SnippetSource(Protocol):
    """As much of a snippet as is looked at here."""

    @property
    def kind(self) -> str:
        """A "kernel", a "program" or a "model"."""

    @property
    def title(self) -> str:
        """The first sentence of its docstring."""

    @property
    def sections(self) -> Mapping[str, str]:
        """The sections of its docstring."""

    @property
    def path(self) -> Path:
        """Its module."""

    @property
    def cases_path(self) -> Path:
        """The module of its proof obligations."""

    @property
    def cuda_path(self) -> Path | None:
        """Its CUDA C++ file, if there is one."""


def module_problems(snippet: SnippetSource, parsed: ParsedModule) -> Iterator[FileFinding]:
    """What `<id>.py` lacks, or says that belongs elsewhere."""
    file = parsed.path.name
    if not snippet.title:
        yield FileFinding(file, 1, "has no docstring", "open with the idea in one sentence")
    elif not snippet.title.endswith("."):
        mend = "end it with a full stop and leave a blank line after it"
        yield FileFinding(file, 1, "the docstring's first line is not one sentence", mend)
    wanted = ["Error", "Raises", "Source"]
    if snippet.kind == "kernel":
        wanted.insert(0, "Shapes")
        if not {"Bytes", "FLOPs"} & snippet.sections.keys():
            wanted.insert(1, "Bytes")
    for name in wanted:
        if name not in snippet.sections and snippet.title:
            what = f"the docstring has no {name} section"
            yield FileFinding(file, 1, what, f"add a line `{name:<7} …`")
    yield from _demo_problems(snippet, parsed)
    for name in PROOF:
        if name in parsed.names:
            what = f"{name} belongs in {CASES_FILE}"
            yield FileFinding(
                file, parsed.names[name], what, "move it there: a reader copies this file"
            )
    yield from _import_problems(parsed)


def _demo_problems(snippet: SnippetSource, parsed: ParsedModule) -> Iterator[FileFinding]:
    file = parsed.path.name
    written = "demo()" if snippet.kind == "model" else "demo(device)"
    line = parsed.names.get("demo")
    if line is None:
        mend = f"add `def {written}:` which prints what a reader should see"
        yield FileFinding(file, None, "demo is missing", mend)
        return
    if "demo" not in parsed.functions:
        yield FileFinding(file, line, "demo is not a function", "define it by `def demo`")
    elif not parsed.accepts_count("demo", 0 if snippet.kind == "model" else 1):
        taken = "no argument" if snippet.kind == "model" else "one argument, the device"
        yield FileFinding(file, line, f"demo does not take {taken}", f"write `def {written}:`")
    if not parsed.has_main:
        mend = 'end with `if __name__ == "__main__":` and a call of demo'
        yield FileFinding(file, None, "does nothing when run", mend)


def _import_problems(parsed: ParsedModule) -> Iterator[FileFinding]:
    file = parsed.path.name
    for module, line in parsed.imports.items():
        if module.split(".")[0] == "warpshelf":
            mend = "keep the snippet a plain module that a reader can copy out"
            yield FileFinding(file, line, "imports the tooling", mend)
        if module == "cuda":
            yield FileFinding(
                file, line, "imports `cuda` bare", "write `from snippets import cuda`"
            )
    if touched := parsed.changes_path:
        mend = "import from `snippets`, which the install puts there"
        yield FileFinding(file, touched, "touches sys.path", mend)


def cases_problems(snippet: SnippetSource, cases: ParsedModule) -> Iterator[FileFinding]:
    """What `cases.py` lacks."""
    for name, mend in NEEDED[snippet.kind].items():
        if name not in cases.names:
            yield FileFinding(CASES_FILE, None, f"{name} is missing", mend)
    for name in FUNCTIONS:
        if name in cases.names and name not in cases.functions:
            what = f"{name} is not a function"
            yield FileFinding(CASES_FILE, cases.names[name], what, f"define it by `def {name}`")
    if "GOALS" in cases.names and "predictions" not in cases.names:
        mend = "add `def predictions():`, or take GOALS out"
        yield FileFinding(
            CASES_FILE, cases.names["GOALS"], "GOALS has no predictions to judge", mend
        )
    if "demo" in cases.names:
        what = f"demo belongs in {snippet.path.name}"
        yield FileFinding(CASES_FILE, cases.names["demo"], what, "move it there")
    yield from _import_problems(cases)


def width_problems(snippet: SnippetSource) -> Iterator[FileFinding]:
    """Lines too wide to be shown whole."""
    for path in filter(None, (snippet.path, snippet.cuda_path, snippet.cases_path)):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        for number, width in syntax.long_lines(text, COLUMNS):
            yield FileFinding(
                path.name, number, f"is {width} columns wide", f"keep it to {COLUMNS}"
            )


ID = re.compile(r"[a-z][a-z0-9_]*")
# A snippet's fragments have a folder of its name, and copied out it shadows a module of its name.
RESERVED = {
    "cuda",
    "home",
    "numpy",
    "readings",
    "reference",
    "results",
    "snippets",
    "torch",
    "triton",
}
SECONDS = 120.0  # time limit of a whole snippet on a machine, unless NEEDS says otherwise


@dataclass(frozen=True)
class Snippet:
    """One snippet folder.

    `findings` holds what its source gets wrong; a snippet with findings is never run.
    """

    project: Project
    id: str
    folder: Path
    kind: str = "kernel"
    title: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    needs: dict[str, Any] = field(default_factory=dict)
    uses_triton: bool = False
    parsed: ParsedModule | None = None
    cases: ParsedModule | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def path(self) -> Path:
        """The module that is the snippet."""
        return self.folder / f"{self.id}.py"

    @property
    def cases_path(self) -> Path:
        """The module of its proof obligations, beside it."""
        return self.folder / CASES_FILE

    @property
    def cuda_path(self) -> Path | None:
        """The CUDA C++ file beside it, if there is one."""
        path = self.folder / f"{self.id}.cu"
        return path if path.is_file() else None

    @property
    def calls(self) -> str:
        """Calls of its Triton kernels that make a compiler without a GPU compile them.

        They stand in explore.txt beside the snippet; empty where there is none.
        """
        path = self.folder / digest.CALLS_FILE
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @property
    def results(self) -> Path:
        """The folder of its records."""
        return self.folder / "results"

    @property
    def seconds(self) -> float:
        """Time limit on a machine, in seconds."""
        return float(self.needs.get("seconds", SECONDS))

    @property
    def wants_gpu(self) -> bool:
        """Whether a GPU changes what it shows; models and gloo programs are the same anywhere."""
        return self.kind == "kernel" or bool(self.needs.get("gpus"))

    @property
    def readings(self) -> tuple[str, ...]:
        """Ids of the readings that it comes from."""
        words = self.sections.get("Source", "").replace("\n", " ")
        return tuple(word.strip() for word in words.split(",") if word.strip())

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Where each name of the two modules is defined: its file and line."""
        found: dict[str, tuple[str, int]] = {}
        for parsed in filter(None, (self.cases, self.parsed)):
            for name, line in parsed.names.items():
                if parsed is self.cases or name not in PROOF:
                    found[name] = (parsed.path.name, line)
        return found

    @cached_property
    def digest(self) -> str:
        """What a record of the present code carries."""
        return digest.folder_digest(self.project.root, self.folder)

    def cannot_run(self, sm: int | None, gpus: int) -> str | None:
        """Why the whole snippet cannot run on a machine with `gpus` GPUs of SM version `sm`."""
        if gpus == 0:
            if "cpu" in self.needs:
                return str(self.needs["cpu"])
            return "needs a GPU" if self.needs.get("gpus") else None  # sm is of GPUs alone
        for asked in architectures.required_architectures(self.needs):
            if why := asked.refusal_reason(sm):
                return why
        if gpus < self.needs.get("gpus", 0):
            return f"needs {self.needs['gpus']} GPUs; this machine has {gpus}"
        return None


def discover_snippets(project: Project) -> list[Snippet]:
    """Every snippet of the project, by id. Broken ones are among them, with their findings."""
    return [read_snippet(project, folder) for folder in snippet_folders(project)]


def snippet_folders(project: Project) -> list[Path]:
    """The folder of every snippet, by id."""
    every = sorted(project.snippets.iterdir())
    return [path for path in every if path.is_dir() and not path.name.startswith((".", "__"))]


def read_snippet(project: Project, folder: Path) -> Snippet:
    """Read the snippet in `folder` without running it."""
    bare = Snippet(project, folder.name, folder)
    where = project.relative_path(folder)

    def with_findings(*rows: FileFinding) -> Snippet:
        found = (Finding(f"{where}/{row.file}", row.line, row.what, row.mend) for row in rows)
        return replace(bare, findings=tuple(found))

    if not ID.fullmatch(folder.name):
        mend = "name the folder with small letters, digits and underscores, a letter first"
        return with_findings(
            FileFinding(bare.path.name, None, f"{folder.name!r} is no snippet id", mend)
        )
    if is_reserved(folder.name):
        what = f"{folder.name!r} has another meaning here"
        return with_findings(FileFinding(bare.path.name, None, what, "choose another id"))
    modules = []
    for path, mend in (
        (bare.path, f"name the snippet's module {folder.name}.py"),
        (bare.cases_path, "put what verifies the snippet there; `shelf new` shows one"),
    ):
        module = (
            _parse_module(path)
            if path.is_file()
            else FileFinding(path.name, None, "is missing", mend)
        )
        modules.append(module)
    if wrong := [module for module in modules if isinstance(module, FileFinding)]:
        return with_findings(*wrong)
    parsed, cases = (module for module in modules if isinstance(module, ParsedModule))
    if KERNEL_NAMES & cases.names.keys():
        kind = "kernel"
    else:
        kind = "model" if syntax.uses_stdlib_only(project.root, parsed) else "program"
    title, sections = split_docstring(parsed.docstring)
    needs, wrong = _read_needs(cases)
    uses_triton = any(name.split(".")[0] == "triton" for name in parsed.imports)
    if kind == "kernel" and (floor := architectures.language_minimum(project.root, parsed)):
        needs[architectures.LANGUAGE] = floor
    bare = Snippet(
        project, bare.id, folder, kind, title, sections, needs, uses_triton, parsed, cases
    )
    asked = (*module_problems(bare, parsed), *cases_problems(bare, cases))
    return with_findings(*asked, *wrong, *width_problems(bare))


def is_reserved(name: str) -> bool:
    """Whether `name` would shadow a module or the site's own fragments, or is Python's word."""
    return name in RESERVED or name in sys.stdlib_module_names or keyword.iskeyword(name)


def _parse_module(path: Path) -> ParsedModule | FileFinding:
    try:
        return syntax.parse_python(path)
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 at byte {error.start}"
        return FileFinding(path.name, None, what, "save the file as UTF-8")
    except (SyntaxError, ValueError) as error:
        what = f"is not valid Python: {getattr(error, 'msg', error)}"
        return FileFinding(path.name, getattr(error, "lineno", None), what, "mend the syntax")
    except (MemoryError, RecursionError):
        return FileFinding(
            path.name, None, "is not valid Python: it nests too deep", "take it apart"
        )


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a snippet's docstring into its first sentence and its sections.

    A section starts at column 0 with its name; the lines below it that are indented belong to it.
    """
    title, _, rest = text.partition("\n\n")
    sections: dict[str, str] = {}
    current = None
    for line in rest.splitlines():
        name, _, value = line.partition(" ")
        if name in SECTIONS:
            current = name
            sections[current] = value.strip()
        elif current and (line.startswith(" ") or not line):
            sections[current] = f"{sections[current]}\n{line.strip()}".strip("\n")
        elif line:
            current = None
    return " ".join(title.split()), sections


def _read_needs(cases: ParsedModule) -> tuple[dict[str, Any], list[FileFinding]]:
    line = cases.names.get("NEEDS")
    if line is None:
        return {}, []
    try:
        needs = cases.read_literal("NEEDS")
    except (ValueError, TypeError):
        needs = None
    if not isinstance(needs, dict):
        what = "NEEDS is not a literal dict"
        return {}, [FileFinding(CASES_FILE, line, what, "write its keys and values out")]
    rows = [
        FileFinding(CASES_FILE, line, *wrong)
        for key in needs
        for wrong in need_problems(key, needs[key])
    ]
    if "why" in needs and "sm" not in needs:
        rows.append(
            FileFinding(CASES_FILE, line, "NEEDS has 'why' without 'sm'", "say for which SM")
        )
    return (needs if not rows else {}), rows
