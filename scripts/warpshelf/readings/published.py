"""What others published for the idea of a snippet: their figures, and their kernels.

Its published.yml has up to three keys, and is no part of what a record is bound to.

`reported` is a list of what papers and repositories say; nobody here measured it. A figure that
fits a timed case of ours names the case, for a comparison as soon as such a device is measured.

`rivals` is a list of kernels in Triton or CUDA C++, each in a repository, at a commit, and how it
is compiled: `shelf rivals` compiles it as ours are compiled, and a page sets the two side by side.
None of their code is kept here. One with a `package` is ours too, in a language that the site does
not install: it lies beside the file, and says how it is compiled.

`calls` is code that makes a compiler without a GPU compile our Triton kernels: it calls each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from warpshelf.core.files import has_text, split_mapping
from warpshelf.core.findings import Finding
from warpshelf.readings.entries import EntryModel, EntryReader, Model, read_optional, suggest_match
from warpshelf.readings.model import Id, Name, Sentence, Url

FILE = "published.yml"
CUDA = (".cu", ".cuh", ".h", ".hpp")  # how a file of CUDA C++ ends
Unit = Literal[
    "PFLOP/s", "TFLOP/s", "GFLOP/s", "TB/s", "GB/s", "s", "ms", "µs", "%", "×", "GPU hours"
]
Constant = bool | int | float | str


def _check_positive(value: float) -> float:
    if not 0 < value < 1e30:
        raise ValueError(f"is {value}; write a number above 0")
    return value


def _check_case(case: dict[str, Any]) -> dict[str, Any]:
    for key, value in case.items():
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, Constant) for item in items):
            raise ValueError(f"has no plain value at {key!r}; write it as in cases.py")
    if not case:
        raise ValueError("is empty; name what tells the case from others, or remove the key")
    return case


class PublishedFigure(EntryModel):
    """One figure that others state. Its keys may stand in any order; this is the usual one."""

    figure: Annotated[float, AfterValidator(_check_positive)]  # the number, as it is stated
    unit: Unit
    what: Sentence  # which kernel or system, in the words of the source where they are clear
    device: Name  # what it ran on, as the source names it
    setting: Sentence  # the shape, the dtype and whatever else the figure depends on
    reading: Id  # the reading on this shelf that states it
    place: Sentence  # where in it: a table, a figure, a section
    url: Url | None = None  # the address of the place, where it is not the reading's own
    # What tells the timed case of ours that it corresponds to from the others.
    case: Annotated[dict[str, Any], AfterValidator(_check_case)] | None = None
    variant: Name | None = None  # our variant or peer for it; the fastest variant unless said
    share_of: Name | None = None  # of a figure in %: the peer of ours that it is a share of

    @model_validator(mode="after")
    def _check_comparison(self) -> PublishedFigure:
        if self.case is None:
            if self.variant or self.share_of:
                key = "variant" if self.variant else "share_of"
                raise ValueError(f"{key} is given without a case; name the case, or remove it")
        elif self.unit == "%" and self.share_of is None:
            raise ValueError("a share has no share_of; name the peer that it is a share of")
        elif self.unit != "%" and self.share_of is not None:
            raise ValueError(f"share_of is given for a figure in {self.unit}; remove it")
        elif self.unit in ("×", "GPU hours"):
            raise ValueError(f"case is given for a figure in {self.unit}; remove it")
        return self


def _check_path(path: str) -> str:
    parts = path.split("/")
    if not path.endswith((".py", *CUDA)) or not all(parts) or {".", ".."} & {*parts}:
        mend = "write the path of a file of Python or CUDA C++ inside the repository"
        raise ValueError(f"is {path!r}; {mend}")
    return path


def _check_flag(text: str) -> str:
    if not re.fullmatch(r"-D\w+(=\S+)?|-I[\w-]+(/[\w-]+)*", text):
        raise ValueError(f"is {text!r}; write -DNAME=VALUE, or -Isrc for a folder of it")
    return text


class Counterpart(EntryModel):
    """The kernel of ours that does the same job, as its view calls it."""

    variant: Name
    kernel: Name


TRITON_KEYS = ("signature", "divisible", "constants", "absent", "options")
CUDA_KEYS = ("flags", "shared")


class Rival(EntryModel):
    """One public kernel. Its keys may stand in any order; this is the usual one."""

    name: Name  # whose it is, as a page calls it
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] = ""  # on GitHub: `owner/name`
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = ""
    # In place of both: the package with the compiler of a language of its own.
    package: Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*$")] = ""
    file: Annotated[str, AfterValidator(_check_path)]  # of the repository, or beside this one
    # The function's name in that file, in CUDA C++ with its template arguments.
    kernel: Annotated[str, Field(pattern=r"^[A-Za-z_][\w:]*(<[\w:, <>-]*>)?$")]
    beside: Counterpart  # the kernel of ours that it is set beside
    what: Sentence  # the job that both do: dtype and shape
    signature: dict[str, str] = {}  # Triton's types of what is no constant: `"*bf16"`, `i32`
    divisible: list[str] = []  # the arguments that 16 divides
    constants: dict[str, Constant] = {}  # one that starts with `tl.` is Triton's of that name
    absent: list[str] = []  # the arguments that are None
    options: dict[str, Constant] = {}  # Triton's compile options: `num_warps`, `num_stages`
    # NVRTC's: `-DNAME=VALUE`, or `-Isrc`, a folder of the repository.
    flags: list[Annotated[str, AfterValidator(_check_flag)]] = []
    shared: Annotated[int, Field(ge=0)] = 0  # bytes that a launch asks for, in CUDA C++
    targets: list[int] = [80, 90, 100]  # the SM versions that it is compiled for

    _source: str = PrivateAttr("")

    @model_validator(mode="after")
    def _check_source(self) -> Rival:
        if self.package:
            told = ("repository", "commit", *TRITON_KEYS, *CUDA_KEYS)
            if key := self._first_given(told):
                why = "is not for one with a package, whose file says how it is compiled"
                raise ValueError(f"{key} {why}; remove it")
            if "/" in self.file or not self.file.endswith(".py"):
                raise ValueError(f"file is {self.file!r}; name a file of Python beside this one")
            return self
        if not self.repository or not self.commit:
            missing = "commit" if self.repository else "repository"
            raise ValueError(f"{missing} is missing; say where the kernel is")
        language, its = ("Triton", "CUDA C++") if self.is_cuda else ("CUDA C++", "Triton")
        if key := self._first_given(TRITON_KEYS if self.is_cuda else CUDA_KEYS):
            raise ValueError(f"{key} is for {language}, and {self.file} is {its}; remove it")
        if not self.is_cuda and not self.signature:
            raise ValueError("signature is missing; give the type of each argument")
        if not self.is_cuda and not self.kernel.isidentifier():
            raise ValueError(f"kernel is {self.kernel!r}, not a Python name; write its name alone")
        given = [*self.signature, *self.constants, *self.absent]
        if twice := sorted({name for name in given if given.count(name) > 1}):
            raise ValueError(f"{twice[0]} is given twice; leave it in one place")
        if unknown := [name for name in self.divisible if name not in self.signature]:
            raise ValueError(f"{unknown[0]} is divisible, but not in signature; add it there")
        return self

    def _first_given(self, keys: tuple[str, ...]) -> str | None:
        return next((key for key in keys if getattr(self, key)), None)

    @property
    def is_cuda(self) -> bool:
        """Whether it is CUDA C++, and not Triton."""
        return self.file.endswith(CUDA)

    @property
    def url(self) -> str:
        """Where anyone can read it."""
        return f"https://github.com/{self.repository}/blob/{self.commit}/{self.file}"

    @property
    def source(self) -> str:
        """The text of its file, where that lies here."""
        return self._source

    @property
    def digest(self) -> str:
        """`sha256:…` over all that decides what it is compiled to."""
        said = self.model_dump(exclude={"name", "what", "beside"})
        if self.package:
            said["source"] = self._source
        else:
            del said["package"]
        if not self.is_cuda:
            del said["flags"], said["shared"]
        return f"sha256:{hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()}"

    def compile_request(self) -> dict[str, Any]:
        """What `warpshelf.worker.public_kernel` is told of it, all but where its files are."""
        more = ("package",) if self.package else (*TRITON_KEYS, *CUDA_KEYS)
        return {key: getattr(self, key) for key in ("file", "kernel", *more, "targets")}


class Published(NamedTuple):
    """What stands in a file, each empty where it has none."""

    rivals: Sequence[Rival] = ()
    reported: Sequence[PublishedFigure] = ()
    calls: str = ""


def read_figures(data: bytes, path: str) -> tuple[list[PublishedFigure], list[Finding]]:
    """The figures of a list's bytes, and what is wrong with the others."""

    def identify_figure(one: PublishedFigure) -> tuple[object, str]:
        key = one.reading, one.what, one.device, one.setting, one.unit
        return key, f"states {one.what!r:.60} again"

    reader = EntryReader(path, data, first="figure", measures=True)
    mend = "remove one, or say in setting what differs"
    return _drop_twins(reader, PublishedFigure, identify_figure, mend)


