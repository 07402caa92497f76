"""A snippet as its source declares it, and what the contract asks of the source."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from warpshelf import source
from warpshelf.findings import Finding
from warpshelf.project import Project

ID = re.compile(r"[a-z][a-z0-9_]*")
# A snippet's folder is on the path while it runs, and its fragments have a folder of its name.
RESERVED = {"cuda", "home", "numpy", "readings", "reference", "snippets", "torch", "triton"}
SECONDS = 120.0  # time limit of a whole snippet on a machine, unless NEEDS says otherwise
SECTIONS = ("Shapes", "Bytes", "FLOPs", "Error", "Raises", "Source")

NEEDED = {
    "kernel": {
        "demo": "add `def demo() -> None:` which prints what a reader should see",
        "CASES": "add a tuple of dicts: the small adversarial cases",
        "TIMED": "add a tuple of dicts: the sizes to time on a GPU",
        "inputs": "add `def inputs(case, device, generator):` which returns a tuple of tensors",
        "reference": "add `def reference(*inputs):` which returns the truth in float64",
        "VARIANTS": 'add `VARIANTS = {"name": function}`: our kernels',
        "PEERS": 'add `PEERS = {"torch": function}`: what a user would pick instead',
        "cost": 'add `def cost(case):` which returns {"bytes": …, "flops": …, "unit": "fp32"}',
    },
    "program": {
        "demo": "add `def demo() -> None:` which prints what a reader should see",
        "facts": "add `def facts():` which returns rows with a value and the value expected",
    },
}
NEEDED["model"] = NEEDED["program"]
FUNCTIONS = ("demo", "inputs", "reference", "cost", "facts")
NEEDS_KEYS = {"sm": int, "gpus": int, "seconds": (int, float), "cpu": str, "variants": dict}


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
    needs: dict = field(default_factory=dict)
    uses_triton: bool = False
    parsed: source.Source | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def path(self) -> Path:
        """The module that is the snippet."""
        return self.folder / f"{self.id}.py"

    @property
    def cuda_path(self) -> Path | None:
        """The CUDA C++ file beside it, if there is one."""
        path = self.folder / f"{self.id}.cu"
        return path if path.is_file() else None

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
    def sources(self) -> tuple[str, ...]:
        """Ids of the readings that it comes from."""
        words = self.sections.get("Source", "").replace("\n", " ")
        return tuple(word.strip() for word in words.split(",") if word.strip())

    @cached_property
    def digest(self) -> str:
        """What a record of the present code carries."""
        root = self.project.root
        return source.digest(root, source.local_files(root, self.folder))

    def cannot_run(self, sm: int | None, gpus: int) -> str | None:
        """Why the whole snippet cannot run on a machine with `gpus` GPUs of SM version `sm`."""
        if gpus == 0:
            if "cpu" in self.needs:
                return str(self.needs["cpu"])
            if self.needs.get("sm") or self.needs.get("gpus"):
                return "needs a GPU"
            return None
        if (sm or 0) < self.needs.get("sm", 0):
            return f"needs SM {self.needs['sm']}; this GPU is SM {sm}"
        if gpus < self.needs.get("gpus", 0):
            return f"needs {self.needs['gpus']} GPUs; this machine has {gpus}"
        return None


def discover(project: Project) -> list[Snippet]:
    """Every snippet of the project, by id. Broken ones are among them, with their findings."""
    folders = (
        path
        for path in sorted(project.snippets.iterdir())
        if path.is_dir() and not path.name.startswith((".", "__"))
    )
    return [read(project, folder) for folder in folders]


def read(project: Project, folder: Path) -> Snippet:
    """Read the snippet in `folder` without running it."""
    bare = Snippet(project, folder.name, folder)
    where = project.relative(bare.path)

    def broken(line: int | None, what: str, mend: str) -> Snippet:
        return Snippet(project, bare.id, folder, findings=(Finding(where, line, what, mend),))

    if not ID.fullmatch(folder.name):
        return broken(
            None,
            f"{folder.name!r} is no snippet id",
            "name the folder with small letters, digits and underscores, a letter first",
        )
    if is_reserved(folder.name):
        return broken(None, f"{folder.name!r} has another meaning here", "choose another id")
    if not bare.path.is_file():
        return broken(None, "is missing", f"name the snippet's module {folder.name}.py")
    try:
        parsed = source.parse(bare.path)
    except UnicodeDecodeError as error:
        return broken(None, f"is not UTF-8 at byte {error.start}", "save the file as UTF-8")
    except (SyntaxError, ValueError) as error:
        return broken(
            getattr(error, "lineno", None),
            f"is not valid Python: {getattr(error, 'msg', error)}",
            "mend the syntax",
        )
    except (MemoryError, RecursionError):
        return broken(None, "is not valid Python: it nests too deep", "take it apart")
    modules = {name.split(".")[0] for name in parsed.imports}
    if {"VARIANTS", "CASES", "TIMED", "PEERS"} & parsed.names.keys():
        kind = "kernel"
    else:
        kind = "model" if source.standard_library_only(parsed.imports) else "program"
    title, sections = split_docstring(_docstring(parsed))
    needs, problems = _needs(parsed)
    snippet = Snippet(
        project, bare.id, folder, kind, title, sections, needs, "triton" in modules, parsed
    )
    problems = [*_contract(snippet, parsed), *problems]
    if not problems:
        return snippet
    findings = tuple(Finding(where, line, what, mend) for line, what, mend in problems)
    return Snippet(**{**_fields(snippet), "findings": findings})


def is_reserved(name: str) -> bool:
    """Whether `name` would shadow a module or the site's own fragments, or is Python's word."""
    return name in RESERVED or name in sys.stdlib_module_names or keyword.iskeyword(name)


def _fields(snippet: Snippet) -> dict:
    return {name: getattr(snippet, name) for name in snippet.__dataclass_fields__}


def _docstring(parsed: source.Source) -> str:
    import ast

    return ast.get_docstring(parsed.tree) or ""


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


def _needs(parsed: source.Source) -> tuple[dict, list[tuple[int | None, str, str]]]:
    line = parsed.names.get("NEEDS")
    if line is None:
        return {}, []
    try:
        needs = parsed.literal("NEEDS")
    except (ValueError, TypeError):
        needs = None
    if not isinstance(needs, dict):
        return {}, [(line, "NEEDS is not a literal dict", "write its keys and values out")]
    problems: list[tuple[int | None, str, str]] = []
    for key, value in needs.items():
        if key not in NEEDS_KEYS:
            known = ", ".join(NEEDS_KEYS)
            problems.append((line, f"NEEDS has the unknown key {key!r}", f"known are {known}"))
        elif not isinstance(value, NEEDS_KEYS[key]) or isinstance(value, bool):
            what = f"NEEDS[{key!r}] is {value!r}"
            problems.append((line, what, "give a reason in words" if key == "cpu" else "mend it"))
        elif key == "cpu" and not value.strip():
            problems.append((line, f"NEEDS['cpu'] is {value!r}", "give a reason in words"))
        elif key == "seconds" and not 0 < value <= 3600:
            problems.append((line, f"NEEDS['seconds'] is {value}", "keep it from 1 to 3600"))
        elif key == "variants":
            for name, limits in value.items():
                if not _variant_limits(limits):
                    what = f"NEEDS['variants'][{name!r}] is {limits!r}"
                    problems.append((line, what, 'write {"sm": 90, "cpu": "why not there"}'))
    return (needs if not problems else {}), problems


def _variant_limits(value: object) -> bool:
    if not isinstance(value, dict) or not value.keys() <= {"sm", "cpu"}:
        return False
    sm, why = value.get("sm", 0), value.get("cpu", "none")
    return type(sm) is int and isinstance(why, str) and bool(why.strip())


def _contract(snippet: Snippet, parsed: source.Source) -> list[tuple[int | None, str, str]]:
    """What the source lacks: (line, what, mend) rows."""
    rows: list[tuple[int | None, str, str]] = []
    if not snippet.title:
        rows.append((1, "has no docstring", "open with the idea in one sentence"))
    elif not snippet.title.endswith("."):
        mend = "end it with a full stop and leave a blank line after it"
        rows.append((1, "the docstring's first line is not one sentence", mend))
    wanted = ["Error", "Raises", "Source"]
    if snippet.kind == "kernel":
        wanted.insert(0, "Shapes")
        if not {"Bytes", "FLOPs"} & snippet.sections.keys():
            wanted.insert(1, "Bytes")
    for name in wanted:
        if name not in snippet.sections and snippet.title:
            rows.append((1, f"the docstring has no {name} section", f"add a line `{name:<7} …`"))
    for name, mend in NEEDED[snippet.kind].items():
        if name not in parsed.names:
            rows.append((None, f"{name} is missing", mend))
    for name in FUNCTIONS:
        if name in parsed.names and name not in parsed.functions and name in NEEDED[snippet.kind]:
            mend = f"define it by `def {name}`"
            rows.append((parsed.names[name], f"{name} is not a function", mend))
    if "demo" in parsed.names and not parsed.has_main:
        rows.append((None, "does nothing when run", 'end with `if __name__ == "__main__": demo()`'))
    for module, line in parsed.imports.items():
        if module.split(".")[0] == "warpshelf":
            mend = "keep the snippet a plain module that a reader can copy out"
            rows.append((line, "imports the tooling", mend))
        if module == "cuda":
            rows.append((line, "imports `cuda` bare", "write `from snippets import cuda`"))
    return rows
