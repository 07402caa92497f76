"""What runs on which GPU, by architecture, known from what snippets need and before anything runs.

Enters: exhibits, and where each stands on the site. Leaves: two Markdown tables, whose links hold
on any page: how many kernels run on each architecture, and what is skipped for which reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core.markup import escape
from warpshelf.render.exhibit import Exhibit

WHOLE, PART, NONE = "whole", "in part", "skipped"


class Skip(NamedTuple):
    """A kernel, or one of its variants or peers, that is not for an architecture, and what is."""

    exhibit: Exhibit
    name: str  # of the variant or peer; "" is all of it
    needed: Architectures


def table(exhibits: Iterable[Exhibit], pages: Mapping[str, str]) -> str:
    """Both tables; `pages` has the docs-absolute link of each snippet that a page shows."""
    kernels = [one for one in exhibits if one.kind == "kernel"]
    rows = [
        "| GPU | Cards | Kernels that run whole | in part | skipped |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    reasons: dict[tuple[str, str, str], list[int]] = {}  # by reason, snippet and variant
    for sm, cards in architectures.CARDS.items():
        counts = dict.fromkeys((WHOLE, PART, NONE), 0)
        for one in kernels:
            skips = list(skipped(one, sm))
            counts[standing(one, skips)] += 1
            for skip in skips:
                shown, name = _shown(one, pages), _named(skip)
                reasons.setdefault((_needed(skip.needed), shown, name), []).append(sm)
        cells = f"SM {sm}", ", ".join(cards), *map(str, counts.values())
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| Needs | What is skipped | on SM |", "| --- | --- | --- |"]
    for reason, places, whats in sorted(_grouped(reasons), key=lambda row: row[1]):
        named = (
            f"{shown}{': ' if all(names) else ''}{', '.join(names)}"
            for shown, names in sorted(whats.items())
        )
        rows.append(f"| {reason} | {'; '.join(named)} | {', '.join(map(str, places))} |")
    return "\n".join(rows) + "\n"


Row = tuple[str, tuple[int, ...], dict[str, list[str]]]


def _grouped(reasons: Mapping[tuple[str, str, str], Sequence[int]]) -> Iterator[Row]:
    """What is skipped for one reason on the same architectures: snippets, and names of each."""
    found: dict[tuple[str, tuple[int, ...]], dict[str, list[str]]] = {}
    for (reason, shown, name), places in reasons.items():
        whats = found.setdefault((reason, tuple(places)), {})
        whats.setdefault(shown, []).append(name)
    for (reason, where), whats in found.items():
        yield reason, where, whats


def skipped(one: Exhibit, sm: int) -> Iterator[Skip]:
    """What of a kernel is not for SM version `sm`: all of it, or some variants and peers."""
    if whole := next((each for each in architectures.of(one.needs) if not each.covers(sm)), None):
        yield Skip(one, "", whole)
        return
    for name in one.needs.get("variants", {}):
        for needed in architectures.of(one.needs, name):
            if not needed.covers(sm):
                yield Skip(one, name, needed)


def standing(one: Exhibit, skips: Iterable[Skip]) -> str:
    """Whether a kernel runs whole, in part or not at all; a peer that is skipped counts nothing."""
    names = {skip.name for skip in skips}
    if "" in names:
        return NONE
    ours = variants(one)
    left = ours - names
    return NONE if ours and not left else WHOLE if left == ours else PART


def variants(one: Exhibit) -> set[str]:
    """The variants of a kernel, as its records say what is due."""
    rows = (row for state in one.states if state.record for row in state.record.get("due", ()))
    return {name for row in rows for name in row["variants"]}


def _needed(needed: Architectures) -> str:
    return escape(f"{needed}: {needed.why}" if needed.why else str(needed))


def _shown(one: Exhibit, pages: Mapping[str, str]) -> str:
    link = pages.get(one.id)
    return f"[`{one.id}`]({link})" if link else f"`{one.id}`"


def _named(skip: Skip) -> str:
    if not skip.name:
        return ""
    return escape(skip.name) + ("" if skip.name in variants(skip.exhibit) else " (peer)")
