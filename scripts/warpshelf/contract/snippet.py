"""A snippet as its source declares it: where its parts are, what it needs and gets wrong."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from warpshelf.contract import architectures, demands, digest, syntax
from warpshelf.contract.demands import CASES_FILE, KERNEL_NAMES, PROOF, SECTIONS, FileFinding
from warpshelf.contract.needs import need_problems
from warpshelf.contract.syntax import ParsedModule
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

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
    asked = (*demands.module_problems(bare, parsed), *demands.cases_problems(bare, cases))
    return with_findings(*asked, *wrong, *demands.width_problems(bare))


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
