"""Goals: the share of a peer's speed, or of a limit, that a variant is to reach on one timed case.

Enters: snippets/goals.yml and records. Leaves: goals whose case, variant and peer there are, and
what a record says of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from warpshelf.contract.snippet import Snippet, snippet_folders
from warpshelf.core import files
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.pages import LOADER
from warpshelf.core.project import Project
from warpshelf.records import limits, store
from warpshelf.records.schema import Record

FILE = "snippets/goals.yml"
BYTES, FLOPS = "bytes_per_second", "flops_per_second"
RATES = {
    "copy": {BYTES: "copy"},
    "product": {FLOPS: "matrix"},
    "peak": {BYTES: "peak", FLOPS: "peak"},
}
ROW = {"snippet": str, "variant": str, "share": files.NUMBER, "of": str, "case": {"*": object}}


class Goal(NamedTuple):
    """`case` is a whole timed case; `of` is a peer, or one of RATES."""

    snippet: str
    variant: str
    share: float
    of: str
    case: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.share:.4g} of {self.of}"

    def measured_share(self, record: Record) -> float | None:
        """What a record has measured; None where it has no time, or nothing to divide it by."""
        rows = (row for row in record.get("cases", ()) if row["timed"] and row["case"] == self.case)
        row = next(rows, {"results": ()})
        times = {
            (one["role"], one["name"]): one["time"]["median"]
            for one in row["results"]
            if "time" in one
        }
        ours = times.get(("variant", self.variant))
        if ours is None:
            return None
        if self.of in RATES:
            ceilings = record.get("ceilings", {})
            rates = {
                f"peak_{of}": ceilings.get(f"{kind}_{of}") for of, kind in RATES[self.of].items()
            }
            return limits.least_seconds(row, rates) / ours or None
        theirs = times.get(("peer", self.of))
        return theirs / ours if theirs else None


def load_goals(project: Project, snippets: Mapping[str, Snippet]) -> list[Goal]:
    """The goals of snippets. ShelfError if a row is malformed, or names what there is not."""
    try:
        rows = yaml.load((project.root / FILE).read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, ValueError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())
        raise ShelfError(Finding(FILE, None, what, "write a list of goals in YAML")) from None
    if malformed := files.shape_problem(rows, [ROW], "goals"):
        raise ShelfError(
            Finding(FILE, None, malformed, "write snippet, variant, share, of and case")
        )
    known = {folder.name for folder in snippet_folders(project)}
    if unknown := {row["snippet"] for row in rows} - known:
        raise ShelfError(Finding(FILE, None, f"no snippet {min(unknown)!r}", "mend its name"))
    chosen = (row for row in rows if row["snippet"] in snippets)
    return [_complete_goal(row, snippets[row["snippet"]]) for row in chosen]


def _complete_goal(row: Mapping[str, Any], snippet: Snippet) -> Goal:
    """A goal with its whole case, as the record of a CPU lists it."""
    due = store.load_records(snippet)[0].get("cpu", {}).get("due", ())
    wanted = row["case"].items()
    timed = (one for one in due if one["timed"])
    found = [one for one in timed if all(one["case"].get(key) == value for key, value in wanted)]
    where = f"{snippet.id}, {row['case']}"
    if len(found) != 1:
        what = f"{where} fits {len(found)} timed cases"
        raise ShelfError(Finding(FILE, None, what, "name what tells one case from the others"))
    [case] = found
    for name, known in ((row["variant"], case["variants"]), (row["of"], [*case["peers"], *RATES])):
        if name not in known:
            what = f"{where} has no {name!r}"
            raise ShelfError(Finding(FILE, None, what, f"write one of {', '.join(known)}"))
    return Goal(snippet.id, row["variant"], row["share"], row["of"], case["case"])