def read_rivals(data: bytes, path: str) -> tuple[list[Rival], list[Finding]]:
    """The kernels of a list's bytes, and what is wrong with the others."""

    def identify_rival(one: Rival) -> tuple[object, str]:
        return (one.digest, str(one.beside)), f"names {one.kernel} again"

    reader = EntryReader(path, data, first="name", measures=True)
    return _drop_twins(reader, Rival, identify_rival, "remove one")


Identify = Callable[[Model], tuple[object, str]]


def _drop_twins(
    reader: EntryReader, model: type[Model], identify: Identify[Model], mend: str
) -> tuple[list[Model], list[Finding]]:
    """What `reader` holds, each once, and the findings about the rest."""
    kept: dict[object, Model] = {}
    for one in reader.parse_as(model):
        key, again = identify(one)
        if (first := kept.setdefault(key, one)) is not one:
            what = f"{again} (first on line {first.line})"
            reader.findings.append(one.make_finding(what, mend))
    return list(kept.values()), reader.findings


def read_calls(data: bytes, path: str) -> tuple[str, list[Finding]]:
    """The text of the calls, and what is wrong with it."""
    try:
        text = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError):
        text = None
    if isinstance(text, str) and text.strip():
        return text, []
    mend = "write `calls: |`, and below it each line of code behind two more spaces"
    line = len(data) - len(data.lstrip(b"\n")) + 1
    return "", [Finding(path, line, "calls is not a block of text", mend)]


