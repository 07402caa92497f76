"""A snippet as its source declares it: its parts, its needs, and what its modules get wrong."""

from __future__ import annotations

import ast
import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from warpshelf.contract import architectures, digest, syntax
from warpshelf.contract.syntax import ParsedModule
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

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
ID = re.compile(r"[a-z][a-z0-9_]*")
# A snippet's fragments have a folder of its name, and copied out it shadows a module of its name.
RESERVED = {
    "cuda", "home", "numpy", "readings", "reference", "results", "snippets", "torch", "triton"
}  # fmt: skip
SECONDS = 120.0  # time limit of a whole snippet on a machine, unless NEEDS says otherwise
# What is wrong with a file of a snippet: the file's name, the line, what, and the mend.
Problem = tuple[str, int | None, str, str]


@dataclass(frozen=True)
class Snippet:
    """One snippet folder; with `findings`, what its source gets wrong, it is never run."""

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
    def has_cuda(self) -> bool:
        """Whether it launches CUDA C++: of its own file, or of one of its modules."""
        return any(self.folder.glob("*.cu"))

    @property
    def modules(self) -> list[Path]:
        """Further files of code beside it, which it imports or compiles: `tiles.py`, `wmma.cu`."""
        known = {self.path, self.cases_path, self.cuda_path, self.folder / digest.FORM_FILE}
        found = (path for path in self.folder.iterdir() if path.suffix in (".py", ".cu", ".cuh"))
        return sorted(set(found) - known)

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


def is_reserved(name: str) -> bool:
    """Whether `name` would shadow a module or the site's own fragments, or is Python's word."""
    return name in RESERVED or name in sys.stdlib_module_names or keyword.iskeyword(name)


def read_snippet(project: Project, folder: Path) -> Snippet:
    """Read the snippet in `folder` without running it."""
    bare = Snippet(project, folder.name, folder)
    found, problems = _read_modules(bare)
    if found:
        problems = list(_source_problems(found)) + problems
    where = project.relative_path(folder)
    findings = tuple(
        Finding(f"{where}/{file}", line, what, mend) for file, line, what, mend in problems
    )
    return replace(found or bare, findings=findings)


def _read_modules(bare: Snippet) -> tuple[Snippet | None, list[Problem]]:
    """The snippet with all that its modules say, if they can be read, and what is malformed."""
    name, file = bare.id, bare.path.name
    if not ID.fullmatch(name):
        mend = "name the folder with small letters, digits and underscores, a letter first"
        return None, [(file, None, f"{name!r} is not a snippet id", mend)]
    if is_reserved(name):
        return None, [(file, None, f"{name!r} is a reserved name", "choose another id")]
    mends = {
        bare.path: f"name the snippet's module {file}",
        bare.cases_path: "put what verifies the snippet there; `shelf new` writes one",
    }
    modules: list[ParsedModule] = []
    problems: list[Problem] = []
    for path, mend in mends.items():
        try:
            modules.append(syntax.parse_python(path))
        except syntax.UNREADABLE as error:
            problems.append((path.name, *_unreadable_problem(error, mend)))
    if problems:
        return None, problems
    parsed, cases = modules
    kind = "kernel"
    if not KERNEL_NAMES & cases.names.keys():
        kind = "model" if _uses_stdlib_only(bare) else "program"
    title, sections = split_docstring(ast.get_docstring(parsed.tree) or "")
    needs, problems = _read_needs(cases)
    if kind == "kernel" and (least := architectures.language_minimum(bare.project.root, parsed)):
        needs[architectures.LANGUAGE] = least
    triton = any(name.split(".")[0] == "triton" for name in parsed.imports)
    if kind == "kernel" and not triton:  # its kernels may be in modules alone
        triton = any(b"\nimport triton" in path.read_bytes() for path in bare.modules)
    found = replace(
        bare, kind=kind, title=title, sections=sections, needs=needs, uses_triton=triton,
        parsed=parsed, cases=cases,
    )  # fmt: skip
    return found, problems


def _unreadable_problem(error: Exception, missing: str) -> tuple[int | None, str, str]:
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return None, "is missing", missing
    if isinstance(error, OSError):
        return None, f"cannot be read ({error.strerror})", "make it a readable file"
    if isinstance(error, UnicodeDecodeError):
        return None, f"is not UTF-8 at byte {error.start}", "save the file as UTF-8"
    if isinstance(error, MemoryError | RecursionError):
        return None, "is not valid Python: it nests too deep", "split it up"
    what = f"is not valid Python: {getattr(error, 'msg', error)}"
    return getattr(error, "lineno", None), what, "fix the syntax"


