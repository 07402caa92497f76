"""What a source file says, read without running it, and places that survive edited comments."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

INNER = re.compile(r"^[ \t]+(import|from)\b|[;:]\s*(import|from)\b", re.MULTILINE)  # an import
# What parsing may raise for a file that is no Python source; ValueError is of bytes and of NULs.
UNREADABLE = (SyntaxError, ValueError, OSError, RecursionError, MemoryError)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class ParsedModule:
    """A parsed Python file: what it defines at top level, and where."""

    path: Path
    text: str
    tree: ast.Module
    names: dict[str, int] = field(default_factory=dict)  # top-level name -> line
    functions: dict[str, ast.arguments] = field(default_factory=dict)
    imports: dict[str, int] = field(default_factory=dict)  # dotted module -> line

    def find_value(self, name: str) -> ast.expr | None:
        """What a top-level name is assigned first; None where it is not assigned."""
        for node in self.tree.body:
            targets = assigned_targets(node)
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return getattr(node, "value", None)
        return None

    @property
    def changes_path(self) -> int | None:
        """The first line that touches `sys.path`, or None."""
        if "sys" not in self.imports and "sys.path" not in self.imports:
            return None  # as nearly always: the tree is not walked
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
                return node.lineno
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "sys"
                and "path" in {alias.name for alias in node.names}
            ):
                return node.lineno
        return None

    def accepts_count(self, name: str, count: int) -> bool:
        """Whether the function `name` can be called with `count` positional arguments."""
        of = self.functions[name]
        most = len(of.posonlyargs) + len(of.args)
        keywords = any(default is None for default in of.kw_defaults)
        fits = most - len(of.defaults) <= count and (count <= most or of.vararg is not None)
        return fits and not keywords


def parse_python(path: Path) -> ParsedModule:
    """The module at `path`; one of UNREADABLE if it is no Python source."""
    return _parse_text(path, path.read_bytes().decode("utf-8-sig"))


@lru_cache(maxsize=1024)  # a helper is read for the digest of every snippet that imports it
def _parse_text(path: Path, text: str) -> ParsedModule:
    module = ParsedModule(path, text, ast.parse(text, filename=str(path)))
    for node in module.tree.body:
        for name in bound_names(node):
            module.names.setdefault(name, node.lineno)
        if isinstance(node, ast.FunctionDef):
            module.functions[node.name] = node.args
    inner: Iterable[ast.AST] = ast.walk(module.tree) if INNER.search(text) else module.tree.body
    for one in inner:
        if isinstance(one, ast.Import):
            module.imports.update((alias.name, one.lineno) for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
            names = (one.module, *(f"{one.module}.{alias.name}" for alias in one.names))
            module.imports.update(dict.fromkeys(names, one.lineno))
    return module


def assigned_targets(node: ast.stmt) -> list[ast.expr]:
    """What an assignment assigns to; nothing of another statement."""
    if isinstance(node, ast.AnnAssign):
        return [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


def bound_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines where it stands."""
    if isinstance(node, Definition):
        yield node.name
    for target in assigned_targets(node):
        yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    elif isinstance(node, ast.If | ast.Try):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt):
                yield from bound_names(inner)


def walk_imports(root: Path, path: Path) -> Iterator[ParsedModule | None]:
    """A module and those of snippets/ that it imports, or these import; None: one is no source."""
    pending, seen = [path], {path}
    while pending:
        try:
            module = parse_python(pending.pop())
        except UNREADABLE:
            yield None
            continue
        yield module
        for name in module.imports:  # of a module, a folder or something in a module
            found = root.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("snippets.") and found not in seen and found.is_file():
                seen.add(found)
                pending.append(found)


def standard_library_only(imports: Iterable[str]) -> bool:
    """Whether every import comes with Python."""
    return all(name.split(".")[0] in sys.stdlib_module_names for name in imports)


