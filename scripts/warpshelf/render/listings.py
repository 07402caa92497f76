"""Source code of a snippet as fenced blocks, and the reference of the tooling.

A link into Compiler Explorer holds the source itself, behind the `#` of the address, which a
browser keeps to itself: no server bounds its length. It is that site's own "full link": a layout of
panes (version 4), in Rison, without a character that means anything to Markdown. The copy that our
site serves lies at `sources/<id>/<file>`, as it is in the repository, section marks and all.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple
from urllib.parse import quote

from warpshelf.contract import syntax
from warpshelf.core.markup import escape_markdown, escape_prose, plain_text, quote_href

# How pymdownx.snippets finds what it would include or remove; see `escape_marks`.
INCLUDE = re.compile(
    r"""[ \t]*;*-+8<-+(?:[ \t]+(?:"(?:\\"|[^"])+"|'(?:\\'|[^'])+'))?$"""  # a file, or a block
)
SECTION = re.compile(
    r"(?i)^(?P<before>.*?)(?<!;)(?!(?<=-)-)(?P<marker>;*-+8<-+[ \t]+"
    r"\[[ \t]*(?:start|end)[ \t]*:[ \t]*[a-z][-_0-9a-z]*[ \t]*\].*)$"
)
MARKER = re.compile(
    r"[ \t]*(?:#|//)[ \t]*-+8<-+[ \t]+"
    r"\[[ \t]*(start|end)[ \t]*:[ \t]*([A-Za-z][-_0-9A-Za-z]*)[ \t]*\][ \t]*"
)


class Listing(NamedTuple):
    """A file: the label of its tab, if any, "python" or "cuda", its name, its text, where it is."""

    label: str
    language: str
    name: str
    text: str
    ways: str = ""


def section_names(text: str) -> list[str]:
    """The names of the marked sections of a source file, in order."""
    found = (MARKER.fullmatch(line) for line in plain_text(text).split("\n"))
    return list(dict.fromkeys(m[2] for m in found if m and m[1].lower() == "start"))


def extract_section(text: str, name: str) -> str:
    """The lines of a source file between the marks `[start:name]` and `[end:name]`.

    Marks of other sections inside are left out. Raises ValueError where there is no such section.
    """
    kept: list[str] | None = None
    for line in plain_text(text).split("\n"):
        mark = MARKER.fullmatch(line)
        if mark and mark[2] == name:
            if mark[1].lower() == "end":
                break
            kept = kept or []
        elif kept is not None and not mark:
            kept.append(line)
    if kept is None:
        known = ", ".join(section_names(text)) or "none"
        raise ValueError(f"no section {name!r}, only {known}; mark it with [start:{name}]")
    return "\n".join(kept).strip("\n")


def escape_marks(line: str) -> str:
    """A line that pymdownx.snippets turns back into `line`, by its escape: `;` before a marker."""
    if "8<-" not in line:
        return line
    if INCLUDE.fullmatch(line):
        return re.sub(r"^[ \t]*", r"\g<0>;", line)
    if found := SECTION.match(line):
        return f"{found['before']};{found['marker']}"
    return line


def code_fence(text: str, language: str, title: str) -> str:
    """A fenced code block that shows `text` without its section marks."""
    lines = [line for line in plain_text(text).split("\n") if not MARKER.fullmatch(line)]
    body = "\n".join(map(escape_marks, lines)).strip("\n")
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
    lexer = "c++" if language == "cuda" else language
    return f'{ticks}{lexer} title="{title}"\n{body}\n{ticks}'


def render_step(code: Sequence[Listing], old: str, new: str) -> str:
    """The step from one marked section to another of the same snippet, as a diff.

    Raises ValueError where no file marks one of them.
    """
    texts = {}
    for name in (old, new):
        marked = [file.text for file in code if name in section_names(file.text)]
        every = "\n".join(file.text for file in code)
        texts[name] = extract_section(marked[0] if marked else every, name).split("\n")
    rows = list(unified_diff(texts[old], texts[new], n=2, lineterm=""))[2:]
    body = "\n".join(map(escape_marks, ("…" if row.startswith("@@") else row for row in rows[1:])))
    return f'```diff title="from {old} to {new}"\n{body}\n```\n'


def open_section(text: str, kind: str) -> str:
    """The section of a file that is open: the one called `kind`, or else its first, or ""."""
    names = section_names(text)
    return kind if kind in names else (names or [""])[0]


def render_listing(item: Listing, snippet: str, kind: str, folded: bool = False) -> str:
    """A file: its section, open unless all is `folded`, and the whole file behind a line."""
    name, lines = item.name, len(item.text.splitlines())
    link = f"[{name}](/{FOLDER}/{snippet}/{name}){{ download={name} }}"
    fold = f'??? ws-fold ws-file "All of {name}, {lines} lines"\n\n    {link}'
    first = open_section(item.text, kind)
    shown = extract_section(item.text, first) if first else item.text
    opened = "" if folded else code_fence(shown, item.language, name)
    return "\n\n".join(filter(None, (opened, fold if folded or first else "")))


def render_listings(code: Sequence[Listing], snippet: str, kind: str, folded: bool = False) -> str:
    """Files in content tabs, if several are open; `kind` names the section of each that is."""
    opened = [item for item in code if item.label]
    shown = [render_listing(item, snippet, kind, folded) for item in opened]
    if len(opened) > 1 and not folded:
        shown = [
            f'=== "{escape_markdown(item.label)}"\n\n{indent(text, "    ")}'
            for item, text in zip(opened, shown, strict=True)
        ]
    rest = (render_listing(item, snippet, kind, True) for item in code if not item.label)
    return "\n\n".join((*shown, *rest))


SITE = "https://godbolt.org/"
# Browsers follow at least 2**20 characters; a page should not grow by that for one link.
LONGEST = 131_072
# Compilers by Compiler Explorer's names for them, of the releases that the records are made with.
CUDA = {"lang": "cuda", "compiler": "nvrtc130u2", "options": "-arch=sm_90 -std=c++17"}
TRITON = {"lang": "triton", "compiler": "triton_nvidia_370", "options": ""}
PYTHON = {"lang": "python", "compiler": "python314", "options": ""}
# How a snippet has a CPU execute its kernels. There they are only compiled, without papergpu.
ACTIVATION = re.compile(
    r"^if not torch\.cuda\.is_available\(\):\n"
    r"    import papergpu.*\n\n    papergpu\.activate\(\)\n\n",
    re.MULTILINE,
)
INCLUDES = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
UNQUOTED = re.compile(r"[A-Za-z_.][A-Za-z0-9_.-]*")  # what Rison writes without quotes


FOLDER = "sources"


def explorer_link(
    listing: Listing, kernels: Sequence[str] = (), calls: str = "", imports: Iterable[str] = ()
) -> str | None:
    """The link that opens the file in Compiler Explorer; None if it cannot be built there.

    A .cu file and one of Triton are compiled to PTX, a program that needs Python alone is run. Of
    a .cu file with includes it is not known whether NVRTC has the headers there. A template has no
    code of its own, so the instances among `kernels`, such as `scale<float>`, are asked for below
    the source. A kernel of Triton is compiled as it is called, so `calls` are made below it.
    """
    name, text = listing.name, listing.text
    if listing.language == "cuda":
        if INCLUDES.search(text):
            return None
        asked = [f"template __global__ decltype({one}) {one};" for one in kernels if "<" in one]
        note = ["", "// The instances that the snippet launches."] if asked else []
        return _full_link(name, "\n".join([text.rstrip("\n"), *note, *asked, ""]), CUDA, "compiler")
    if listing.label != "Triton":
        alone = syntax.standard_library_only(imports)
        return _full_link(name, text, PYTHON, "executor") if alone else None
    if not calls.strip():
        return None
    whole = f"{ACTIVATION.sub('', text).rstrip()}\n\n\n{calls.strip()}\n"
    return _full_link(name, whole, TRITON, "compiler")


def _full_link(name: str, text: str, tool: dict[str, str], pane: str) -> str | None:
    editor = {"id": 1, "lang": tool["lang"], "filename": name, "source": text}
    panes = [
        {"type": "component", "componentName": kind, "componentState": state}
        for kind, state in (("codeEditor", editor), (pane, {"source": 1, **tool}))
    ]
    layout = {"version": 4, "content": [{"type": "row", "content": panes}]}
    address = f"{SITE}#{quote(to_rison(layout)[1:-1], safe='')}"
    return address if len(address) <= LONGEST else None


def to_rison(value: Any) -> str:
    """`value`, which JSON can hold, in Rison."""
    if isinstance(value, str):
        plain = UNQUOTED.fullmatch(value)
        return value if plain else "'" + re.sub(r"([!'])", r"!\1", value) + "'"
    if isinstance(value, dict):
        return f"({','.join(f'{to_rison(key)}:{to_rison(item)}' for key, item in value.items())})"
    if isinstance(value, list):
        return f"!({','.join(map(to_rison, value))})"
    return {"true": "!t", "false": "!f", "null": "!n"}.get(said := json.dumps(value), said)


def source_links(
    snippet: str, name: str, repository: str | None, explored: str | None, arch: str = "native"
) -> str:
    """One line of HTML, for a page in a folder: where the file is, and a .cu's compiler."""
    parts = [f'<a href="../{FOLDER}/{snippet}/{name}" download="{name}">Download {name}</a>']
    if explored:
        parts.append(f"<a href={quote_href(explored)}>open in Compiler Explorer</a>")
    if repository:
        file = quote_href(f"{repository}/blob/main/snippets/{snippet}/{name}")
        parts.append(f"<a href={file}>in the repository</a>")
        parts.append(f"<code>git clone {escape_markdown(repository)}</code>")
    if name.endswith(".cu"):
        parts.append(f"<code>nvcc -std=c++17 -arch={arch} -c {name}</code>")
    return f'<p class="ws-ways">{" · ".join(parts)}</p>'


# The reference of the tooling: what modules and their public names say of themselves. Only what
# has a docstring is there, and no name with a `_`. Files are parsed and never imported. The
# snippets' reference, with signatures, is mkdocstrings'.


def render_reference(package: Path) -> str:
    """The modules of each room of a package, and the first sentence of each public name."""
    rooms = []
    for path in sorted(package.glob("*/__init__.py")):
        room, folder = path.parent.name, sorted(path.parent.glob("[a-z]*.py"))
        modules = "\n".join(_render_module(one.read_bytes(), one.stem) for one in folder)
        said = _first_sentence(ast.get_docstring(ast.parse(path.read_bytes())))
        head = f"## warpshelf.{room} {{ #{room} .doc-heading }}"
        shown = f'<div data-search-exclude="yes">\n{modules}\n</div>'
        rooms.append(f"{head}\n\n<p>{said}</p>\n\n{shown}")
    return "\n\n".join(rooms)


@cache
def _render_module(source: bytes, stem: str) -> str:
    """A fold: the module's first sentence, in it those of its public names."""
    tree, rows = ast.parse(source), ""
    for name, node, said in _documented_names(tree.body):
        inner = _documented_names(node.body, f"{name}.") if isinstance(node, ast.ClassDef) else ()
        for called, told in ((name, said), *((one, more) for one, _, more in inner)):
            rows += f"<li><code>{called}</code>: {_first_sentence(told)}</li>"
    head = f"<code>{stem}</code>: {_first_sentence(ast.get_docstring(tree))}"
    if not rows:
        return f"<p>{head}</p>"
    return f'<details class="ws-fold"><summary>{head}</summary><ul>{rows}</ul></details>'


def _documented_names(
    nodes: Iterable[ast.stmt], before: str = ""
) -> Iterator[tuple[str, syntax.Definition, str]]:
    for node in nodes:
        if not isinstance(node, syntax.Definition) or node.name.startswith("_"):
            continue
        if said := ast.get_docstring(node):
            yield f"{before}{node.name}", node, said


def _first_sentence(said: str | None) -> str:
    """The first sentence of a docstring, as HTML."""
    text = " ".join((said or "").split("\n\n")[0].split())
    return escape_prose(re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0])
