"""What papers and repositories say of a snippet's idea: the figures of its reported.yml.

Nobody here measured them. Each names the reading that states it and the place in it, so that it can
be looked up again; one that fits a timed case of ours names the case, for a comparison as soon as
such a device is measured. The file lies beside the snippet and is no part of what a record is
bound to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, PrivateAttr, ValidationError, model_validator

from warpshelf.core.findings import Finding
from warpshelf.readings.entries import Entry, Reader
from warpshelf.readings.fields import Id, Name, Sentence, Url
from warpshelf.readings.messages import explain
from warpshelf.readings.model import STRICT

FILE = "reported.yml"
PLAIN = (str, int, float, bool)


def _above_zero(value: float) -> float:
    if not 0 < value < 1e30:
        raise ValueError(f"is {value}; write a number above 0")
    return value


def _case(case: dict[str, Any]) -> dict[str, Any]:
    for key, value in case.items():
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, PLAIN) for item in items):
            raise ValueError(f"has no plain value at {key!r}; write it as in cases.py")
    if not case:
        raise ValueError("is empty; name what tells the case from others, or remove the key")
    return case


Unit = Literal[
    "PFLOP/s", "TFLOP/s", "GFLOP/s", "TB/s", "GB/s", "s", "ms", "µs", "%", "×", "GPU hours"
]


class Figure(BaseModel):
    """One figure that others state. Its keys may stand in any order; this is the usual one."""

    model_config = STRICT

    figure: Annotated[float, AfterValidator(_above_zero)]
    """The number, as it is stated."""
    unit: Unit
    """What it counts."""
    what: Sentence
    """What it is of: which kernel or system, in the words of the source where they are clear."""
    device: Name
    """What it ran on, as the source names it."""
    setting: Sentence
    """The shape, the dtype and whatever else the figure depends on."""
    reading: Id
    """The reading on this shelf that states it."""
    place: Sentence
    """Where in it: a table, a figure, a section."""
    url: Url | None = None
    """The address of the place, where it is not the reading's own."""
    case: Annotated[dict[str, Any], AfterValidator(_case)] | None = None
    """What tells the timed case of ours that it corresponds to from the others."""
    variant: Name | None = None
    """The variant or peer of ours that it corresponds to; the fastest variant unless said."""
    share_of: Name | None = None
    """Of a figure in %: the peer of ours that stands for what it is a share of."""

    _entry: Entry = PrivateAttr(default_factory=lambda: Entry(1))

    @model_validator(mode="after")
    def _comparable(self) -> Figure:
        if self.case is None and (self.variant or self.share_of):
            key = "variant" if self.variant else "share_of"
            raise ValueError(f"{key} stands without a case; name the case, or remove it")
        if (self.share_of is None) != (self.unit != "%") and self.case is not None:
            if self.share_of is None:
                raise ValueError("a share has no share_of; name the peer that it is a share of")
            raise ValueError(f"share_of stands beside a figure in {self.unit}; remove it")
        if self.case is not None and self.unit in ("×", "GPU hours"):
            raise ValueError(f"case stands beside a figure in {self.unit}; remove it")
        return self

    @property
    def line(self) -> int:
        """The line its entry starts on, from 1."""
        return self._entry.line

    def line_of(self, key: str) -> int:
        """The line of a key."""
        return self._entry.lines.get((key,), self.line)

    def at(self, entry: Entry) -> Figure:
        """This figure, with the place it was read from."""
        self._entry = entry
        return self


KEYS = tuple(Figure.model_fields)


def read(data: bytes, path: str) -> tuple[list[Figure], list[Finding]]:
    """The figures of a file's bytes, and what is wrong with the others."""
    reader = Reader(path, data, first="figure", measures=True)
    findings = list(reader.findings)
    figures: list[Figure] = []
    seen: dict[tuple[object, ...], int] = {}
    for entry in reader.entries:
        try:
            figure = Figure.model_validate(entry.fields).at(entry)
        except ValidationError as error:
            findings += explain(error, path, entry, KEYS)
            continue
        twin = (figure.reading, figure.what, figure.device, figure.setting, figure.unit)
        if twin in seen:
            what = f"states {figure.what!r:.60} again (first on line {seen[twin]})"
            mend = "remove one, or say in setting what differs"
            findings.append(Finding(path, figure.line, what, mend))
            continue
        seen[twin] = figure.line
        figures.append(figure)
    return figures, findings


def load(folder: Path, shown: str) -> tuple[list[Figure], list[Finding]]:
    """The figures beside the snippet in `folder`, which is called `shown`; none without a file."""
    path = folder / FILE
    where = f"{shown}/{FILE}"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        return [], [Finding(where, None, what, "make it a readable file")]
    return read(data, where)
