"""What the source of a snippet says, read without running it: docstring, names, local imports."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A record is bound to the code and to the method that verified and timed it. Raise this when a
# change to verify.py or timing.py changes what a verdict or a time means: every record goes stale.
METHOD = 1

IGNORED = ("results", "__pycache__")


@dataclass(frozen=True)
class Source:
    """A parsed Python file: what it defines at top level, and where."""

    path: Path
    text: str
    tree: ast.Module
    names: dict[str, int] = field(default_factory=dict)  # top-level name -> line
    functions: frozenset[str] = frozenset()
    imports: dict[str, int] = field(default_factory=dict)  # dotted module -> line

    def literal(self, name: str) -> object:
        """The value of a top-level literal.

        Raises:
            ValueError: `name` is not assigned a literal.
        """
        for node in self.tree.body:
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return ast.literal_eval(node.value)  # type: ignore[union-attr, arg-type]
        raise ValueError(f"{name} is not assigned at top level")

    @property
    def has_main(self) -> bool:
        """Whether the file runs something when run as a script."""
        return any(
            isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
            for node in self.tree.body
        )


def parse(path: Path) -> Source:
    """Read and parse `path`.

    Raises:
        SyntaxError, UnicodeDecodeError, OSError, ValueError (a NUL byte): it is no Python source.
    """
    text = path.read_bytes().decode("utf-8-sig")
    tree = ast.parse(text, filename=str(path))
    names: dict[str, int] = {}
    functions: set[str] = set()
    for node in tree.body:
        for name in _defined(node):
            names.setdefault(name, node.lineno)
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
    return Source(path, text, tree, names, frozenset(functions), dict(_imports(tree)))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    elif isinstance(node, ast.If | ast.Try):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt):
                yield from _defined(inner)


def _imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def standard_library_only(imports: Iterable[str]) -> bool:
    """Whether every import comes with Python."""
    return all(name.split(".")[0] in sys.stdlib_module_names for name in imports)


def local_files(root: Path, folder: Path) -> list[Path]:
    """Every file whose change may change what the snippet in `folder` computes.

    These are the files of the folder, and those of each local module that they import, directly
    or through another: `snippets/cuda.py` brings its neighbours `snippets/cuda.*` along, and a
    module inside another snippet's folder brings that folder.
    """
    found: dict[Path, None] = {}
    pending = list(_folder_files(folder))
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found[path] = None
        if path.suffix != ".py":
            continue
        try:
            imports = parse(path).imports
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            continue  # it still counts by its bytes
        for name in imports:
            pending.extend(_module_files(root, path.parent, name))
    return sorted(found)


def _folder_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(p in IGNORED or p.startswith(".") for p in parts):
            yield path


def _module_files(root: Path, beside: Path, name: str) -> Iterator[Path]:
    for base in (root, beside):
        module = base.joinpath(*name.split("."))
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if not path.is_file() or not path.is_relative_to(root / "snippets"):
                continue
            if path.parent == root / "snippets":
                yield from path.parent.glob(f"{path.stem}.*")
            else:
                yield from _folder_files(path.parent)


def digest(root: Path, files: Iterable[Path]) -> str:
    """`sha256:…` over the method's version and each file's path and text.

    Line ends count as one character whatever they are, so that a checkout on Windows agrees.
    """
    total = hashlib.sha256(f"method {METHOD}\n".encode())
    for path in files:
        content = path.read_bytes().replace(b"\r\n", b"\n")
        name = path.relative_to(root).as_posix()
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return f"sha256:{total.hexdigest()}"
