"""What is known of a snippet on each machine, in words: a line of labels, and what is withheld."""

from __future__ import annotations

from warpshelf.core import units
from warpshelf.core.markup import escape
from warpshelf.render.exhibit import Exhibit, MachineState


def notice(kind: str, said: str, html: str) -> str:
    """A paragraph that says in words what is withheld or missing; `html` follows `said`."""
    return f'<p class="ws-notice ws-{kind}"><strong>{said}</strong>{html}</p>'


def notices(exhibit: Exhibit) -> str:
    """What is withheld or missing, machine by machine, in words."""
    found = []
    run = f"<code>shelf run {exhibit.id}</code>"
    on_gpu = exhibit.known_on_gpu
    for state in exhibit.states:
        name, because = escape(state.name), _because(state.reason)
        if state.state == "stale":
            said = f"Source changed since {units.day((state.record or {})['date'])} on {name}"
            text = f": the numbers of that run are withheld until {run} runs there again."
            found.append(notice("stale", said, text))
        elif state.state == "failed":
            text = f" ({name}){because}. Nothing of it is published."
            found.append(notice("failed", "The last run here failed", text))
        elif state.state == "compiled":
            found.append(notice("compiled", "Compiled only", f", not run on {name}{because}."))
        elif state.state == "not measured" and state.machine == "cpu":
            able = not {"cpu", "gpus"} & exhibit.needs.keys()
            text = f"{because}." + (f" On a machine without a GPU, {run} does it." if able else "")
            found.append(notice("absent", "Not checked on a CPU", text))
        elif state.state == "not measured" and on_gpu:
            text = f"{because}. There, {run} does it."
            found.append(notice("absent", f"Not measured on {name} yet", text))
    if exhibit.wants_gpu and not on_gpu:
        absent = [s for s in exhibit.states if s.state == "not measured" and s.machine != "cpu"]
        because = _because("; ".join(filter(None, (s.reason for s in absent))))
        text = f"{because}. On a machine with a GPU, {run} does it."
        found.append(notice("absent", "Not measured on a GPU yet", text))
    return "\n\n".join(found)


def _because(reason: str) -> str:
    return f": {escape(reason.rstrip('. '))}" if reason.strip() else ""


def _checked(state: MachineState) -> str:
    """What a check did there: of a kernel on a CPU, whose PTX was executed."""
    targets = (state.record or {}).get("targets")
    if not targets:
        return f"checked on {state.name}"
    named = " and ".join(filter(None, (", ".join(targets[:-1]), targets[-1])))
    return f"executed from its PTX for {named} on a CPU"


def badges(exhibit: Exhibit) -> str:
    """One line of labels, a machine each: what was done there and when."""
    said: list[tuple[str, str]] = []
    for state in (*exhibit.shown("measured", "verified"), *exhibit.states):
        when = units.day(state.record["date"]) if state.record else ""
        said += {
            "measured": [("measured", f"verified and timed on {state.name}, {when}")],
            "verified": [("verified", f"{_checked(state)}, {when}")],
            "compiled": [("compiled", f"compiled only, not run on {state.name}")],
            "stale": [("stale", f"source changed since {when} on {state.name}")],
            "failed": [("failed", f"last run failed on {state.name}")],
        }.get(state.state, [])
    if exhibit.wants_gpu and not exhibit.known_on_gpu:
        said.append(("absent", "not measured on a GPU"))
    items = " ".join(
        f'<li class="ws-badge ws-{kind}">{escape(text)}</li>' for kind, text in dict.fromkeys(said)
    )
    return f'<ul class="ws-badges">{items}</ul>' if items else ""
