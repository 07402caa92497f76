"""Where a file of a snippet is: the line below its listing, and the copy that the site serves.

The copy lies at `sources/<id>/<file>`, the file as it is in the repository, section marks and all.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.render import explorer
from warpshelf.render.listings import Listing

FOLDER = "sources"


def explored(listing: Listing, kernels: Sequence[str] = (), calls: str = "") -> str | None:
    """The link that opens the file in Compiler Explorer, if it has something to do there.

    `kernels` are the instances that a .cu file is launched with, `calls` what calls the kernels of
    a file with Triton; a file of Python has to run by itself.
    """
    if listing.language == "cuda":
        return explorer.cuda(listing.name, listing.text, kernels)
    if listing.label == "Triton":
        return explorer.triton(listing.name, listing.text, calls) if calls.strip() else None
    return explorer.python(listing.name, listing.text)


def ways(
    snippet: str, name: str, repository: str | None, explored: str | None, arch: str = "native"
) -> str:
    """One line: the file itself, Compiler Explorer, the repository, a clone; a .cu's compiler."""
    parts = [f"[Download {name}](/{FOLDER}/{snippet}/{name}){{ download={name} }}"]
    if explored:
        parts.append(f"[open in Compiler Explorer]({explored})")
    if repository:
        parts.append(f"[in the repository]({repository}/blob/main/snippets/{snippet}/{name})")
        parts.append(f"`git clone {repository}`")
    if name.endswith(".cu"):
        parts.append(f"`nvcc -std=c++17 -arch={arch} -c {name}`")
    return f"{' · '.join(parts)}\n{{ .ws-ways }}"
