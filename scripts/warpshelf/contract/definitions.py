"""What the text of a source file comes to: hashes of what it defines, and what each part uses.

Comments, docstrings and formatting have no part in it: Python counts by its syntax tree, C++ by its
tokens, any other file by its bytes. A hash is the same under every version of Python. What a text
comes to is kept in `.shelf/sources.jsonl` by what it holds, so that a file is parsed once.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from warpshelf.contract.syntax import bound_names, cpp_tokens, is_string_statement

CPP_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl")
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
        _cache_source(root, name, made)
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
    try:
        lines = (root / KEPT).read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            name, value = json.loads(line)
            whole, literal, *parts, rest, script, reads = value
            defined, imports = ({key: Part(*part) for key, part in one.items()} for one in parts)
            found[name] = SourceDigest(
                whole, literal, defined, imports, Part(*rest), Part(*script), reads
            )
        except (ValueError, TypeError, AttributeError):
            continue  # a line that was cut off
    return found


def _cache_source(root: Path, name: str, made: SourceDigest) -> None:
    path = root / KEPT
    plain = made._replace(parts=dict(made.parts), imports=dict(made.imports))
    line = json.dumps([name, plain], separators=(",", ":")) + "\n"
    try:
        path.parent.mkdir(exist_ok=True)
        large = path.is_file() and path.stat().st_size > LARGEST
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if large else os.O_APPEND)
        handle = os.open(path, flags, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
    except OSError:
        pass  # a checkout that cannot be written to parses again


def _analyze_content(content: bytes, suffix: str) -> SourceDigest:
    by_bytes = SourceDigest(_hash_text(content.decode("latin-1")), literal=True)
    try:
        text = content.decode("utf-8-sig")
        if suffix != ".py":
            if CPP_TELLTALE.search(text):
                return SourceDigest(by_bytes.whole)
            return SourceDigest(_hash_text("\n".join(token for token, _ in cpp_tokens(text))))
        return by_bytes if TELLTALE.search(text) else _Module(ast.parse(text)).build_digest()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return SourceDigest(by_bytes.whole)  # it is no source


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Module:
    """A module's statements, by what they define, and what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: dict[str, set[str]] = {}  # a name that is imported -> what it stands for
        self.body: list[_Statement] = []
        self.parts: dict[str, list[_Statement]] = {}
        self.rest: list[_Statement] = []
        self.script: list[_Statement] = []
        for node in tree.body:
            if is_string_statement(node) or isinstance(node, ast.Pass):
                continue
            said, names = _Statement(node), _defined_names(node)
            self.body.append(said)
            if isinstance(node, ast.Import | ast.ImportFrom):
                _bind_imports(self.bound, node)
            elif isinstance(node, ast.If) and ("__name__",) in map(
                _attribute_chain, ast.walk(node.test)
            ):
                self.script.append(said)
            elif not names:
                self.rest.append(said)
            for name in names:
                self.parts.setdefault(name, []).append(said)
        for said in self.body:
            self._attach_decorated(said)
        self.by_rest = {name for said in self.rest for name in bound_names(said.node)}
        for node in (node for said in self.rest for node in said.imports):
            _bind_imports(self.bound, node)
        self.known = {*self.parts, *self.by_rest}

    def _attach_decorated(self, said: _Statement) -> None:
        """`@attention.register_fake` makes a definition a part of `attention` too."""
        for decorator in getattr(said.node, "decorator_list", ()):
            for name, *rest in filter(None, map(_attribute_chain, ast.walk(decorator))):
                if rest and name in self.parts:
                    self.parts[name].append(said)
                elif any(target.startswith("snippets.") for target in self.bound.get(name, ())):
                    self.rest.append(said)

    def build_digest(self) -> SourceDigest:
        """All of it."""
        parts = {name: self._make_part(said) for name, said in self.parts.items()}
        rest, script = self._make_part(self.rest), self._make_part(self.script)
        used = {f"{use}." for part in (rest, script, *parts.values()) for use in part.uses}
        does = [*rest.uses]
        for said in self.body:
            for target in (target for node in said.imports for target in _imported_names(node)):
                if not any(use.startswith(f"{target}.") for use in used):
                    does.append(target)  # nothing uses it: it is there for what it does
                if said.node in said.imports:
                    does.append(f"{target}!")
        if "__getattr__" in parts:
            does.append(ALL)
        for name in {name for said in self.body for name in said.touched} & self.known:
            part = parts.get(name, Part())
            parts[name] = Part(part.hash, [*part.uses, ALL])
        imports = {
            name: Part(_hash_text(f"import {sorted(targets)}"), sorted(targets))
            for name, targets in self.bound.items()
        }
        needs = [said.node for said in self.parts.get("NEEDS", [])]
        return SourceDigest(
            whole=_hash_text("\n".join(said.text for said in self.body)),
            parts={**dict.fromkeys(self.by_rest, Part()), **_drop_foreign(parts)},
            imports=_drop_foreign(imports),
            rest=_drop_foreign({"": Part(rest.hash, does)})[""],
            script=_drop_foreign({"": script})[""],
            reads=_record_names(needs),
        )

    def _make_part(self, statements: list[_Statement]) -> Part:
        uses = sorted({use for said in statements for use in self._find_uses(said)})
        told = (use for use in uses if not use.startswith(":"))
        whole = "\n".join((*(said.text for said in statements), *told))
        return Part(_hash_text(whole) if statements else "", uses)

    def _find_uses(self, said: _Statement) -> Iterator[str]:
        own: dict[str, set[str]] = {}
        for node in said.imports:
            _bind_imports(own, node)
            yield from (f"{target}!" for target in _imported_names(node))
        yield from said.named
        for name, *rest in said.chains:
            targets = own.get(name, set()) | self.bound.get(name, set())
            yield from (".".join((target, *rest)) for target in targets)
            if name in self.known:
                yield f":{name}"
            if name in DYNAMIC or (name == "sys" and rest[:1] == ["modules"]):
                yield ALL
            if PLACES.intersection((name, *rest, *targets)):
                yield NEAR


