"""The head of a snippet's page: its idea, its needs, and what is known of it on each machine."""

from __future__ import annotations

from typing import Any

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, escape_prose
from warpshelf.render.snippet_page import MachineState, SnippetPage


def render_notice(kind: str, said: str, html: str) -> str:
    """A paragraph that says in words what is withheld or missing; `html` follows `said`."""
    return f'<p class="ws-notice ws-{kind}"><strong>{said}</strong>{html}</p>'


def state_notices(exhibit: SnippetPage) -> str:
    """What is withheld or missing, machine by machine, in words."""
    found = []
    run = f"<code>shelf run {exhibit.id}</code>"
    on_gpu = exhibit.ran_on_gpu
    for state in exhibit.states:
        name, because = escape_markdown(state.name), _reason_suffix(state.reason)
        if state.state == "stale":
            said = (
                f"Source changed since {units.format_date((state.record or {})['date'])} on {name}"
            )
            text = f": the numbers of that run are withheld until {run} runs there again."
            found.append(render_notice("stale", said, text))
        elif state.state == "failed":
            text = f" ({name}){because}. Nothing of it is published."
            found.append(render_notice("failed", "The last run here failed", text))
        elif state.state == "compiled":
            found.append(
                render_notice("compiled", "Compiled only", f", not run on {name}{because}.")
            )
        elif state.state == "not measured" and state.machine == "cpu":
            able = not {"cpu", "gpus"} & exhibit.needs.keys()
            text = f"{because}." + (f" On a machine without a GPU, {run} does it." if able else "")
            found.append(render_notice("absent", "Not checked on a CPU", text))
        elif state.state == "not measured" and on_gpu:
            text = f"{because}. There, {run} does it."
            found.append(render_notice("absent", f"Not measured on {name} yet", text))
    if exhibit.wants_gpu and not on_gpu:
        absent = [s for s in exhibit.states if s.state == "not measured" and s.machine != "cpu"]
        because = _reason_suffix("; ".join(filter(None, (s.reason for s in absent))))
        text = f"{because}. On a machine with a GPU, {run} does it."
        found.append(render_notice("absent", "Not measured on a GPU yet", text))
    return "\n\n".join(found)


def _reason_suffix(reason: str) -> str:
    return f": {escape_markdown(reason.rstrip('. '))}" if reason.strip() else ""


def _describe_check(state: MachineState) -> str:
    """What a check did there: of a kernel on a CPU, whose PTX was executed."""
    targets = (state.record or {}).get("targets")
    if not targets:
        return f"checked on {state.name}"
    named = " and ".join(filter(None, (", ".join(targets[:-1]), targets[-1])))
    return f"executed from its PTX for {named} on a CPU"


def render_badges(exhibit: SnippetPage) -> str:
    """One line of labels, a machine each: what was done there and when."""
    said: list[tuple[str, str]] = []
    for state in (*exhibit.select_states("measured", "verified"), *exhibit.states):
        when = units.format_date(state.record["date"]) if state.record else ""
        said += {
            "measured": [("measured", f"verified and timed on {state.name}, {when}")],
            "verified": [("verified", f"{_describe_check(state)}, {when}")],
            "compiled": [("compiled", f"compiled only, not run on {state.name}")],
            "stale": [("stale", f"source changed since {when} on {state.name}")],
            "failed": [("failed", f"last run failed on {state.name}")],
        }.get(state.state, [])
    if exhibit.wants_gpu and not exhibit.ran_on_gpu:
        said.append(("absent", "not measured on a GPU"))
    items = " ".join(
        f'<li class="ws-badge ws-{kind}">{escape_markdown(text)}</li>'
        for kind, text in dict.fromkeys(said)
    )
    return f'<ul class="ws-badges">{items}</ul>' if items else ""


def _format_architectures(asked: Architectures) -> str:
    return f"{asked} ({asked.why})" if asked.why else str(asked)


def _format_needs(needs: dict[str, Any]) -> str:
    said = []
    for asked in architectures.required_architectures(needs):
        said.append(f"a GPU of {_format_architectures(asked)}")
    if "gpus" in needs:
        said.append(f"{needs['gpus']} GPUs" if needs["gpus"] != 1 else "a GPU")
    if "cpu" in needs:
        said.append(f"not on a CPU: {needs['cpu']}")
    for name, own in needs.get("variants", {}).items():
        limits = {key: own[key] for key in ("sm", "why") if key in own}
        what = [
            _format_architectures(each) for each in architectures.required_architectures(limits)
        ]
        what += [f"not on a CPU: {own['cpu']}"] if "cpu" in own else []
        said.append(f"{name}: {', '.join(what)}")
    return "; ".join(said)


def render_idea(exhibit: SnippetPage) -> str:
    """Its sentence, which carries the anchor, its badges, its sections and its sources."""
    pairs = [(k, v) for k, v in exhibit.sections.items() if k != "Source" and v.strip()]
    if needs := _format_needs(exhibit.needs):
        pairs.append(("Needs", needs))
    rows = "\n".join(f"<dt>{escape_markdown(k)}</dt> <dd>{escape_prose(v)}</dd>" for k, v in pairs)
    sources = [
        f"[{escape_markdown(title)}]({link})" if link else escape_markdown(title)
        for title, link in exhibit.sources
    ]
    parts = (
        f'<p class="ws-idea" id="snippet-{exhibit.id}">{escape_prose(exhibit.title)}</p>',
        render_badges(exhibit),
        f'<dl class="ws-sections">\n{rows}\n</dl>' if rows else "",
        f"Source: {'; '.join(sources)}\n{{ .ws-sources }}" if sources else "",
    )
    return "\n\n".join(filter(None, parts))