def _uses_stdlib_only(one: Snippet) -> bool:
    """Whether it imports Python's own library alone, itself and through others of snippets/."""
    return all(
        module is not None
        and syntax.standard_library_only(n for n in module.imports if n.split(".")[0] != "snippets")
        for module in syntax.walk_imports(one.project.root, one.path)
    )


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A snippet's docstring as its first sentence and its sections, which start at column 0 with
    their names and go on in lines that are indented."""
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


def _read_needs(cases: ParsedModule) -> tuple[dict[str, Any], list[Problem]]:
    line = cases.names.get("NEEDS")
    if line is None:
        return {}, []
    try:
        needs = ast.literal_eval(cases.find_value("NEEDS") or "")
    except (SyntaxError, ValueError, TypeError):
        needs = None
    if not isinstance(needs, dict):
        mend = "write its keys and values out"
        return {}, [(CASES_FILE, line, "NEEDS is not a literal dict", mend)]
    problems = [(CASES_FILE, line, *wrong) for wrong in architectures.needs_problems(needs)]
    return needs if not problems else {}, list(problems)


def _source_problems(one: Snippet) -> Iterator[Problem]:
    """What the modules lack, what belongs elsewhere, and what is too wide to show."""
    parsed, cases, file = one.parsed, one.cases, one.path.name
    assert parsed and cases
    if not one.title:
        yield file, 1, "has no docstring", "open with the idea in one sentence"
    elif not one.title.endswith("."):
        mend = "end it with a full stop and leave a blank line after it"
        yield file, 1, "the docstring's first line is not one sentence", mend
    wanted = ["Error", "Raises", "Source"]
    if one.kind == "kernel":
        wanted[:0] = ["Shapes"] if {"Bytes", "FLOPs"} & one.sections.keys() else ["Shapes", "Bytes"]
    for name in wanted if one.title else ():
        if name not in one.sections:
            yield file, 1, f"the docstring has no {name} section", f"add a line `{name:<7} …`"
    yield from _demo_problems(parsed, one.kind == "model")
    for name in PROOF:
        if name in parsed.names:
            mend = "move it there: a reader copies this file"
            yield file, parsed.names[name], f"{name} belongs in {CASES_FILE}", mend
    yield from _import_problems(parsed)
    for name, mend in NEEDED[one.kind].items():
        if name not in cases.names:
            yield CASES_FILE, None, f"{name} is missing", mend
    for name in FUNCTIONS:
        if name in cases.names and name not in cases.functions:
            line = cases.names[name]
            yield CASES_FILE, line, f"{name} is not a function", f"define it with `def {name}`"
    if "GOALS" in cases.names and "predictions" not in cases.names:
        mend = "add `def predictions():`, or remove GOALS"
        yield CASES_FILE, cases.names["GOALS"], "GOALS has no predictions to judge", mend
    if "demo" in cases.names:
        yield CASES_FILE, cases.names["demo"], f"demo belongs in {file}", "move it there"
    yield from _import_problems(cases)
    for path in filter(None, (one.path, one.cuda_path, one.cases_path)):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        for number, row in enumerate(text.splitlines(), 1):
            if len(row) > COLUMNS:
                mend = f"keep it to {COLUMNS}"
                yield path.name, number, f"is {len(row)} columns wide", mend


def _demo_problems(parsed: ParsedModule, is_model: bool) -> Iterator[Problem]:
    file, line = parsed.path.name, parsed.names.get("demo")
    written = "demo()" if is_model else "demo(device)"
    if line is None:
        mend = f"add `def {written}:` which prints what a reader should see"
        yield file, None, "demo is missing", mend
        return
    if "demo" not in parsed.functions:
        yield file, line, "demo is not a function", "define it with `def demo`"
    elif not parsed.accepts_count("demo", 0 if is_model else 1):
        taken = "no argument" if is_model else "one argument, the device"
        yield file, line, f"demo does not take {taken}", f"write `def {written}:`"
    tests = (ast.unparse(node.test) for node in parsed.tree.body if isinstance(node, ast.If))
    if not any("__main__" in test for test in tests):
        mend = 'end with `if __name__ == "__main__":` and a call of demo'
        yield file, None, "does nothing when run", mend


def _import_problems(parsed: ParsedModule) -> Iterator[Problem]:
    file = parsed.path.name
    for module, line in parsed.imports.items():
        if module.split(".")[0] == "warpshelf":
            mend = "keep the snippet a plain module that a reader can copy out"
            yield file, line, "imports the tooling", mend
        if module == "cuda":
            yield file, line, "imports the top-level `cuda`", "write `from snippets import cuda`"
    if touched := parsed.changes_path:
        mend = "import from `snippets`, which the install puts there"
        yield file, touched, "changes sys.path", mend
