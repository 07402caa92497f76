"""The learning paths as fragments: each step with its minutes, and its name for the ticks.

A step is a page of ours or a reading. `data-step` names it the same way on every path, so that a
browser which remembers what was ticked ticks it everywhere; without scripts a path is a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from warpshelf.catalogue import minutes
from warpshelf.catalogue.paths import ABSENT, Stage, Step
from warpshelf.core.markup import attribute, escape, href
from warpshelf.core.pages import Page
from warpshelf.render.exhibit import Exhibit


def fragments(
    built: Mapping[str, list[Stage]],
    snippet_pages: Mapping[str, str],
    exhibits: Sequence[Exhibit] = (),
) -> dict[str, str]:
    """The steps of each path, by name below the fragments: `paths/serving-an-llm.md`.

    `snippet_pages` gives the docs-absolute link of each snippet.
    """
    shown = {one.id: one for one in exhibits}
    texts = {f"{where}.md": _Walk(snippet_pages, shown).path(it) for where, it in built.items()}
    return texts | {"paths/minutes.md": minutes.rule()}


class _Walk:
    """What is known around a path, and the path written with it."""

    def __init__(self, snippet_pages: Mapping[str, str], shown: Mapping[str, Exhibit]) -> None:
        self.snippet_pages = snippet_pages
        self.shown = shown

    def path(self, stages: list[Stage]) -> str:
        if not stages:
            return f'<p class="ws-absent">{ABSENT}</p>\n'
        pages = sum(len(stage.pages) for stage in stages)
        readings = sum(len(stage.steps) for stage in stages)
        runs = sum(len(step.snippets) for stage in stages for step in stage.steps)
        counts = [(pages, "page here", "pages here"), (readings, "reading", "readings"),
                  (runs, "snippet to run", "snippets to run")]  # fmt: skip
        said = [
            f"{number} {one if number == 1 else many}" for number, one, many in counts if number
        ]
        total = sum(map(self._stage_minutes, stages))
        blocks = [
            f'<p class="ws-total" data-walk="{total}">{", ".join(said)}:'
            f" about {minutes.told(total)}.</p>"
        ]
        number = 1
        for stage in stages:
            rows = list(self._rows(stage))
            if not rows:
                continue
            takes = minutes.told(self._stage_minutes(stage))
            blocks.append(f"### {escape(stage.title)}")
            blocks.append(f'<p class="ws-stage">about {takes}</p>')
            opening = f'<ol class="ws-path" start="{number}" markdown>'
            blocks.append("\n".join([opening, *rows, "</ol>"]))
            number += len(rows)
        return "\n\n".join(blocks) + "\n"

    def _rows(self, stage: Stage) -> Iterator[str]:
        for page in stage.pages:
            yield self._page(page)
        for step in stage.steps:
            yield self._reading(step)

    def _stage_minutes(self, stage: Stage) -> int:
        pages = sum(minutes.of_page(page, self.shown) for page in stage.pages)
        return pages + sum(map(self._step_minutes, stage.steps))

    def _step_minutes(self, step: Step) -> int:
        runs = sum(minutes.of_run(self.shown.get(name)) for name in step.snippets)
        return minutes.of_reading(step.reading) + runs

    def _page(self, page: Page) -> str:
        takes = minutes.of_page(page, self.shown)
        title = escape(str(page.meta.get("title") or page.where))
        lines = [
            f'<p class="ws-reading-title" markdown>[{title}](/{page.where}.md)</p>',
            f'<p class="ws-reading-source">{" · ".join(["page here", minutes.told(takes)])}</p>',
        ]
        if page.description:
            lines.append(f'<p class="ws-reading-why">{escape(page.description)}</p>')
        return _item(f"page:{page.where}", takes, lines)

    def _reading(self, step: Step) -> str:
        reading = step.reading
        lang = f" hreflang={attribute(reading.lang)}" if reading.lang != "en" else ""
        title = f"<a href={href(reading.url)}{lang}>{escape(reading.title_en or reading.title)}</a>"
        takes = f"about {minutes.told(minutes.of_reading(reading))}"
        facts = [reading.kind, str(reading.year or ""), reading.level or "", takes]
        source = " · ".join(escape(fact) for fact in facts if fact)
        lines = [
            f'<p class="ws-reading-title">{title}</p>',
            f'<p class="ws-reading-source" markdown>{source} · [its entry]({reading.target})</p>',
            f'<p class="ws-reading-why">{escape(reading.why)}</p>',
        ]
        if step.asked_by:
            names = ", ".join(escape(other.title_en or other.title) for other in step.asked_by[:3])
            lines.append(f'<p class="ws-path-needed">Needed for: {names}</p>')
        lines += map(self._run, step.snippets)
        return _item(f"reading:{reading.id}", self._step_minutes(step), lines)

    def _run(self, name: str) -> str:
        shown = escape(name)
        pages = self.snippet_pages
        link = f"[{shown}]({pages[name]})" if name in pages else shown
        known = self.shown.get(name)
        command = escape(f"python snippets/{name}/{name}.py")
        return (
            f'<p class="ws-path-run" markdown><span class="ws-label">Run {link}</span>'
            f" {escape(known.title if known else '')} <code>{command}</code>"
            f" · {minutes.told(minutes.of_run(known))}</p>"
        )


def _item(name: str, takes: int, lines: Sequence[str]) -> str:
    opening = f'<li class="ws-path-step" data-step="{name}" data-minutes="{takes}"'
    return f'{opening} markdown="block">\n' + "\n".join(lines) + "\n</li>"
