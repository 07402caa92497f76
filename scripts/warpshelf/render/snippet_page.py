"""What a snippet's page may show: its code and sources, and its state on each machine.

A page may claim only what a current record holds: see `MachineState`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warpshelf.contract.snippet import ID
from warpshelf.look.view_store import StoredView
from warpshelf.readings.published import PublishedFigure
from warpshelf.records.history import Version
from warpshelf.records.schema import Record
from warpshelf.records.siblings import key_slug
from warpshelf.render import provenance
from warpshelf.render.listings import Listing
from warpshelf.render.rivals import RivalComparison

STATES = ("measured", "verified", "compiled", "stale", "not measured", "failed")
KINDS = ("kernel", "program", "model")
LINK = re.compile(r"/[A-Za-z0-9._/-]*(?:#[A-Za-z0-9._-]+)?")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class SourceLink(NamedTuple):
    """A reading that a snippet comes from, and its docs-absolute link if a page lists it."""

    title: str
    link: str | None = None


class Claim(NamedTuple):
    """A figure that others state, and the reading that states it with the address of the place."""

    figure: PublishedFigure
    source: SourceLink
    url: str


@dataclass(frozen=True)
class MachineState:
    """What is known of a snippet on one machine, named by the key of its record.

    `record` is the last one, if any: of a stale or failed one only date and device are shown.
    `reason` says why nothing ran (compiled, not measured) or the last run failed (failed). `apart`
    is what tells it from other records of the same kind of device, where there are any.
    `attestation` is the text of what the job that made the record signed; empty where none did.
    `here` is what this checkout did beside the record, in words; empty where it did nothing.
    """

    record: Record | None
    state: str
    machine: str
    reason: str = ""
    apart: str = ""
    attestation: str = ""
    here: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state {self.state!r} is none of {', '.join(STATES)}")
        if self.record is None and self.state in ("measured", "verified", "compiled", "stale"):
            raise ValueError(f"state {self.state!r} on {self.machine!r} needs a record")
        if key_slug(self.machine) is None:
            raise ValueError(f"{self.machine!r} is no machine slug such as nvidia-h100; mend it")

    @property
    def name(self) -> str:
        """The machine in words, told apart from others of its kind."""
        return f"{self.device}, {self.apart}" if self.apart else self.device

    @property
    def device(self) -> str:
        """The kind of machine in words."""
        if self.record is not None:
            return provenance.machine_name(self.record)
        return "CPU" if self.machine == "cpu" else self.machine

    @property
    def date(self) -> str:
        """When its record was made; empty where there is none."""
        return str(self.record["date"]) if self.record is not None else ""


@dataclass(frozen=True)
class SnippetPage:
    """All that the page of one snippet shows."""

    id: str
    kind: str
    title: str
    sections: dict[str, str] = field(default_factory=dict)
    code: Sequence[Listing] = ()
    sources: Sequence[SourceLink] = ()
    needs: dict[str, Any] = field(default_factory=dict)
    states: Sequence[MachineState] = ()
    reported: Sequence[Claim] = ()
    views: Sequence[StoredView] = ()
    rivals: Sequence[RivalComparison] = ()
    history: Mapping[str, Sequence[Version]] = field(default_factory=dict)  # by key, newest last

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is no snippet id; use small letters, digits and _")
        if self.kind not in KINDS:
            raise ValueError(f"{self.id}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        for listing in self.code:
            if not FILE.fullmatch(listing.name):
                raise ValueError(
                    f"{self.id}: {listing.name!r} is no plain file name; rename the file"
                )
        for title, link in self.sources:
            if link is not None and not LINK.fullmatch(link):
                raise ValueError(f"{self.id}: {link!r} for {title!r} is not docs-absolute")

    @property
    def wants_gpu(self) -> bool:
        """Whether it lacks something without one; models and gloo programs do not."""
        return self.kind == "kernel" or bool(self.needs.get("gpus"))

    @property
    def ran_on_gpu(self) -> bool:
        """Whether it was ever run on a GPU, for better or worse."""
        known = ("measured", "stale", "failed")
        return any(s.machine != "cpu" and s.state in known for s in self.states)

    def select_states(self, *states: str) -> list[MachineState]:
        """The machines in one of `states`: GPUs before the CPU, newest first."""
        found = [s for s in self.states if s.state in states and s.record is not None]
        found.sort(key=lambda s: s.date, reverse=True)
        return sorted(found, key=lambda s: s.machine == "cpu")