READERS: dict[str, Callable[[bytes, str], tuple[Any, list[Finding]]]] = {
    "rivals": read_rivals,
    "reported": read_figures,
    "calls": read_calls,
}
KEYS = "`rivals:`, `reported:` or `calls:`"


def load_published(folder: Path, shown: str) -> tuple[Published, list[Finding]]:
    """What is published beside the snippet in `folder`, called `shown`; nothing without a file."""
    path = f"{shown}/{FILE}"
    data, findings = read_optional(folder / FILE, path)
    lines: dict[str, int] = {}
    found: dict[str, Any] = {}
    for key, line, value in split_mapping(data or b""):
        first = lines.setdefault(key, line)
        if key and key not in READERS:
            mend = suggest_match(key, READERS, f"write {KEYS}, or remove it")
            findings.append(Finding(path, line, f"the key {key!r} is unknown", mend))
        elif not key:
            mend = f"start it with {KEYS}, as UTF-8 without BOM"
            findings.append(Finding(path, line, "does not start with a key", mend))
        elif first != line:
            what = f"the key {key!r} is written twice (first on line {first})"
            findings.append(Finding(path, line, what, "remove one"))
        elif not has_text(value):
            findings.append(Finding(path, line, f"{key} is empty", "fill it, or remove the key"))
        else:
            found[key], wrong = READERS[key](value, path)
            findings += wrong
    if data is not None and not lines:
        findings.append(Finding(path, None, "is empty", f"write {KEYS}, or delete the file"))
    for one in [one for one in found.get("rivals", ()) if one.package]:
        try:
            one._source = (folder / one.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            what = f"file is {one.file!r}, which cannot be read ({why})"
            findings.append(one.make_finding(what, "name a file beside this one"))
            found["rivals"].remove(one)
    return Published(**found), findings
