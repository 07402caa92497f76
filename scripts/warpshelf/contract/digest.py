"""What decides what a snippet computes, and one digest of all of it.

Of its own files all counts, of modules that it shares what it uses of them. Comments, docstrings
and formatting have no part in it: Python counts by its syntax tree, C++ by its tokens, any other
file by its bytes, the same under every version of Python. What a text comes to is kept in
`.shelf/sources.jsonl` by what it holds, so that a file is parsed once.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from warpshelf.contract import syntax

# A record is bound to the code and to the method that verified and timed it. Raise this when the
# worker changes so that a verdict or a time means something else: every record goes stale.
METHOD = 6

CASES_FILE = "cases.py"
FORM_FILE = "calculator.py"  # of which no record holds anything: counts only where it is imported
SLOWER_FILE = "slower.yml"  # words about records, which change none
# What machines wrote, and what others state, changes nothing that a snippet computes either.
IGNORED = ("results", "published.yml", "__pycache__", FORM_FILE, SLOWER_FILE)


def dependency_files(root: Path, folder: Path) -> list[Path]:
    """Every file that may decide what the snippet in `folder` computes: its own, the modules of
    ours that they reach with what lies beside these (`snippets/cuda.*`), and the records that NEEDS
    of cases.py names."""
    return sorted(root / path for path in _Dependencies(root, folder).sources)


def record_files(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """The files with the records of the snippets of these names, which a snippet may read."""
    for name in names:
        results = root / "snippets" / name / "results"
        yield from (path for path in results.glob("*") if path.suffix in (".json", ".xz"))


def folder_digest(root: Path, folder: Path) -> str:
    """`sha256:…` over the method's version and all that decides what the snippet in `folder` does:
    its own files whole, of modules elsewhere the names that are used, and what these use."""
    total = hashlib.sha256(f"method {METHOD}\n".encode())
    for name, said in sorted(_Dependencies(root, folder).hash_parts().items()):
        total.update(f"{name}\0{said}\0".encode())
    return f"sha256:{total.hexdigest()}"


class _Dependencies:
    """What a snippet reaches from its own files on. Paths are texts relative to the root."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.found: dict[str, str] = {}  # a file, or it, ":" and what of it counts -> the hash
        self.sources: dict[str, SourceDigest] = {}
        self.pending: list[tuple[str, str]] = []  # modules, and which of their names
        self.find_module = cache(self._find_module)
        self.untold = False  # a package is passed around, so which part of it counts is unknown
        for path in self._list_files(folder):
            source = self._add_whole(path)
            for use in {*source.all_uses(), *source.script.uses}:
                self._follow_use(path, use, own=True)
            if path.endswith(f"/{CASES_FILE}"):
                for record in record_files(root, source.reads):
                    self._add_whole(record.relative_to(root).as_posix())
        seen = set()
        while self.pending:
            path, name = one = self.pending.pop()
            if one not in seen and path not in self.found:
                seen.add(one)
                self._add_part(path, name)

    def hash_parts(self) -> dict[str, str]:
        """The hash of each part that counts."""
        if self.untold or any(source.literal for source in self.sources.values()):
            # A file can tell its comments or lines: all count by their bytes.
            read = {path: (self.root / path).read_bytes() for path in self.sources}
            lines = {path: data.replace(b"\r\n", b"\n") for path, data in read.items()}
            return {path: hashlib.sha256(data).hexdigest() for path, data in lines.items()}
        # Of a file that counts whole, names came first or not as the order of sets had it.
        whole = self.found.keys()
        return {k: said for k, said in self.found.items() if k.partition(":")[0] not in whole - {k}}

    def _list_files(self, folder: Path) -> list[str]:
        """The files of a folder that can count."""
        found = (path for path in folder.rglob("*") if path.is_file())
        return [
            path.relative_to(self.root).as_posix()
            for path in found
            if not any(p in IGNORED or p.startswith(".") for p in path.relative_to(folder).parts)
        ]

    def _load_source(self, path: str) -> SourceDigest:
        if path not in self.sources:
            content = (self.root / path).read_bytes()
            self.sources[path] = digest_source(self.root, content, Path(path).suffix)
        return self.sources[path]

    def _add_whole(self, path: str) -> SourceDigest:
        source = self._load_source(path)
        self.found[path] = source.whole
        return source

    def _add_part(self, path: str, name: str) -> None:
        """Count a name of a module elsewhere; "*": all of it; "": what importing it does."""
        source = self._load_source(path)
        part = source.parts.get(name) or source.imports.get(name) if name else source.rest
        if part is None:
            part = Part(source.whole, [*source.all_uses()])
        if part.hash:
            self.found[f"{path}:{name}"] = part.hash
        for use in part.uses:
            self._follow_use(path, use)
        if name:
            self.pending.append((path, ""))
        elif path.count("/") == 1:
            for beside in (self.root / "snippets").glob(f"{Path(path).stem}.*"):
                if (near := f"snippets/{beside.name}") != path:
                    self._add_whole(near)

    def _follow_use(self, path: str, use: str, own: bool = False) -> None:
        """Note what a file uses; `own`: all of the file counts already."""
        if use == NEAR and not own and path.count("/") > 1:
            for near in self._list_files((self.root / path).parent):
                for inner in self._add_whole(near).all_uses():
                    self._follow_use(near, inner, own=True)
        elif use.startswith(":"):
            if not own and use != NEAR:
                self.pending.append((path, use[1:]))
        elif target := self.find_module(path.rpartition("/")[0], use.rstrip("!")):
            self.pending.append((target[0], "" if use.endswith("!") else target[1]))

    def _find_module(self, folder: str, dotted: str) -> tuple[str, str] | None:
        """The module of ours that a dotted name leads to, and which of its names ("*": all)."""
        plain = dotted.lstrip(".")
        up = len(dotted) - len(plain) - 1
        names = plain.split(".")
        bases = [folder.rsplit("/", up)[0]] if up >= 0 else ["", folder]
        for base in bases if names[0] == "snippets" else bases[-1:]:
            for count in range(len(names), 0, -1):
                module = "/".join((*base.split("/"), *names[:count])).lstrip("/")
                for file in (f"{module}.py", f"{module}/__init__.py"):
                    if file.startswith("snippets/") and os.path.isfile(f"{self.root}/{file}"):
                        return file, names[count] if count < len(names) else "*"
        if names[0] == "snippets" and os.path.isdir(f"{self.root}/{'/'.join(names)}"):
            self.untold = True
            self.pending += [(p, "*") for p in self._list_files(self.root.joinpath(*names))]
        return None


