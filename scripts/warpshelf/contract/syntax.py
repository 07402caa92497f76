"""What a source file says, read without running it: names, functions, imports, tokens of C++."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

INNER = re.compile(r"^[ \t]+(import|from)\b|[;:]\s*(import|from)\b", re.MULTILINE)  # an import


@dataclass(frozen=True)
class ParsedModule:
    """A parsed Python file: what it defines at top level, and where."""

    path: Path
    text: str
    tree: ast.Module
    names: dict[str, int] = field(default_factory=dict)  # top-level name -> line
    functions: dict[str, ast.arguments] = field(default_factory=dict)
    imports: dict[str, int] = field(default_factory=dict)  # dotted module -> line

    def read_literal(self, name: str) -> object:
        """The value of a top-level literal.

        Raises:
            ValueError: `name` is not assigned a literal.
        """
        for node in self.tree.body:
            targets: list[ast.expr] = []
            value: ast.expr | None = None
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign):
                targets, value = [node.target], node.value
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return None if value is None else ast.literal_eval(value)
        raise ValueError(f"{name} is not assigned at top level")

    @property
    def docstring(self) -> str:
        """The module's docstring, "" where it has none."""
        return ast.get_docstring(self.tree) or ""

    @property
    def has_main(self) -> bool:
        """Whether the file runs something when run as a script."""
        return any(
            isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
            for node in self.tree.body
        )

    @property
    def changes_path(self) -> int | None:
        """The first line that touches `sys.path`, or None."""
        if "sys" not in self.imports and "sys.path" not in self.imports:
            return None  # as nearly always: the tree is not walked
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
                return node.lineno
            names = node.names if isinstance(node, ast.ImportFrom) and node.module == "sys" else []
            if any(alias.name == "path" for alias in names):
                return names[0].lineno
        return None

    def accepts_count(self, name: str, count: int) -> bool:
        """Whether the function `name` can be called with `count` positional arguments."""
        of = self.functions[name]
        most = len(of.posonlyargs) + len(of.args)
        needed = most - len(of.defaults)
        keywords = any(default is None for default in of.kw_defaults)
        return needed <= count and (count <= most or of.vararg is not None) and not keywords


def parse_python(path: Path) -> ParsedModule:
    """Read and parse `path`.

    Raises:
        SyntaxError, UnicodeDecodeError, OSError, ValueError (a NUL byte): it is no Python source.
    """
    return _parse_text(path, path.read_bytes().decode("utf-8-sig"))


@lru_cache(maxsize=1024)  # a helper is read for the digest of every snippet that imports it
def _parse_text(path: Path, text: str) -> ParsedModule:
    tree = ast.parse(text, filename=str(path))
    names: dict[str, int] = {}
    functions: dict[str, ast.arguments] = {}
    for node in tree.body:
        for name in bound_names(node):
            names.setdefault(name, node.lineno)
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node.args
    inner = ast.walk(tree) if INNER.search(text) else tree.body
    return ParsedModule(path, text, tree, names, functions, dict(_iter_imports(inner)))


def bound_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines where it stands."""
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
                yield from bound_names(inner)


def _iter_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def standard_library_only(imports: Iterable[str]) -> bool:
    """Whether every import comes with Python."""
    return all(name.split(".")[0] in sys.stdlib_module_names for name in imports)


def uses_stdlib_only(root: Path, parsed: ParsedModule) -> bool:
    """Whether it imports Python's own library alone, itself and through others of snippets/."""
    pending, seen = [parsed.path], {parsed.path}
    while pending:
        try:
            imports = parse_python(pending.pop()).imports
        except (SyntaxError, ValueError, OSError):
            return False
        ours = [name for name in imports if name.split(".")[0] == "snippets"]
        if not standard_library_only(imports.keys() - set(ours)):
            return False
        for name in ours:  # of a module, a folder or something in a module
            path = root.joinpath(*name.split(".")).with_suffix(".py")
            if path.is_file() and path not in seen:
                seen.add(path)
                pending.append(path)
    return True


def long_lines(text: str, columns: int) -> Iterator[tuple[int, int]]:
    """The number and the length of each line of `text` that is wider than `columns`."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > columns:
            yield number, len(line)


# Of C++, what a compiler tells apart: a comment and any whitespace are one space, a line of the
# preprocessor is one token, since its end and the spaces in it mean something.
CPP = re.compile(
    r"""(?P<space>\s+|\\\n|//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
    |(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
    |\.?\d(?:[eEpP][+-]|'\w|[\w.])*
    |[A-Za-z_$][\w$]*
    |\.\.\.|<=>|->\*|<<=|>>=|->|::|\.\*|\+\+|--|<<|>>|&&|\|\||\#\#|[-+*/%^&|=!<>]=|.""",
    re.DOTALL | re.VERBOSE,
)


def cpp_tokens(text: str) -> Iterator[tuple[str, int]]:
    """Each token of C++ source without its comments, and the line on which it starts."""
    line, first = 1, True  # on its line
    directive, begun = "", 0
    for match in CPP.finditer(text.removeprefix("\ufeff").replace("\r\n", "\n")):
        token, blank = match[0], match["space"] is not None
        ends = blank and token.isspace() and "\n" in token
        if directive and ends:
            yield directive.rstrip(), begun
            directive = ""
        elif directive:
            glued = directive[-1] in " #"
            directive += token if not blank else "" if glued else " "
        elif token == "#" and first:
            directive, begun = token, line
        elif not blank:
            yield token, line
        first = ends or (first and blank)
        line += token.count("\n")
    if directive:
        yield directive.rstrip(), begun


def is_string_statement(node: ast.AST) -> bool:
    """Whether it is a docstring, or another string that stands alone and is never read."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