def _drop_foreign(parts: dict[str, Part]) -> dict[str, Part]:
    """Without what is surely no module of ours: it counts in the hash of what uses it."""
    return {
        name: Part(part.hash, [use for use in part.uses if use.split(".")[0] not in FOREIGN])
        for name, part in parts.items()
    }


def _record_names(nodes: list[ast.stmt]) -> list[str]:
    """The snippets that NEEDS names under "records"."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            try:
                needs = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                continue  # malformed, which is told elsewhere
            names = needs.get("records", ()) if isinstance(needs, dict) else ()
            return [one for one in names if isinstance(one, str)] if type(names) is list else []
    return []


def _defined_names(node: ast.stmt) -> list[str]:
    """What a statement defines, if it does that alone."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
        if all(isinstance(one, ast.Name) for one in flat):
            return [name for one in flat for name in _attribute_chain(one)]
    return []


def _imported_names(node: ast.AST) -> Iterator[str]:
    """What an import names: modules, or names in them, with a dot for each level up."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield base[:-1] if alias.name == "*" else f"{base}{alias.name}"


def _bind_imports(bound: dict[str, set[str]], node: ast.AST) -> None:
    """Add the names that an import binds, with what each stands for."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return
    for alias, target in zip(node.names, _imported_names(node), strict=True):
        if isinstance(node, ast.Import) and not alias.asname:
            bound.setdefault(target.split(".")[0], set()).add(target.split(".")[0])
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
                    inner = list(_fstring_parts(value))
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
        elif isinstance(node, ast.AugAssign):
            self.touched.add(_root_name(node.target))
        elif isinstance(node, ast.Subscript | ast.Attribute) and (
            not isinstance(node.ctx, ast.Load) or getattr(node, "attr", None) in MUTATORS
        ):
            self.touched.add(_root_name(node))


def _attribute_chain(node: ast.AST) -> tuple[str, ...]:
    rest: list[str] = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    return (node.id, *reversed(rest)) if isinstance(node, ast.Name) else ()


def _root_name(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _fstring_parts(node: ast.JoinedStr) -> Iterator[ast.expr]:
    """The parts of an f-string, text that stands side by side as one: versions part it unlike."""
    text = ""
    for value in node.values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text += value.value
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield value
    if text:
        yield ast.Constant(text)