# What the text of one file comes to: hashes of what it defines, and what each part uses.

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
    """What the text of one file comes to. Of a module that is imported `rest` counts, and what is
    used of `parts` and of the names that it `imports`."""

    whole: str
    literal: bool = False  # it can tell its own comments and lines
    parts: Mapping[str, Part] = {}
    imports: Mapping[str, Part] = {}
    rest: Part = Part()
    script: Part = Part()  # which it does as well, run as a script
    reads: Sequence[str] = ()  # the snippets whose records it asks for

    def all_uses(self) -> set[str]:
        """All that its parts use as it is imported."""
        return {use for part in (self.rest, *self.parts.values()) for use in part.uses}


def digest_source(root: Path, content: bytes, suffix: str) -> SourceDigest:
    """The summary of a file of the checkout at `root`, cached by its content."""
    content = content.replace(b"\r\n", b"\n")
    if suffix != ".py" and suffix not in syntax.CPP_SUFFIXES:
        return SourceDigest(hashlib.sha256(content).hexdigest())
    kept = cached_sources(root)
    name = hashlib.sha256(f"{_rules_version()}{suffix}\0".encode() + content).hexdigest()
    if name not in kept:
        kept[name] = _analyze_content(content, suffix)
        line = json.dumps([name, kept[name]], separators=(",", ":")) + "\n"
        path = root / KEPT
        with suppress(OSError):  # a checkout that cannot be written to parses again
            path.parent.mkdir(exist_ok=True)
            large = path.is_file() and path.stat().st_size > LARGEST
            with path.open("wb" if large else "ab", buffering=0) as file:
                file.write(line.encode())  # at once, as several may write
    return kept[name]


@cache
def _rules_version() -> str:
    """The version of these rules: what other rules made is not reused."""
    own = (Path(__file__), Path(__file__).with_name("syntax.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in own)).hexdigest()


@cache
def cached_sources(root: Path) -> dict[str, SourceDigest]:
    """What is cached in the checkout at `root`, by the content of files."""
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
            by_bytes = by_bytes._replace(literal=bool(TELLTALE.search(text)))
            return _digest_module(ast.parse(text))._replace(literal=by_bytes.literal)
        if CPP_TELLTALE.search(text):
            return by_bytes
        return SourceDigest(_hash_text("\n".join(token for token, _ in syntax.cpp_tokens(text))))
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
        if not syntax.is_string_statement(node) and not isinstance(node, ast.Pass)
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
    by_rest = {name for said in rest for name in syntax.bound_names(said.node)}
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
        reads=_record_names(parts.get("NEEDS", [])),
    )


def _drop_foreign(hash_: str, uses: Sequence[str]) -> Part:
    """Without what is surely no module of ours: it counts in the hash of what uses it."""
    return Part(hash_, [use for use in uses if use.split(".")[0] not in FOREIGN])


def _record_names(statements: list[_Statement]) -> list[str]:
    """The snippets that NEEDS names under "records"."""
    for node in (said.node for said in statements):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            with suppress(ValueError, TypeError, AttributeError):  # which is reported elsewhere
                names = ast.literal_eval(node.value).get("records")
                return [n for n in names if isinstance(n, str)] if type(names) is list else []
    return []


def _defined_names(node: ast.stmt) -> list[str]:
    """What a statement defines, if it does that alone."""
    if isinstance(node, syntax.Definition):
        return [node.name]
    targets = syntax.assigned_targets(node)
    flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
    names = [one.id for one in flat if isinstance(one, ast.Name)]
    return names if len(names) == len(flat) else []


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
    """What a statement says, as a text that is the same under every version of Python."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        # The names that it reads or sets, each with the attributes that follow on it.
        self.chains: set[tuple[str, ...]] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.named: set[str] = set()  # modules, in texts
        self.touched: set[str] = set()  # whose values it may change, or set from in a function
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
                if not (syntax.is_string_statement(inner) or isinstance(inner, ast.Pass)):
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
