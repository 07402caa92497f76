"""A small project to add readings to: three pages, one list, two snippets.

And a filled-in form for a link, as GitHub writes it, and what stands in a text told to GitHub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from warpshelf.edit.add_reading import AddedReading, NewReading
from warpshelf.edit.forms import LABELS

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
