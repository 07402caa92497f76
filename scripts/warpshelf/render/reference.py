"""The reference of the tooling: what modules and their public names say of themselves.

Enters: files of Python, which are parsed and never imported. Leaves: Markdown headings, which the
contents of a page list, over HTML. Only what has a docstring is there, and no name with a `_`. The
snippets' reference, with signatures, is mkdocstrings'.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from warpshelf.core.markup import escape_prose

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def render_reference(package: Path) -> str:
    """The modules of each room of a package, and the first sentence of each public name."""
    return "\n\n".join(_render_room(path.parent) for path in sorted(package.glob("*/__init__.py")))


def _documented_nodes(nodes: Iterable[ast.stmt]) -> Iterator[tuple[Named, str]]:
    for node in nodes:
        if not isinstance(node, Named) or node.name.startswith("_"):
            continue
        if said := ast.get_docstring(node):
            yield node, said


def _render_room(folder: Path) -> str:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_bytes())) or ""
    name = f"warpshelf.{folder.name}"
    paths = sorted(folder.glob("[a-z]*.py"))
    modules = "\n".join(_render_module(path.read_bytes(), path.stem) for path in paths)
    head = f"## {name} {{ #{folder.name} .doc-heading }}"
    return f"{head}\n\n<p>{_first_sentence(said)}</p>\n\n<div>\n{modules}\n</div>"


@cache
def _render_module(source: bytes, stem: str) -> str:
    """A fold: the module's first sentence, in it those of its public names."""
    tree = ast.parse(source)
    rows = "".join(
        f"<li><code>{name}</code>: {_first_sentence(said)}</li>"
        for node, told in _documented_nodes(tree.body)
        for name, said in [
            (node.name, told),
            *(
                (f"{node.name}.{inner.name}", more)
                for inner, more in _documented_nodes(
                    node.body if isinstance(node, ast.ClassDef) else ()
                )
            ),
        ]
    )
    head = f"<code>{stem}</code>: {_first_sentence(ast.get_docstring(tree) or '')}"
    if not rows:
        return f"<p>{head}</p>"
    return f'<details class="ws-fold"><summary>{head}</summary><ul>{rows}</ul></details>'


def _first_sentence(said: str) -> str:
    """The first sentence of a docstring, as HTML."""
    text = " ".join(said.split("\n\n")[0].split())
    return escape_prose(re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0])
