"""Projects with readings: a small one to add to, and a made-up shelf of any size."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt

from warpshelf.edit.add_reading import AddedReading, NewReading
from warpshelf.edit.forms import LABELS

# A small project to add readings to: three pages, one list, two snippets.
#
# And a filled-in form for a link, as GitHub writes it, and what stands in a text told to GitHub.

FIRST = """\
# Softmax, and what surrounds it.
- id: online-softmax
  title: "Online normalizer calculation for softmax"   # as in the paper
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  why: 'Shows that one pass is enough.'
"""
URL = "https://example.org/a-post"
FIELDS = {"title": "How a GPU waits", "kind": "post", "why": "Says what a warp waits for."}


def make_project(root: Path) -> Path:
    """Write the project below `root`, which exists."""
    docs = root / "docs" / "kernels"
    docs.mkdir(parents=True)
    for name in ("softmax", "gemm"):
        (docs / f"{name}.md").write_text(f'# {name}\n\n--8<-- "readings/kernels/{name}.md"\n')
    (docs / "softmax.yml").write_text(FIRST, encoding="utf-8")
    (docs / "plain.md").write_text("# Plain\n")
    (root / "mkdocs.yml").write_text("site_name: Bookcase\n")
    for name in ("softmax", "stream"):
        (root / "snippets" / name).mkdir(parents=True)
        (root / "snippets" / name / f"{name}.py").write_text('"""x"""\n')
    return root


def add_entry(root: Path, topic: str, url: str, **more: Any) -> AddedReading:
    """Add one reading: `NewReading.add_entry` with `more`."""
    return NewReading(root, topic, url).add_entry(**more)


def read_list(root: Path, name: str = "softmax") -> str:
    """The text of a list, line ends as they are."""
    return (root / f"docs/kernels/{name}.yml").read_bytes().decode("utf-8")


def read_files(root: Path) -> dict[Path, bytes]:
    """Every file below `root`: to see that nothing was written."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


TICKED = "- [x] The title is the work's own, and the why is in words of my own."
BASIC = {"url": URL, "topic": "kernels/softmax", **FIELDS, "your own words": TICKED}


def format_answers(given: dict[str, str]) -> str:
    """The text that GitHub makes of answers."""
    return "\n\n".join(f"### {label}\n\n{given.get(label) or '_No response_'}" for label in LABELS)


def split_code(text: str) -> tuple[list[str], str]:
    """What stands in the code blocks of a Markdown text, and the text around them."""
    tokens = MarkdownIt("commonmark").parse(text)
    blocks = [token.content for token in tokens if token.type == "fence"]
    around = "\n".join(token.content for token in tokens if token.type == "inline")
    kinds = {token.type for token in tokens}
    assert kinds <= {"fence", "inline", "paragraph_open", "paragraph_close"}
    return blocks, around


# A made-up shelf of any size, written as the lists and pages of a project.

ROOT = Path(__file__).resolve().parents[2]

NOUNS = (
    "attention", "bandwidth", "barrier", "block", "cache", "checkpoint", "collective", "compiler",
    "convolution", "core", "fusion", "gather", "gradient", "interconnect", "kernel", "latency",
    "launch", "layout", "lookahead", "matrix", "memory", "mesh", "model", "normalizer",
    "occupancy", "operand", "optimizer", "parallelism", "pipeline", "precision", "predictor",
    "profiler", "rank", "reduction", "register", "roofline", "scaling", "schedule", "shard",
    "shuffle", "softmax", "sparsity", "stencil", "stream", "swizzle", "tensor", "tile", "token",
    "tracer", "transformer", "tuner", "warp", "window",
)  # fmt: skip
VERBS = ("bounds", "hides", "measures", "moves", "overlaps", "predicts", "reorders", "saves")
KINDS = ("paper", "post", "talk", "code", "docs", "course", "book", "tool", "site")
LEVELS = ("beginner", "intermediate", "advanced")
FAMILIES = ("Abe", "Brandt", "Chen", "Diaz", "Eriksen", "Fischer", "Gupta", "Haddad", "Ito")
TAGS = [f"{first}-{second}" for first in NOUNS[:20] for second in NOUNS[20:40]]


