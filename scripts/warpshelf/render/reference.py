"""The reference: what modules and their public names say of themselves, read from the source alone.

Enters: files of Python, which are parsed and never imported. Leaves: Markdown headings, which the
contents of a page list, over HTML. Only what has a docstring is there, and no name with a `_`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from warpshelf.core.markup import escape, preformatted, prose

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef
WIDTH = 60  # columns of a signature on one line
ALIGNED = re.compile(r"(?P<name>[^ ].{5}) {2}(?P<text>.*)", re.S)
LABELS = ("property", "cached_property", "dataclass", "staticmethod", "classmethod", "cache")


def contract(path: Path, module: str) -> str:
    """A snippet's contract, and what its public names take and say; `module` as it is imported."""
    tree = _tree(path)
    return "\n\n".join(
        (
            _heading(2, path.stem, module),
            _said(ast.get_docstring(tree) or "", "first"),
            *_members(tree, module, 3),
        )
    )


def rooms(package: Path) -> str:
    """The modules of each room of a package, and the first sentence of each public name."""
    return "\n\n".join(_room(path.parent) for path in sorted(package.glob("*/__init__.py")))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def _named(nodes: Iterable[ast.stmt]) -> Iterator[tuple[Named, str]]:
    for node in nodes:
        if not isinstance(node, Named) or node.name.startswith("_"):
            continue
        if said := ast.get_docstring(node):
            yield node, said


def _members(parent: ast.Module | ast.ClassDef, where: str, level: int) -> Iterator[str]:
    """The public names of a module or class: its classes, then the rest, as its source has them."""
    for node, said in sorted(_named(parent.body), key=lambda one: isinstance(one[0], Function)):
        here = f"{where}.{node.name}"
        labels = [label for label in LABELS if label in map(_decorator, node.decorator_list)]
        yield _heading(level, node.name, here, labels)
        if not isinstance(node, ast.ClassDef):
            call = preformatted(_signature(node, labels))
            yield f'<div class="language-python highlight doc-signature">{call}</div>'
        yield _said(said)
        if isinstance(node, ast.ClassDef):
            yield from _members(node, here, level + 1)


def _decorator(node: ast.expr) -> str:
    """The last name of a decorator, such as `dataclass`."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _heading(level: int, name: str, anchor: str, labels: Sequence[str] = ()) -> str:
    said = "".join(f" <small>{escape(label)}</small>" for label in labels)
    return f"{'#' * level} {escape(name)}{said} {{ #{anchor} .doc-heading }}"


def _signature(node: Function, labels: Sequence[str]) -> str:
    """The call with its types: on one line, else with its parameters on one, else on one each."""
    end = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if "property" in labels or "cached_property" in labels:
        return f"{node.name}: {end[4:]}" if end else node.name
    given = _parameters(node.args)
    for inner in (", ".join(given), f"\n    {', '.join(given)}\n"):
        whole = f"{node.name}({inner}){end}"
        if all(len(line) <= WIDTH for line in whole.split("\n")):
            return whole
    rows = "".join(f"    {one},\n" for one in given)
    return f"{node.name}(\n{rows}){end}"


def _parameters(args: ast.arguments) -> list[str]:
    plain = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
    found = [_parameter(*pair) for pair in zip(plain, [*missing, *args.defaults], strict=True)]
    if args.posonlyargs:
        found.insert(len(args.posonlyargs), "/")
    if args.vararg:
        found.append(f"*{_parameter(args.vararg, None)}")
    elif args.kwonlyargs:
        found.append("*")
    found += map(_parameter, args.kwonlyargs, args.kw_defaults)
    return [*found, f"**{_parameter(args.kwarg, None)}"] if args.kwarg else found


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    typed = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    if default is None:
        return typed
    return f"{typed}{' = ' if one.annotation else '='}{ast.unparse(default)}"


def _said(text: str, kind: str = "") -> str:
    """A docstring as HTML: its sections, what is laid out by columns, and prose."""
    parts = (_paragraph(one.strip("\n")) for one in text.split("\n\n") if one.strip())
    return f'<div class="doc-contents {kind}">{"".join(parts)}</div>'


def _paragraph(text: str) -> str:
    """A paragraph as it was meant.

    Sections (`Shapes  x (M, N)`: a name at column 0, text from column 8) become a list of terms, in
    which a continued line joins the one above it; what is indented is shown as it is typed.
    """
    lines = text.split("\n")
    if text.startswith("    "):
        return preformatted(text, ("ws-contract-text",))
    if not ALIGNED.match(lines[0]):
        return f"<p>{prose(text)}</p>"
    entries: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(" ") and entries:
            name, said = entries.pop()
            entries.append((name, f"{said} {line.strip()}"))
        else:
            entries.append((line[:8].strip(), line[8:]))
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{prose(said)}</dd>" for name, said in entries)
    return f'<dl class="ws-contract">{rows}</dl>'


def _room(folder: Path) -> str:
    said = ast.get_docstring(_tree(folder / "__init__.py")) or ""
    name = f"warpshelf.{folder.name}"
    modules = "\n".join(_module(path) for path in sorted(folder.glob("[a-z]*.py")))
    return f"{_heading(2, name, folder.name)}\n\n<p>{_first(said)}</p>\n\n<div>\n{modules}\n</div>"


def _module(path: Path) -> str:
    """A fold: the module's first sentence, in it those of its public names."""
    tree = _tree(path)
    rows = "".join(
        f"<li><code>{name}</code>: {_first(said)}</li>"
        for node, told in _named(tree.body)
        for name, said in [
            (node.name, told),
            *(
                (f"{node.name}.{inner.name}", more)
                for inner, more in _named(node.body if isinstance(node, ast.ClassDef) else ())
            ),
        ]
    )
    head = f"<code>{path.stem}</code>: {_first(ast.get_docstring(tree) or '')}"
    if not rows:
        return f"<p>{head}</p>"
    return f'<details class="ws-fold"><summary>{head}</summary><ul>{rows}</ul></details>'


def _first(said: str) -> str:
    """The first sentence of a docstring, as HTML."""
    text = " ".join(said.split("\n\n")[0].split())
    return prose(re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0])
