"""What the contract asks of a snippet's two modules, read from their source without running them.

Enters: a snippet as it was read, and the syntax trees of its modules. Leaves: a row for each thing
that is missing, misplaced or too wide to be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from warpshelf.contract import digest, syntax
from warpshelf.contract.syntax import ParsedModule

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