def is_string_statement(node: object) -> bool:
    """Whether it is a docstring, or another string on its own that is never read."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


# Of C++, what a compiler tells apart: a comment and any whitespace are one space, a line of the
# preprocessor is one token, since its end and the spaces in it mean something.
CPP_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl")
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


# Places in a source file that outlive its comments, its docstrings and its formatting.
#
# An anchor names what surrounds a line and counts what a compiler sees there: `softmax_one_pass+7`
# is the seventh node of that function's syntax tree, or the seventh token of that kernel in C++,
# from 0; `+7` lies outside all functions and classes. The second of one name is `name~2`.

BLOCKS = {"namespace", "struct", "class", "union", "enum", "extern"}
# Words before a parenthesis in the head of a function that do not name it.
ATTRIBUTES = {"alignas", "decltype", "noexcept", "requires", "explicit"}


@dataclass
class _Scope:
    """A function, class or whole file: its first and last line, where each of its parts starts."""

    name: str
    first: int
    last: int = 0
    starts: list[int] = field(default_factory=list)


class Anchors:
    """The anchors of the source `text`; `suffix` says its language: ".py", or one of C++, else
    ValueError. SyntaxError if it is no Python."""

    def __init__(self, text: str, suffix: str) -> None:
        scopes = [_Scope("", 1)]
        if suffix == ".py":
            _fill_scope(ast.parse(text), scopes[0], scopes)
        elif suffix in CPP_SUFFIXES:
            _fill_cpp_scopes(text, scopes)
        else:
            raise ValueError(f"{suffix or 'no suffix'}: anchors exist only for Python and C++")
        scopes[0].last = len(text.splitlines()) or 1
        self._starts: dict[str, list[int]] = {}
        self._at: dict[int, str] = {}  # by line
        count: dict[str, int] = {}
        for scope in scopes:  # an inner one comes after the one around it
            number = count[scope.name] = count.get(scope.name, 0) + 1
            name = scope.name if number == 1 else f"{scope.name}~{number}"
            self._starts[name] = starts = scope.starts or [1]
            index: dict[int, int] = {}  # of a line, the first part that starts there
            for part, start in enumerate(starts):
                index.setdefault(start, part)
            nearest = index[min(index)]
            for line in range(scope.first, scope.last + 1):
                nearest = index.get(line, nearest)
                self._at[line] = f"{name}+{nearest}"

    def anchor_at(self, line: int) -> str:
        """The anchor of a line, from 1: of what starts there, or else of the nearest before it."""
        return self._at[max(1, min(line, len(self._at)))]

    def find_line(self, anchor: str) -> int:
        """The line, from 1, of an anchor; LookupError if the text has no such place."""
        name, _, number = anchor.rpartition("+")
        starts = self._starts.get(name, [])
        if not number.isdecimal() or int(number) >= len(starts):
            raise LookupError(f"{anchor!r} is not a place in this file; run its snippet again")
        return starts[int(number)]


cached_anchors = lru_cache(maxsize=64)(Anchors)  # a kernel has many views


def _fill_scope(node: ast.AST, scope: _Scope, scopes: list[_Scope]) -> None:
    """Put `node` and what it holds into `scope`, and each scope inside into one of its own."""
    if hasattr(node, "lineno"):
        scope.starts.append(node.lineno)
    if isinstance(node, ast.JoinedStr):
        return  # where its parts lie depends on the version of Python
    decorators = node.decorator_list if isinstance(node, Definition) else []
    # Before all else, since no version of Python shall decide where among the fields they come.
    inner_nodes = (*decorators, *(n for n in ast.iter_child_nodes(node) if n not in decorators))
    for inner in inner_nodes:
        if isinstance(inner, Definition):
            first = min((inner.lineno, *(one.lineno for one in inner.decorator_list)))
            name = f"{scope.name}.{inner.name}".lstrip(".")
            scopes.append(_Scope(name, first, inner.end_lineno or first))
            _fill_scope(inner, scopes[-1], scopes)
        elif not is_string_statement(inner):
            _fill_scope(inner, scope, scopes)


def _fill_cpp_scopes(text: str, scopes: list[_Scope]) -> None:
    open_ = [scopes[0]]
    depth = 0  # of braces that open no scope, inside the innermost one
    head: list[str] = []  # since the last statement ended: what may open a scope
    inside = False  # a function, which holds no scope of its own
    for token, line in cpp_tokens(text):
        scope = open_[-1]
        scope.starts.append(line)
        opened = _opened_scope(head) if token == "{" and not inside and not depth else None
        if opened is not None:
            name, inside = opened
            cut = len(scope.starts) - len(head) - 1
            moved, scope.starts[cut:] = scope.starts[cut:], []
            scopes.append(_Scope(f"{scope.name}.{name}".lstrip("."), moved[0], starts=moved))
            open_.append(scopes[-1])
            head = []
            continue
        if token == "}" and not depth and len(open_) > 1:
            open_.pop().last = line
            head, inside = [], False
        elif not inside:
            if token == ";" and not depth:
                head = []
            elif head or not token.startswith("#"):
                head.append(token)
        depth = max(0, depth + (token == "{") - (token == "}"))
    for scope in open_[1:]:
        scope.last = scope.starts[-1]  # its brace is never closed


def _opened_scope(head: list[str]) -> tuple[str, bool] | None:
    """What a brace after `head` opens: its name, and whether it is a function; None: a value."""

    def can_name(word: str) -> bool:
        special = word in ATTRIBUTES | BLOCKS or (word.startswith("__") and word.endswith("__"))
        return word.isidentifier() and not special

    words = _strip_template([word for word in head if not word.startswith("#")])
    depth = 0
    plain: list[str] = []  # outside parentheses
    for before, word in zip(("", *words), words, strict=False):
        if not depth and word == "=" and "operator" not in plain:
            return None
        if not depth and word == "(" and ("operator" in plain or can_name(before)):
            return "operator" if "operator" in plain else before, True
        depth += (word == "(") - (word == ")")
        if not depth and word != ")":
            plain.append(word)
    if not BLOCKS.intersection(plain):
        return None
    ends = plain.index(":") if ":" in plain else len(plain)
    return next((word for word in reversed(plain[:ends]) if can_name(word)), plain[0]), False


def _strip_template(words: list[str]) -> list[str]:
    while words[:2] == ["template", "<"]:
        depth = 0
        for number, word in enumerate(words[1:], 2):
            depth += {"<": 1, ">": -1, ">>": -2}.get(word, 0)
            if depth <= 0:
                words = words[number:]
                break
        else:
            return []
    return words
