"""Places in a source file that outlive its comments, its docstrings and its formatting.

An anchor names what surrounds a line and counts what a compiler sees there: `softmax_one_pass+7`
is the seventh node of that function's syntax tree, or the seventh token of that kernel in C++,
from 0; `+7` lies outside all functions and classes. Both ways a text decides alone: nothing is
imported or compiled. The second of two things of one name is `name~2`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from warpshelf.contract.syntax import cpp_tokens, is_string_statement

CPP_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl")
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
    """The anchors of the source `text`; `suffix` says its language: ".py", or one of C++.

    Raises:
        SyntaxError: it is no Python.
        ValueError: the suffix is of neither language.
    """

    def __init__(self, text: str, suffix: str) -> None:
        if suffix == ".py":
            scopes = _python_scopes(text)
        elif suffix in CPP_SUFFIXES:
            scopes = _cpp_scopes(text)
        else:
            raise ValueError(f"{suffix or 'no suffix'}: anchors are of Python and C++ alone")
        scopes[0].last = len(text.splitlines()) or 1
        self._starts: dict[str, list[int]] = {}
        self._at: dict[int, str] = {}  # by line
        count: dict[str, int] = {}
        for scope in scopes:  # an inner one comes after the one around it
            number = count[scope.name] = count.get(scope.name, 0) + 1
            name = scope.name if number == 1 else f"{scope.name}~{number}"
            self._starts[name] = starts = scope.starts or [1]
            index = dict(zip(reversed(starts), reversed(range(len(starts))), strict=True))
            nearest = index[min(index)]
            for line in range(scope.first, scope.last + 1):
                nearest = index.get(line, nearest)
                self._at[line] = f"{name}+{nearest}"

    def anchor_at(self, line: int) -> str:
        """The anchor of a line, from 1: of what starts there, or else of the nearest before it."""
        return self._at[max(1, min(line, len(self._at)))]

    def find_line(self, anchor: str) -> int:
        """The line, from 1, of an anchor.

        Raises:
            LookupError: the text has no such place, so the anchor is of another.
        """
        name, _, number = anchor.rpartition("+")
        starts = self._starts.get(name, [])
        if not number.isdecimal() or int(number) >= len(starts):
            raise LookupError(f"{anchor!r} is no place of this file; run its snippet again")
        return starts[int(number)]


@lru_cache(maxsize=64)
def cached_anchors(text: str, suffix: str) -> Anchors:
    """The same, kept: a kernel has many views."""
    return Anchors(text, suffix)


def _python_scopes(text: str) -> list[_Scope]:
    scopes = [_Scope("", 1)]
    _fill_scope(ast.parse(text), scopes[0], scopes)
    return scopes


def _fill_scope(node: ast.AST, scope: _Scope, scopes: list[_Scope]) -> None:
    """Put `node` and what it holds into `scope`, and each scope inside into one of its own."""
    start = getattr(node, "lineno", None)
    if start is not None:
        scope.starts.append(start)
    for inner in _counted_children(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min((inner.lineno, *(one.lineno for one in inner.decorator_list)))
            name = f"{scope.name}.{inner.name}".lstrip(".")
            scopes.append(_Scope(name, first, inner.end_lineno or first))
            _fill_scope(inner, scopes[-1], scopes)
        else:
            _fill_scope(inner, scope, scopes)


def _counted_children(node: ast.AST) -> Iterator[ast.AST]:
    """Its children that count, in an order that no version of Python decides."""
    if isinstance(node, ast.JoinedStr):
        return  # where its parts lie depends on the version
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from node.decorator_list
    for inner in ast.iter_child_nodes(node):
        if not is_string_statement(inner) and inner not in getattr(node, "decorator_list", ()):
            yield inner


def _cpp_scopes(text: str) -> list[_Scope]:
    scopes = [_Scope("", 1)]
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
        elif token == "}" and not depth and len(open_) > 1:
            open_.pop().last = line
            head, inside = [], False
        elif not inside:
            if token == ";" and not depth:
                head = []
            elif head or not token.startswith("#"):
                head.append(token)
        if opened is None:
            depth = max(0, depth + (token == "{") - (token == "}"))
    for scope in open_[1:]:
        scope.last = scope.starts[-1]  # its brace is never closed
    return scopes


def _opened_scope(head: list[str]) -> tuple[str, bool] | None:
    """What a brace after `head` opens: its name, and whether it is a function; None: a value."""
    words = _strip_template([word for word in head if not word.startswith("#")])
    depth = 0
    plain: list[str] = []  # outside parentheses
    for number, word in enumerate(words):
        if word == "=" and not depth and "operator" not in plain:
            return None
        before = words[number - 1] if number else ""
        if word == "(" and not depth and "operator" in plain:
            return "operator", True
        if word == "(" and not depth and _is_name(before):
            return before, True
        depth += (word == "(") - (word == ")")
        if not depth and word != ")":
            plain.append(word)
    if not BLOCKS.intersection(plain):
        return None
    ends = plain.index(":") if ":" in plain else len(plain)
    return next((word for word in reversed(plain[:ends]) if _is_name(word)), plain[0]), False


def _is_name(word: str) -> bool:
    attribute = word in ATTRIBUTES or (word.startswith("__") and word.endswith("__"))
    return word.isidentifier() and not attribute and word not in BLOCKS


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
