"""What the text of a source file comes to: hashes of what it defines, and what each part uses.

Comments, docstrings and formatting have no part in it: Python counts by its syntax tree, C++ by its
tokens, any other file by its bytes. A hash is the same under every version of Python. What a text
comes to is kept in `.shelf/sources.jsonl` by what it holds, so that a file is parsed once.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from warpshelf.contract.syntax import (
    CPP_SUFFIXES,
    Definition,
    bound_names,
    cpp_tokens,
    is_string_statement,
)

# By these a file can tell its comments, docstrings or lines: then it counts by its bytes.
TELLTALE = re.compile(r"__doc__|\bgetdoc\b|\bgetsource|\bgetcomments\b|\b(co_first|[ft]b?_)lineno")
CPP_TELLTALE = re.compile(r"__LINE__|^\s*#\s*define\b.*[^#\n]#\s*[A-Za-z_]", re.MULTILINE)
PLACES = {"__file__", "__path__", "__spec__", "__loader__", "importlib", "inspect", "pkgutil"}
DYNAMIC = {"globals", "eval", "exec", "__import__"}
NAMED = re.compile(r"snippets(\.\w+)+")
FOREIGN = {*sys.stdlib_module_names, "torch", "triton", "numpy"}
MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop",
    "popleft", "popitem", "remove", "reverse", "setdefault", "sort", "update",
}  # fmt: skip
# What a part may use beside dotted names of other modules and, as `:name`, its own module's.
ALL = ":*"  # all of its own module, since what it uses cannot be told
NEAR = ":/"  # files beside its module
KEPT = Path(".shelf") / "sources.jsonl"
LARGEST = 16 * 2**20  # bytes, after which what is kept is begun anew


class Part(NamedTuple):
    """One definition, by its name, or all statements that are none."""

    hash: str = ""
    uses: Sequence[str] = ()


class SourceDigest(NamedTuple):
    """What the text of one file comes to.

    `literal` holds where it can tell its own comments and lines. A module that is imported does
    `rest` and, of `parts` and of the names that it `imports`, counts what is used; run as a script,
    it does `script` as well. `reads` has the snippets whose records it asks for.
    """

    whole: str
    literal: bool = False
    parts: Mapping[str, Part] = MappingProxyType({})
    imports: Mapping[str, Part] = MappingProxyType({})
    rest: Part = Part()
    script: Part = Part()
    reads: Sequence[str] = ()

    def all_uses(self) -> set[str]:
        """All that its parts use as it is imported."""
        return {use for part in (self.rest, *self.parts.values()) for use in part.uses}


def digest_source(root: Path, content: bytes, suffix: str) -> SourceDigest:
    """What a file of the checkout at `root` comes to, from what was kept if it holds the same."""
    content = content.replace(b"\r\n", b"\n")
    if suffix != ".py" and suffix not in CPP_SUFFIXES:
        return SourceDigest(hashlib.sha256(content).hexdigest())
    kept = cached_sources(root)
    name = hashlib.sha256(f"{_rules_version()}{suffix}\0".encode() + content).hexdigest()
    if name not in kept:
        made = kept[name] = _analyze_content(content, suffix)
        plain = made._replace(parts=dict(made.parts), imports=dict(made.imports))
        line = json.dumps([name, plain], separators=(",", ":")) + "\n"
        path = root / KEPT
        with suppress(OSError):  # a checkout that cannot be written to parses again
            path.parent.mkdir(exist_ok=True)
            large = path.is_file() and path.stat().st_size > LARGEST
            with path.open("wb" if large else "ab", buffering=0) as file:
                file.write(line.encode())  # at once, as several may write
    return kept[name]


@cache
def _rules_version() -> str:
    """Which of these rules hold: what was made by others is not what is kept."""
    own = (Path(__file__), Path(__file__).with_name("syntax.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in own)).hexdigest()


@cache
def cached_sources(root: Path) -> dict[str, SourceDigest]:
    """What was kept in the checkout at `root`, by what the files hold."""
    found: dict[str, SourceDigest] = {}
    lines: list[bytes] = []
    with suppress(OSError):
        lines = (root / KEPT).read_bytes().splitlines()
    for line in lines:
        with suppress(ValueError, TypeError, AttributeError):  # a line that was cut off
            name, (whole, literal, *parts, rest, script, reads) = json.loads(line)
            defined, imports = ({key: Part(*part) for key, part in one.items()} for one in parts)
            own = (defined, imports, Part(*rest), Part(*script))
            found[name] = SourceDigest(whole, literal, *own, reads)
    return found


def _analyze_content(content: bytes, suffix: str) -> SourceDigest:
    by_bytes = SourceDigest(_hash_text(content.decode("latin-1")))
    try:
        text = content.decode("utf-8-sig")
        if suffix == ".py":
            told = TELLTALE.search(text)
            return by_bytes._replace(literal=True) if told else _digest_module(ast.parse(text))
        if CPP_TELLTALE.search(text):
            return by_bytes
        return SourceDigest(_hash_text("\n".join(token for token, _ in cpp_tokens(text))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return by_bytes  # it is no source


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _digest_module(tree: ast.Module) -> SourceDigest:
    """A module's statements, by what they define, and what its names stand for."""
    bound: dict[str, set[str]] = {}  # a name that is imported -> what it stands for
    parts: dict[str, list[_Statement]] = {}
    rest: list[_Statement] = []
    script: list[_Statement] = []
    body = [
        _Statement(node)
        for node in tree.body
        if not is_string_statement(node) and not isinstance(node, ast.Pass)
    ]
    for said in body:
        node, names = said.node, _defined_names(said.node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            _bind_imports(bound, [node])
        elif isinstance(node, ast.If) and ("__name__",) in map(
            _attribute_chain, ast.walk(node.test)
        ):
            script.append(said)
        elif not names:
            rest.append(said)
        for name in names:
            parts.setdefault(name, []).append(said)
    # `@attention.register_fake` makes a definition a part of `attention` too.
    for said in body:
        for decorator in getattr(said.node, "decorator_list", ()):
            for name, *more in filter(None, map(_attribute_chain, ast.walk(decorator))):
                if more and name in parts:
                    parts[name].append(said)
                elif any(target.startswith("snippets.") for target in bound.get(name, ())):
                    rest.append(said)
    by_rest = {name for said in rest for name in bound_names(said.node)}
    _bind_imports(bound, (node for said in rest for node in said.imports))
    known = {*parts, *by_rest}

    def make_part(statements: list[_Statement]) -> Part:
        uses = sorted({use for said in statements for use in said.find_uses(bound, known)})
        told = (use for use in uses if not use.startswith(":"))
        whole = "\n".join((*(said.text for said in statements), *told))
        return Part(_hash_text(whole) if statements else "", uses)

    made = {name: make_part(said) for name, said in parts.items()}
    does, runs = make_part(rest), make_part(script)
    used = {f"{use}." for part in (does, runs, *made.values()) for use in part.uses}
    more = []
    for said in body:
        for target in (target for node in said.imports for target in _imported_names(node)):
            if not any(use.startswith(f"{target}.") for use in used):
                more.append(target)  # nothing uses it: it is there for what it does
            if said.node in said.imports:
                more.append(f"{target}!")
    more += [ALL] if "__getattr__" in made else []
    for name in {name for said in body for name in said.touched} & known:
        part = made.get(name, Part())
        made[name] = Part(part.hash, [*part.uses, ALL])
    imports = {
        name: _drop_foreign(_hash_text(f"import {sorted(targets)}"), sorted(targets))
        for name, targets in bound.items()
    }
    return SourceDigest(
        whole=_hash_text("\n".join(said.text for said in body)),
        parts={**dict.fromkeys(by_rest, Part()), **{k: _drop_foreign(*p) for k, p in made.items()}},
        imports=imports,
        rest=_drop_foreign(does.hash, [*does.uses, *more]),
        script=_drop_foreign(*runs),
        reads=_record_names([said.node for said in parts.get("NEEDS", [])]),
    )


def _drop_foreign(hash_: str, uses: Sequence[str]) -> Part:
    """Without what is surely no module of ours: it counts in the hash of what uses it."""
    return Part(hash_, [use for use in uses if use.split(".")[0] not in FOREIGN])


def _record_names(nodes: list[ast.stmt]) -> list[str]:
    """The snippets that NEEDS names under "records"."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            with suppress(ValueError, TypeError):  # malformed, which is told elsewhere
                needs = ast.literal_eval(node.value)
                names = needs.get("records") if isinstance(needs, dict) else ()
                return [n for n in names if isinstance(n, str)] if type(names) is list else []
    return []


def _defined_names(node: ast.stmt) -> list[str]:
    """What a statement defines, if it does that alone."""
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
        names = [one.id for one in flat if isinstance(one, ast.Name)]
        return names if len(names) == len(flat) else []
    return []


def _imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """What an import names: modules, or names in them, with a dot for each level up."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = "." * node.level + (f"{node.module}." if node.module else "")
    return [base[:-1] if alias.name == "*" else f"{base}{alias.name}" for alias in node.names]


def _bind_imports(bound: dict[str, set[str]], nodes: Iterable[ast.Import | ast.ImportFrom]) -> None:
    """Add the names that imports bind, with what each stands for."""
    for node in nodes:
        for alias, target in zip(node.names, _imported_names(node), strict=True):
            if isinstance(node, ast.Import) and not alias.asname:
                target = target.split(".")[0]
                bound.setdefault(target, set()).add(target)
            else:
                bound.setdefault(alias.asname or alias.name, set()).add(target)


class _Statement:
    """What a statement says, in one text that holds under every version of Python.

    `chains` are the names that it reads or sets, each with the attributes that follow on it;
    `touched` those whose values it may change where they are, or set from within a function.
    """

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.chains: set[tuple[str, ...]] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.named: set[str] = set()  # modules, in texts
        self.touched: set[str] = set()
        out: list[str] = []
        self._write_node(node, out)
        self.text = "".join(out)

    def find_uses(self, bound: Mapping[str, set[str]], known: Container[str]) -> Iterator[str]:
        """What it uses, in a module whose imports are `bound` and that itself defines `known`."""
        own: dict[str, set[str]] = {}
        _bind_imports(own, self.imports)
        yield from (f"{target}!" for node in self.imports for target in _imported_names(node))
        yield from self.named
        for name, *rest in self.chains:
            targets = own.get(name, set()) | bound.get(name, set())
            yield from (".".join((target, *rest)) for target in targets)
            if name in known:
                yield f":{name}"
            if name in DYNAMIC or (name == "sys" and rest[:1] == ["modules"]):
                yield ALL
            if PLACES.intersection((name, *rest, *targets)):
                yield NEAR

    def _write_node(self, value: object, out: list[str]) -> None:
        if isinstance(value, ast.Constant):
            out.append(f"{type(value.value).__name__} {value.value!a};")
            if isinstance(value.value, str) and NAMED.fullmatch(value.value):
                self.named.add(value.value)  # to be imported, it may be
        elif isinstance(value, ast.AST):
            self._note_effects(value)
            if chain := _attribute_chain(value):
                self.chains.add(chain)
                out.append(f"{'.'.join(chain)};")
                return
            out.append(f"{type(value).__name__}(")
            for name in value._fields:
                inner = getattr(value, name, None)
                if name in ("ctx", "kind", "type_comment") or inner is None or inner == []:
                    continue  # a version may leave it out, or have a field more
                if isinstance(value, ast.JoinedStr):
                    inner = _join_texts(value.values)
                out.append(f"{name}=")
                self._write_node(inner, out)
            out.append(")")
        elif isinstance(value, list):
            out.append("[")
            for inner in value:
                if not (is_string_statement(inner) or isinstance(inner, ast.Pass)):
                    self._write_node(inner, out)
                    out.append(",")
            out.append("]")
        else:
            out.append(f"{value!a}")

    def _note_effects(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
        elif isinstance(node, ast.Global):
            self.touched.update(node.names)
            self.chains.update((name,) for name in node.names)
        changed: ast.AST | None = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(node, ast.Subscript | ast.Attribute) and (
            not isinstance(node.ctx, ast.Load) or getattr(node, "attr", None) in MUTATORS
        ):
            changed = node
        while isinstance(changed, ast.Subscript | ast.Attribute):
            changed = changed.value
        if changed is not None:
            self.touched.add(changed.id if isinstance(changed, ast.Name) else "")


def _attribute_chain(node: ast.AST) -> tuple[str, ...]:
    rest: list[str] = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    return (node.id, *reversed(rest)) if isinstance(node, ast.Name) else ()


def _join_texts(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string, text that stands side by side as one: versions part it unlike."""
    parts: list[ast.expr] = []
    for value in values:
        last = parts[-1] if parts else None
        if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
            parts[-1] = ast.Constant(f"{last.value!s}{value.value!s}")
        elif not isinstance(value, ast.Constant) or value.value:
            parts.append(value)
    return parts
