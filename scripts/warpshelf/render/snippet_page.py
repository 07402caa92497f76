"""What a snippet's page may show, its head, its state on each machine, and its provenance.

A page may claim only what a current record holds: see `MachineState`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, escape_prose
from warpshelf.look.builds import CompiledRival
from warpshelf.look.view import Build, View
from warpshelf.readings.published import PublishedFigure, Rival
from warpshelf.records.history import Version
from warpshelf.records.schema import Record
from warpshelf.render.listings import Listing

# Where, when and how a record was made, in words.

JOB = "Measured by"  # the name of the pair that has the address of a job
SOFTWARE = {
    "Driver": "driver", "CUDA": "cuda", "PyTorch": "torch", "Triton": "triton",
    "Python": "python", "System": "os",
}  # fmt: skip
# Units of what is read off a GPU around its timings; other keys are shown by their own name.
CONDITION = {
    "sm_mhz": "MHz SM", "sm_mhz_lowest": "MHz SM at the lowest", "memory_mhz": "MHz memory",
    "celsius_highest": "°C at the highest", "watts": "W", "readings": "readings",
}  # fmt: skip


def machine_name(record: Record) -> str:
    """The machine in words: `NVIDIA H100 80GB HBM3`, `CPU`, `2 × …`."""
    machine = record["machine"]
    return f"{machine['gpus']} × {machine['device']}" if machine["gpus"] > 1 else machine["device"]


def origin_line(record: Record, apart: str = "") -> str:
    """Where, when and by whom the record was made, in one line of plain text.

    A CPU's record, which anyone can make again, names nobody. `apart` is what tells the record from
    others of the same kind of device.
    """
    origin, maker = record.get("origin", {}), ""
    if "who" in origin:
        maker = f"handed in by {origin['who']}"
    elif "job" in origin:
        maker = "by a job of this project"
    elif record["machine"]["gpus"]:
        maker = "handed in anonymously"
    name, plus, changed = (record.get("commit") or "").partition("+")
    commit = f"commit {name}" if name else ""
    if plus:
        files = changed.count("+") + 1
        commit += " and changes" if changed == "changes" else f" and {files} changed files"
    said = (machine_name(record), units.format_date(record["date"]), commit, maker, apart)
    return ", ".join(filter(None, said))


def _format_limits(ceilings: dict[str, Any], bandwidth: str, rates: str) -> str:
    speed = ceilings.get(f"{bandwidth}_bytes_per_second")
    said = [] if speed is None else [units.format_rate(speed, "B/s")]
    for name, rate in sorted(ceilings.get(f"{rates}_flops_per_second", {}).items()):
        said.append(f"{name} {units.format_rate(rate, 'FLOP/s')}")
    return ", ".join(said)


def origin_pairs(record: Record) -> list[tuple[str, str]]:
    """All that says where the numbers come from, as pairs of plain text; unknowns are left out."""
    machine, conditions = record["machine"], record.get("conditions", {})
    ceilings, origin, load = record.get("ceilings", {}), record.get("origin", {}), []
    memory = units.format_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else ""
    sm = f"SM {machine['sm']}" if machine.get("sm") else ""
    sms = f"{machine['sms']} SMs" if machine.get("sms") else ""
    read = conditions.get("load", {})
    for key in (*filter(read.__contains__, CONDITION), *sorted(read.keys() - CONDITION.keys())):
        if units.finite_float(read[key]) is not None:
            load.append(f"{units.format_number(read[key])} {CONDITION.get(key, key)}")
    made_by = ("Handed in by", "")
    if "job" in origin:
        made_by = (JOB, f"a job of this project, {origin['job']}")
    elif machine["gpus"]:
        made_by = ("Handed in by", origin.get("who", "anonymous"))
    found = (
        ("Machine", ", ".join(filter(None, (machine_name(record), memory, sm, sms)))),
        *((name, machine.get(key)) for name, key in SOFTWARE.items()),
        ("Under load", ", ".join(load)),
        ("Clocks lowered by", ", ".join(conditions.get("slowed_by", ()))),
        ("Measured limits", _format_limits(ceilings, "copy", "matrix")),
        ("Peaks", _format_limits(ceilings, "peak", "peak")),
        made_by,
        ("Date", units.format_datetime(record["date"])),
        ("Commit", record.get("commit")),
        ("Command", record["command"]),
        ("Method", units.format_integer(record["method"])),
        ("Digest", record["digest"][:19]),
    )
    return [(name, text) for name, text in found if text]


STATES = ("measured", "verified", "compiled", "stale", "not measured", "failed")
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


class RivalComparison(NamedTuple):
    """A public kernel and what it was compiled to, by architecture; `ours` likewise."""

    rival: Rival
    answer: CompiledRival
    ours: dict[str, Build]

    @property
    def archs(self) -> list[str]:
        """The architectures that both are compiled for."""
        return sorted(self.ours.keys() & self.answer.builds.keys(), key=architectures.sm_version)


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

    @property
    def name(self) -> str:
        """The machine in words, told apart from others of its kind."""
        return f"{self.device}, {self.apart}" if self.apart else self.device

    @property
    def device(self) -> str:
        """The kind of machine in words."""
        if self.record is None:
            return "CPU" if self.machine == "cpu" else self.machine
        return machine_name(self.record)

    @property
    def known(self) -> Record:
        """Its record; empty where there is none."""
        return self.record or {}

    @property
    def date(self) -> str:
        """When its record was made; empty where there is none."""
        return str(self.known.get("date", ""))


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
    views: Sequence[View] = ()
    rivals: Sequence[RivalComparison] = ()
    history: Mapping[str, Sequence[Version]] = field(default_factory=dict)  # by key, newest last

    def __post_init__(self) -> None:
        for listing in self.code:
            if not FILE.fullmatch(name := listing.name):
                raise ValueError(f"{self.id}: {name!r} is not a plain file name; rename the file")

    @property
    def wants_gpu(self) -> bool:
        """Whether it needs a GPU to be complete; models and gloo programs do not."""
        return self.kind == "kernel" or bool(self.needs.get("gpus"))

    @property
    def ran_on_gpu(self) -> bool:
        """Whether it was ever run on a GPU, even if that failed."""
        known = ("measured", "stale", "failed")
        return any(s.machine != "cpu" and s.state in known for s in self.states)

    def select_states(self, *states: str) -> list[MachineState]:
        """The machines in one of `states`: GPUs before the CPU, newest first."""
        found = [s for s in self.states if s.state in states and s.record is not None]
        found.sort(key=lambda s: s.date, reverse=True)
        return sorted(found, key=lambda s: s.machine == "cpu")


def render_notice(kind: str, said: str, html: str) -> str:
    """A paragraph that says in words what is withheld or missing; `html` follows `said`."""
    return f'<p class="ws-notice ws-{kind}"><strong>{said}</strong>{html}</p>'


def state_notices(page: SnippetPage) -> str:
    """What is withheld or missing, machine by machine, in words."""
    found, waiting, run = [], [], f"<code>shelf run {page.id}</code>"
    able = not {"cpu", "gpus"} & page.needs.keys()
    for state in page.states:
        name, because = escape_markdown(state.name), _reason_suffix(state.reason)
        kind, said, text = state.state, "", ""
        if kind == "stale":
            said = f"Source changed since {units.format_date(state.date)} on {name}"
            text = f": the numbers of that run are withheld until {run} runs there again."
        elif kind == "failed":
            said = "The last run here failed"
            text = f" ({name}){because}. Nothing of it is published."
        elif kind == "compiled":
            said, text = "Compiled only", f", not run on {name}{because}."
        elif kind == "not measured" and state.machine == "cpu":
            kind, said, text = "absent", "Not checked on a CPU", f"{because}."
            text += f" On a machine without a GPU, {run} does it." if able else ""
        elif kind == "not measured":
            waiting.append(state.reason)
            if page.ran_on_gpu:
                kind, said = "absent", f"Not measured on {name} yet"
                text = f"{because}. There, {run} does it."
        if said:
            found.append(render_notice(kind, said, text))
    if page.wants_gpu and not page.ran_on_gpu:
        because = _reason_suffix("; ".join(filter(None, waiting)))
        text = f"{because}. On a machine with a GPU, {run} does it."
        found.append(render_notice("absent", "Not measured on a GPU yet", text))
    return "\n\n".join(found)


def _reason_suffix(reason: str) -> str:
    return f": {escape_markdown(reason.rstrip('. '))}" if reason.strip() else ""


def render_badges(page: SnippetPage) -> str:
    """One line of labels, a machine each: what was done there and when."""
    said: dict[tuple[str, str], None] = {}
    for state in (*page.select_states("measured", "verified"), *page.states):
        when = units.format_date(state.known["date"]) if state.record else ""
        checked = f"checked on {state.name}"
        if targets := state.known.get("targets"):  # a kernel on a CPU, whose PTX was executed
            named = " and ".join(filter(None, (", ".join(targets[:-1]), targets[-1])))
            checked = f"executed from its PTX for {named} on a CPU"
        texts = {
            "measured": f"verified and timed on {state.name}, {when}",
            "verified": f"{checked}, {when}",
            "compiled": f"compiled only, not run on {state.name}",
            "stale": f"source changed since {when} on {state.name}",
            "failed": f"last run failed on {state.name}",
        }
        if state.state in texts:
            said[state.state, texts[state.state]] = None
    if page.wants_gpu and not page.ran_on_gpu:
        said["absent", "not measured on a GPU"] = None
    items = " ".join(
        f'<li class="ws-badge ws-{kind}">{escape_markdown(text)}</li>' for kind, text in said
    )
    return f'<ul class="ws-badges">{items}</ul>' if items else ""


def _list_needs(needs: dict[str, Any], before: str = "") -> list[str]:
    said = [
        f"{before}{one}{f' ({one.why})' if one.why else ''}"
        for one in architectures.required_architectures(needs)
    ]
    if gpus := needs.get("gpus"):
        said.append(f"{gpus} GPUs" if gpus != 1 else "a GPU")
    if "cpu" in needs:
        said.append(f"not on a CPU: {needs['cpu']}")
    return said


def render_idea(page: SnippetPage) -> str:
    """Its sentence, which carries the anchor, its badges, its sections and its sources."""
    pairs = [(k, v) for k, v in page.sections.items() if k != "Source" and v.strip()]
    needs = _list_needs(page.needs, "a GPU of ")
    for name, own in page.needs.get("variants", {}).items():
        needs.append(f"{name}: {', '.join(_list_needs(own))}")
    if needs:
        pairs.append(("Needs", "; ".join(needs)))
    rows = "\n".join(f"<dt>{escape_markdown(k)}</dt> <dd>{escape_prose(v)}</dd>" for k, v in pairs)
    sources = "; ".join(
        f"[{escape_markdown(title)}]({link})" if link else escape_markdown(title)
        for title, link in page.sources
    )
    parts = (
        f'<p class="ws-idea" id="snippet-{page.id}">{escape_prose(page.title)}</p>',
        render_badges(page),
        f'<dl class="ws-sections">\n{rows}\n</dl>' if rows else "",
        f"Source: {sources}\n{{ .ws-sources }}" if sources else "",
    )
    return "\n\n".join(filter(None, parts))
