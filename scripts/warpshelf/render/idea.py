"""The head of a snippet's page: its idea, its contract, what it needs, and where it comes from."""

from __future__ import annotations

from typing import Any

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core.markup import escape, prose
from warpshelf.render.exhibit import Exhibit
from warpshelf.render.notices import badges


def _asked(asked: Architectures) -> str:
    return f"{asked} ({asked.why})" if asked.why else str(asked)


def _needs(needs: dict[str, Any]) -> str:
    said = []
    for asked in architectures.of(needs):
        said.append(f"a GPU of {_asked(asked)}")
    if "gpus" in needs:
        said.append(f"{needs['gpus']} GPUs" if needs["gpus"] != 1 else "a GPU")
    if "cpu" in needs:
        said.append(f"not on a CPU: {needs['cpu']}")
    for name, own in needs.get("variants", {}).items():
        limits = {key: own[key] for key in ("sm", "why") if key in own}
        what = [_asked(each) for each in architectures.of(limits)]
        what += [f"not on a CPU: {own['cpu']}"] if "cpu" in own else []
        said.append(f"{name}: {', '.join(what)}")
    return "; ".join(said)


def idea(exhibit: Exhibit) -> str:
    """Its sentence, which carries the anchor, its badges, its sections and its sources."""
    pairs = [(k, v) for k, v in exhibit.sections.items() if k != "Source" and v.strip()]
    if needs := _needs(exhibit.needs):
        pairs.append(("Needs", needs))
    rows = "\n".join(f"<dt>{escape(k)}</dt> <dd>{prose(v)}</dd>" for k, v in pairs)
    sources = [
        f"[{escape(title)}]({link})" if link else escape(title) for title, link in exhibit.sources
    ]
    parts = (
        f'<p class="ws-idea" id="snippet-{exhibit.id}">{prose(exhibit.title)}</p>',
        badges(exhibit),
        f'<dl class="ws-sections">\n{rows}\n</dl>' if rows else "",
        f"Source: {'; '.join(sources)}\n{{ .ws-sources }}" if sources else "",
    )
    return "\n\n".join(filter(None, parts))
