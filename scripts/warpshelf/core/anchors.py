"""The places within a page that a link may name, known without building the page.

They are the headings as Python-Markdown's table of contents names them, and every id that is
written out: `## Bytes { #bytes }` or `<p id="bytes">`. What a page includes is not looked into.
"""

from __future__ import annotations

import re
import unicodedata

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[`~]*\s*?$", re.M | re.S)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]*(?P<text>[^\n]*?)[ \t#]*$", re.M)
ATTRIBUTES = re.compile(r"[ \t]*\{:?(?P<list>[^}\n]*)\}[ \t]*$")
NAMED = re.compile(r"(?:^|\s)#(?P<id>[^\s}]+)")
WRITTEN = re.compile(r"<[a-z][^<>]*?\sid=\"(?P<id>[^\"]+)\"")
LINKED = re.compile(r"\[(?P<text>[^\]]*)\]\([^)]*\)")


def anchors(text: str) -> set[str]:
    """The anchors of the page whose Markdown is `text`."""
    plain = FENCE.sub("", text)
    found = {match["id"] for match in WRITTEN.finditer(plain)}
    for match in HEADING.finditer(plain):
        heading = match["text"]
        if listed := ATTRIBUTES.search(heading):
            heading = heading[: listed.start()]
            if named := NAMED.search(listed["list"]):
                found.add(named["id"])
                continue
        name = slug(LINKED.sub(r"\g<text>", heading))
        number = 0
        while name and (unique := f"{name}_{number}" if number else name) in found:
            number += 1
        if name:
            found.add(unique)
    return found


def slug(text: str) -> str:
    """`text` as Python-Markdown makes an anchor of it: `Bytes in flight` -> `bytes-in-flight`."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    kept = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)
