"""The Markdown pieces of one snippet's page, each as its state allows.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.snippet import ID
from warpshelf.core import units
from warpshelf.core.markup import escape, preformatted
from warpshelf.records.schema import MACHINE, Record
from warpshelf.render import plots, provenance, tables, timelines
from warpshelf.render.listings import Listing, listings, section

__all__ = ["Credit", "Exhibit", "Listing", "MachineState", "badges", "fragments", "section"]

STATES = ("measured", "verified", "compiled", "stale", "not measured", "failed")
KINDS = ("kernel", "program", "model")
KEYS = ("idea", "code", "output", "accuracy", "timing", "plot", "compile", "facts", "provenance",
        "reproduce", "whole")  # fmt: skip
LINK = re.compile(r"/[A-Za-z0-9._/-]*(?:#[A-Za-z0-9._-]+)?")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Credit(NamedTuple):
    """A reading that a snippet comes from, and its docs-absolute link if a page lists it."""

    title: str
    link: str | None = None


@dataclass(frozen=True)
class MachineState:
    """What is known of a snippet on one machine, named by its slug.

    `record` is the last one, if any: of a stale or failed one only date and device are shown.
    `reason` says why nothing ran (compiled, not measured) or the last run failed (failed).
    """

    record: Record | None
    state: str
    machine: str
    reason: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state {self.state!r} is none of {', '.join(STATES)}")
        if self.record is None and self.state in ("measured", "verified", "compiled", "stale"):
            raise ValueError(f"state {self.state!r} on {self.machine!r} needs a record")
        if not MACHINE.fullmatch(self.machine):
            raise ValueError(f"{self.machine!r} is no machine slug such as nvidia-h100; mend it")

    @property
    def name(self) -> str:
        """The machine in words."""
        if self.record is not None:
            return provenance.device(self.record)
        return "CPU" if self.machine == "cpu" else self.machine

    @property
    def date(self) -> str:
        """When its record was made; empty where there is none."""
        return str(self.record["date"]) if self.record is not None else ""


@dataclass(frozen=True)
class Exhibit:
    """All that the page of one snippet shows."""

    id: str
    kind: str
    title: str
    sections: dict[str, str] = field(default_factory=dict)
    code: Sequence[Listing] = ()
    sources: Sequence[Credit] = ()
    needs: dict[str, Any] = field(default_factory=dict)
    states: Sequence[MachineState] = ()

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

    def shown(self, *states: str) -> list[MachineState]:
        """The machines in one of `states`: GPUs before the CPU, newest first."""
        found = [s for s in self.states if s.state in states and s.record is not None]
        found.sort(key=lambda s: s.date, reverse=True)
        return sorted(found, key=lambda s: s.machine == "cpu")


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _notice(kind: str, said: str, html: str) -> str:
    return f'<p class="ws-notice ws-{kind}"><strong>{said}</strong>{html}</p>'


def _wants_gpu(exhibit: Exhibit) -> bool:
    """Whether it lacks something without one; models and gloo programs do not."""
    return exhibit.kind == "kernel" or bool(exhibit.needs.get("gpus"))


def _known_on_gpu(exhibit: Exhibit) -> bool:
    known = ("measured", "stale", "failed")
    return any(s.machine != "cpu" and s.state in known for s in exhibit.states)


def _notices(exhibit: Exhibit) -> str:
    """What is withheld or missing, machine by machine, in words."""
    found = []
    run = f"<code>shelf run {exhibit.id}</code>"
    on_gpu = _known_on_gpu(exhibit)
    for state in exhibit.states:
        name, because = escape(state.name), _because(state.reason)
        if state.state == "stale":
            said = f"Source changed since {units.day((state.record or {})['date'])} on {name}"
            text = f": the numbers of that run are withheld until {run} runs there again."
            found.append(_notice("stale", said, text))
        elif state.state == "failed":
            text = f" ({name}){because}. Nothing of it is published."
            found.append(_notice("failed", "The last run here failed", text))
        elif state.state == "compiled":
            found.append(_notice("compiled", "Compiled only", f", not run on {name}{because}."))
        elif state.state == "not measured" and state.machine == "cpu":
            able = not {"cpu", "gpus"} & exhibit.needs.keys()
            text = f"{because}." + (f" On a machine without a GPU, {run} does it." if able else "")
            found.append(_notice("absent", "Not checked on a CPU", text))
        elif state.state == "not measured" and on_gpu:
            text = f"{because}. There, {run} does it."
            found.append(_notice("absent", f"Not measured on {name} yet", text))
    if _wants_gpu(exhibit) and not on_gpu:
        absent = [s for s in exhibit.states if s.state == "not measured" and s.machine != "cpu"]
        because = _because("; ".join(filter(None, (s.reason for s in absent))))
        text = f"{because}. On a machine with a GPU, {run} does it."
        found.append(_notice("absent", "Not measured on a GPU yet", text))
    return "\n\n".join(found)


def _because(reason: str) -> str:
    return f": {escape(reason.rstrip('. '))}" if reason.strip() else ""


def badges(exhibit: Exhibit) -> str:
    """One line of labels, a machine each: what was done there and when."""
    said: list[tuple[str, str]] = []
    for state in (*exhibit.shown("measured", "verified"), *exhibit.states):
        when = units.day(state.record["date"]) if state.record else ""
        said += {
            "measured": [("measured", f"verified and timed on {state.name}, {when}")],
            "verified": [("verified", f"checked on {state.name}, {when}")],
            "compiled": [("compiled", f"compiled only, not run on {state.name}")],
            "stale": [("stale", f"source changed since {when} on {state.name}")],
            "failed": [("failed", f"last run failed on {state.name}")],
        }.get(state.state, [])
    if _wants_gpu(exhibit) and not _known_on_gpu(exhibit):
        said.append(("absent", "not measured on a GPU"))
    items = " ".join(
        f'<li class="ws-badge ws-{kind}">{escape(text)}</li>' for kind, text in dict.fromkeys(said)
    )
    return f'<ul class="ws-badges">{items}</ul>' if items else ""


def _needs(needs: dict[str, Any]) -> str:
    said = []
    if "sm" in needs:
        said.append(f"a GPU of {architectures.parse(needs['sm'])}")
    if "gpus" in needs:
        said.append(f"{needs['gpus']} GPUs" if needs["gpus"] != 1 else "a GPU")
    if "cpu" in needs:
        said.append(f"not on a CPU: {needs['cpu']}")
    for name, own in needs.get("variants", {}).items():
        what = [str(architectures.parse(own["sm"]))] if "sm" in own else []
        what += [f"not on a CPU: {own['cpu']}"] if "cpu" in own else []
        said.append(f"{name}: {', '.join(what)}")
    return "; ".join(said)


def _idea(exhibit: Exhibit) -> str:
    pairs = [(k, v) for k, v in exhibit.sections.items() if k != "Source" and v.strip()]
    if needs := _needs(exhibit.needs):
        pairs.append(("Needs", needs))
    rows = "\n".join(f"<dt>{escape(k)}</dt> <dd>{escape(v)}</dd>" for k, v in pairs)
    sources = [
        f"[{escape(title)}]({link})" if link else escape(title) for title, link in exhibit.sources
    ]
    return _join((
        f'<p class="ws-idea" id="snippet-{exhibit.id}">{escape(exhibit.title)}</p>',
        badges(exhibit),
        f'<dl class="ws-sections">\n{rows}\n</dl>' if rows else "",
        f"Source: {'; '.join(sources)}\n{{ .ws-sources }}" if sources else "",
    ))  # fmt: skip


def _output(exhibit: Exhibit) -> str:
    shown = [s for s in exhibit.shown("measured", "verified") if s.record and s.record["demo"]]
    if not shown:
        return ""
    record = shown[0].record or {}
    command = f"<code>python snippets/{exhibit.id}/{exhibit.id}.py</code>"
    return (
        f'<figure class="ws-output"><figcaption>What {command} prints '
        f"({escape(provenance.line(record))})</figcaption>{preformatted(record['demo'])}</figure>"
    )


def _tabs(exhibit: Exhibit, key: str, bodies: Sequence[tuple[MachineState, str]]) -> str:
    """HTML by machine, in content tabs where there are several.

    These are Material's content tabs written out: Python-Markdown leaves HTML alone at the margin
    only, so a table with caption and scopes cannot stand indented in a `===` tab.
    """
    bodies = [(state, body) for state, body in bodies if body]
    if len(bodies) < 2:
        return bodies[0][1] if bodies else ""
    group = f"ws-{exhibit.id}-{key}"
    inputs, names, blocks = [], [], []
    for index, (state, body) in enumerate(bodies, 1):
        checked = ' checked="checked"' if index == 1 else ""
        inputs.append(f'<input{checked} id="{group}-{index}" name="{group}" type="radio">')
        names.append(f'<label for="{group}-{index}">{escape(state.name)}</label>')
        blocks.append(f'<div class="tabbed-block">\n{body}\n</div>')
    return (
        f'<div class="tabbed-set tabbed-alternate" data-tabs="{group}:{len(bodies)}">'
        f'{"".join(inputs)}<div class="tabbed-labels">{"".join(names)}</div>\n'
        f'<div class="tabbed-content">\n' + "\n".join(blocks) + "\n</div></div>"
    )


def _records(exhibit: Exhibit, states: Sequence[MachineState]) -> str:
    links = [
        f"[{escape(s.name)}](/records/{exhibit.id}/{s.machine}.json)" for s in states if s.record
    ]
    if not links:
        return ""
    return f"Raw record: {', '.join(links)}. Again: `shelf run {exhibit.id}`.\n{{ .ws-origin }}"


def _results(
    exhibit: Exhibit,
    key: str,
    states: Sequence[MachineState],
    draw: Callable[[Record], str],
) -> str:
    bodies = [(s, draw(s.record)) for s in states if s.record]
    used = [s for s, body in bodies if body]
    return _join((_tabs(exhibit, key, bodies), _records(exhibit, used)))


def _accuracy(record: Record) -> str:
    skips = " ".join(
        f"<li>{escape(skip['what'])}: {escape(skip['reason'])}</li>"
        for skip in record.get("skips", [])
    )
    left_out = f'<p class="ws-skips">Not run here:</p>\n<ul class="ws-skips">{skips}</ul>'
    return "\n".join(filter(None, (tables.accuracy(record), left_out if skips else "")))


def _plot(record: Record) -> str:
    figures = plots.plots(record)
    return '<div class="ws-plots">\n' + "\n".join(figures) + "\n</div>" if figures else ""


def _provenance(exhibit: Exhibit, state: MachineState) -> str:
    record = state.record or {}
    verb = {"measured": "Measured", "verified": "Checked"}.get(state.state, "Compiled")
    rows = "\n".join(
        f"<dt>{escape(k)}</dt> <dd>{escape(v)}</dd>" for k, v in provenance.pairs(record)
    )
    return (
        f'<details class="ws-provenance" markdown="1">\n'
        f"<summary>{verb} on {escape(provenance.line(record))}</summary>\n<dl>\n{rows}\n</dl>\n\n"
        f"[raw record](/records/{exhibit.id}/{state.machine}.json)\n\n</details>"
    )


def _reproduce(exhibit: Exhibit) -> str:
    commands = (
        (f"python snippets/{exhibit.id}/{exhibit.id}.py", "prints the demo"),
        (f"shelf run {exhibit.id}", "verifies, and times on a GPU"),
        (f"shelf compare {exhibit.id}", "sets it beside the records"),
    )
    room = max(len(command) for command, _ in commands)
    lines = "\n".join(f"{command:{room}}  # {does}" for command, does in commands)
    return f"```sh\n{lines}\n```"


def fragments(exhibit: Exhibit) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    A piece with nothing to show says so in words; `whole` leaves such pieces out and says once
    what is missing.
    """
    current = exhibit.shown("measured", "verified", "compiled")
    ran = exhibit.shown("measured", "verified")
    timed = exhibit.shown("measured")
    compiled = [s for s in current if s.record and s.record.get("compiled")]
    titles = {link.rpartition("#reading-")[2]: title for title, link in exhibit.sources if link}
    parts = {
        "idea": _idea(exhibit),
        "code": listings(exhibit.code, exhibit.kind),
        "output": _output(exhibit),
        "accuracy": _results(exhibit, "accuracy", ran, _accuracy),
        "timing": _results(exhibit, "timing", timed, tables.timing),
        "plot": _results(exhibit, "plot", timed, _plot),
        "compile": _results(exhibit, "compile", compiled[:1], tables.compiled),
        "facts": _results(exhibit, "facts", ran, lambda r: tables.facts(r, titles)),
        "provenance": _join(_provenance(exhibit, s) for s in current),
        "reproduce": _reproduce(exhibit),
    }
    notices = _notices(exhibit)

    def everything(record: Record) -> str:
        timed_here = any(s.record is record for s in timed)
        shown = (_plot(record), tables.timing(record)) if timed_here else ()
        return "\n".join(filter(None, (*shown, _accuracy(record), tables.facts(record, titles))))

    bodies = [(s, everything(s.record)) for s in ran if s.record]
    figures = "".join(tables.compiled(s.record) for s in compiled[:1] if s.record)
    results = (_tabs(exhibit, "whole", bodies), notices, figures)
    ends = (parts["provenance"], parts["reproduce"])
    whole = _join((parts["idea"], parts["code"], parts["output"], *results, *ends))
    nothing = {
        "output": "No output of the present code is recorded.",
        "accuracy": "No errors are recorded for the present code.",
        "timing": "No times are recorded for the present code.",
        "plot": "There is nothing to plot: no times are recorded for the present code.",
        "compile": "No compile figures are recorded for the present code.",
        "facts": "No facts are recorded for the present code.",
        "provenance": "No record of the present code exists.",
    }
    for key, words in nothing.items():
        if not parts[key]:
            parts[key] = _join((f'<p class="ws-absent">{words}</p>', notices))
        elif key in ("accuracy", "timing", "plot", "facts"):
            parts[key] = _join((parts[key], notices))
    return {**parts, "whole": whole}


def pictures(exhibit: Exhibit, embedded: Iterable[str]) -> dict[str, str]:
    """The timelines that pages embed, by name, for `build/fragments/<id>/timelines/<name>.md`.

    One that no record of the present code has is withheld, with words in its place.
    """
    records = [s.record for s in exhibit.shown("measured", "verified") if s.record]
    rows: list[dict[str, Any]] = next(
        (record["timelines"] for record in records if "timelines" in record), []
    )
    drawn = timelines.pictures(rows)
    for name in sorted(set(embedded) - drawn.keys()):
        run = f"<code>shelf run {exhibit.id}</code>"
        text = f": no record of the present code has it. {run} makes one."
        drawn[name] = _notice("absent", f"The picture {escape(name)} is withheld", text) + "\n"
    return drawn
