"""What the language of a snippet's kernels asks of a GPU by itself, beside what NEEDS says.

The parsed module of a snippet enters; an entry such as NEEDS has it leaves, or none. It stands here
once, so that thirty snippets need not say the same, and a new one is known to need it.

Triton names SM 80 as the least that it supports (its README, "Supported Hardware"). What it still
compiles for SM 75 was looked at with 3.7: kernels without products of tiles pass; those with
`tl.dot` have no matrix instructions there since 3.3 (triton-lang/triton, pull request 5066) and
are spelled out in scalar products, which takes minutes to compile and may not fit; Gluon's layouts
name instructions that LLVM cannot select there, which ends the process.
"""

from __future__ import annotations

import re
from pathlib import Path

from warpshelf.contract import syntax
from warpshelf.contract.syntax import Parsed

LEAST = 80
TILES = {"sm": f">={LEAST}", "why": "Triton multiplies tiles from there on"}
GLUON = {"sm": f">={LEAST}", "why": "Gluon compiles from there on"}
PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")


def of(root: Path, parsed: Parsed) -> dict[str, str] | None:
    """The need that the language of a snippet brings, itself and through others of snippets/."""
    pending, seen = [parsed], {parsed.path}
    while pending:
        one = pending.pop()
        if any(name.startswith("triton.experimental.gluon") for name in one.imports):
            return dict(GLUON)
        if PRODUCT.search(one.text):
            return dict(TILES)
        for name in one.imports:
            path = root.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("snippets.") and path.is_file() and path not in seen:
                seen.add(path)
                try:
                    pending.append(syntax.parse(path))
                except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
                    continue
    return None