def format_entry(number: int, chance: random.Random) -> str:
    """One entry of a list, with every part that an entry commonly has."""
    noun = chance.choice
    title = f"{noun(NOUNS).capitalize()} and {noun(NOUNS)} of a {noun(NOUNS)} {noun(NOUNS)}"
    lines = [f"- id: work-{number}", f"  title: {title}, part {number}"]
    if number % 17 == 0:
        lines[1] = f"  title: 第{number}部分"
        lines.append(f"  title_en: {title}, part {number}")
    lines += [f"  url: https://arxiv.org/abs/{1000 + number // 90000:04}.{10000 + number % 90000}"]
    lines += [f"  kind: {noun(KINDS)}"]
    people = [f"{noun('ABCDEFGH')}. {noun(FAMILIES)} {place}" for place in range(number % 5)]
    if people:
        lines.append(f"  authors: [{', '.join(people)}]")
    if number % 9:
        lines.append(f"  year: {2005 + number % 20}")
    lines.append("  venue: Proceedings of Imaginary Machines")
    why = " ".join(f"The {noun(NOUNS)} {noun(VERBS)} the {noun(NOUNS)}." for _ in range(5))
    lines.append(f"  why: {why}")
    if number % 3 == 0:
        lines.append(f"  rating: {1 + number % 4}")
    lines.append(f"  level: {noun(LEVELS)}")
    if number % 17 == 0:
        lines.append("  lang: zh")
    lines.append(f"  tags: [{', '.join(sorted(chance.sample(TAGS, 4)))}]")
    if number > 10 and number % 4 == 0:
        needs = sorted({chance.randrange(number) for _ in range(2)})
        lines.append(f"  needs: [{', '.join(f'work-{need}' for need in needs)}]")
    if number % 6 == 0:
        lines.append(f"  also:\n    - what: code\n      url: https://example.org/code/{number}")
    lines.append(f'  added: "2026-{1 + number % 9:02}-{1 + number % 27:02}"')
    return "\n".join(lines) + "\n"


def write_shelf(root: Path, readings: int, topics: int) -> None:
    """A project: lists and pages in five parts, a page of all readings, and the site's settings."""
    for name in ("assets", "overrides/theme"):
        shutil.copytree(ROOT / "docs" / name, root / "docs" / name)
    (root / "snippets").mkdir()
    (root / "mkdocs.yml").write_text(read_site_settings(), encoding="utf-8")
    chance = random.Random(1)
    for topic in range(topics):
        where = root / "docs" / f"part-{topic % 5}" / f"topic-{topic:03}"
        where.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(topic * readings // topics, (topic + 1) * readings // topics)
        entries = "\n".join(format_entry(number, chance) for number in numbers)
        where.with_suffix(".yml").write_text(entries, encoding="utf-8")
        include = f'--8<-- "readings/part-{topic % 5}/topic-{topic:03}.md"'
        page = f"# Topic {topic:03}\n\nWhat it is about.\n\n## Readings\n\n{include}\n\nThe end.\n"
        where.with_suffix(".md").write_text(page, encoding="utf-8")
    (root / "docs" / "index.md").write_text("# Home\n", encoding="utf-8")
    everything = '# All readings\n\n--8<-- "readings/every.md"\n'
    front = "---\nhide: [navigation, toc]\nsearch: {exclude: true}\n---\n\n"
    (root / "docs" / "everything.md").write_text(front + everything, encoding="utf-8")


def read_site_settings() -> str:
    """This site's mkdocs.yml, without its navigation, its glossary and the reference of modules."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    del site["nav"], site["INHERIT"]
    site["plugins"] = ["search", "tags"]
    return yaml.safe_dump(site)
