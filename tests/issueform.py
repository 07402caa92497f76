"""A filled-in form for a link, as GitHub writes it, and what stands in a text told to GitHub."""

from __future__ import annotations

from bookcase import FIELDS, URL
from markdown_it import MarkdownIt

from warpshelf.edit.forms import LABELS

TICKED = "- [x] The title is the work's own, and the why is in words of my own."
BASIC = {"url": URL, "topic": "kernels/softmax", **FIELDS, "your own words": TICKED}


def written(given: dict[str, str]) -> str:
    """The text that GitHub makes of answers."""
    return "\n\n".join(f"### {label}\n\n{given.get(label) or '_No response_'}" for label in LABELS)


def parts(text: str) -> tuple[list[str], str]:
    """What stands in the code blocks of a Markdown text, and the text around them."""
    tokens = MarkdownIt("commonmark").parse(text)
    blocks = [token.content for token in tokens if token.type == "fence"]
    around = "\n".join(token.content for token in tokens if token.type == "inline")
    kinds = {token.type for token in tokens}
    assert kinds <= {"fence", "inline", "paragraph_open", "paragraph_close"}
    return blocks, around
