"""Links: a reading added to a topic's list, by flags or by answers; nothing is fetched."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from warpshelf.entries import Reader
from warpshelf.files import write_atomically
from warpshelf.findings import Finding, ShelfError, visible
from warpshelf.identity import clean, identity
from warpshelf.project import find

if TYPE_CHECKING:
    from warpshelf.readings import Reading, Shelf

Ask = Callable[[str, str], str]  # (key, question) -> answer
REQUIRED = {
    "title": "Title, as in the original",
    "kind": "Kind (paper, post, talk, code, docs, course, book, tool, site)",
    "why": "Why read it: one or two sentences of your own, at most 300 characters",
}
KINDS = {"arxiv": "paper", "doi": "paper", "ieee": "paper", "youtube": "talk", "github": "code"}
WIDTH = 88  # columns after which PyYAML ends a line at the next space


@dataclass(frozen=True)
class Entry:
    """An entry as it was added: where it stands now, its text, what it reads as."""

    path: str
    line: int
    text: str
    reading: Reading
    notes: list[Finding]  # what else there is to do, such as to include the list in its page


def add(
    project_root: Path, topic: str, url: str, *, ask: Ask | None, fields: Mapping[str, Any]
) -> Entry:
    """Append one entry to docs/<topic>.yml; all that stands there stays as it is.

    `fields` holds what is known, by key. A missing title, kind or why is asked for through `ask`;
    the kind is taken from the URL where that tells it, the id from the title. Tracking parameters
    are removed from `url`.

    Raises:
        ShelfError: the URL, topic or a field is wrong, a required field is missing and `ask` is
            None, or the work is on the shelf already. Nothing was written.
    """
    from warpshelf.readings import KEYS, load

    root = Path(project_root)
    shelf = load(root)
    where = _where(root, topic, shelf)
    path = f"docs/{where}.yml"
    url = clean(url.strip())
    name = _identity(url, path)
    _refuse_twice(shelf, name, path)
    values = {key: value for key, value in fields.items() if value not in (None, "", [], ())}
    values |= _required(name, values, ask, path)
    values = {"id": _id(values["title"], {*shelf.readings, *shelf.unread}), **values, "url": url}
    return _append(
        root, where, {key: values[key] for key in [*KEYS, *values] if key in values}, shelf
    )


def _wrong(path: str, what: str, mend: str) -> ShelfError:
    return ShelfError(Finding(path, None, what, mend))


def _where(root: Path, topic: str, shelf: Shelf) -> str:
    where = re.sub(r"^docs/|\.(?:md|ya?ml)$", "", topic.strip().strip("/"))
    if where in shelf.topics and shelf.topics[where].page:
        return where
    from warpshelf.messages import nearest

    plain = re.fullmatch(r"[\w-]+(?:/[\w-]+)*", where)
    if plain and (root / "docs" / f"{where}.md").is_file():
        return where
    known = sorted(name for name, known in shelf.topics.items() if known.page)
    near = nearest(where, known)
    meant = f"write --topic {near}; " if near else ""
    what = f"there is no page docs/{where}.md for the topic {topic!r}"
    raise _wrong(f"docs/{where}.yml", what, f"{meant}topics: {', '.join(known) or 'none'}")


def _identity(url: str, path: str) -> str:
    try:
        return identity(url)
    except ValueError as error:
        raise _wrong(path, str(error), "write it as https://…") from None


def _refuse_twice(shelf: Shelf, name: str, path: str) -> None:
    for reading in shelf.entries:
        versions = [v.url for v in reading.also if v.what in ("preprint", "published")]
        if name in map(identity, [reading.url, *versions]):
            what = f"{name} is on the shelf already, as {reading.title!r} ({reading.id})"
            raise _wrong(path, what, f"see {reading.path}:{reading.line}")


def _required(name: str, values: Mapping[str, Any], ask: Ask | None, path: str) -> dict[str, Any]:
    """The required fields that `values` lacks, guessed or asked for."""
    found: dict[str, Any] = {}
    guess = KINDS.get(name.partition(":")[0])
    if guess and "kind" not in values:
        found["kind"] = guess
    missing = [key for key in REQUIRED if key not in values and key not in found]
    if missing and ask is None:
        flags = ", ".join(f"--{key}" for key in missing)
        raise _wrong(path, f"an entry needs {', '.join(missing)}", f"add {flags}")
    for key in missing:
        assert ask is not None
        found[key] = ask(key, REQUIRED[key]).strip()
        if not found[key]:
            raise _wrong(path, f"an entry needs {key}", f"answer, or add --{key}")
    return found


def _id(title: str, taken: set[str]) -> str:
    """An id of the title's first words, unlike all of `taken`."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain.replace("'", "").partition(":")[0])
    if not words:
        words = re.findall(r"[a-z0-9]+", plain) or ["reading"]
    base = ""
    for word in words:
        if base and len(base) + len(word) > 40:
            break
        base = f"{base}-{word}" if base else word[:80]
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def _dump(values: Mapping[str, Any], indent: int, newline: str) -> str:
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, list | tuple) and not any(isinstance(v, Mapping) for v in value):
            lines += f"{key}: {_yaml(list(value), flow=True)}".rstrip("\n").split("\n")
        else:
            value = [dict(version) for version in value] if key == "also" else value
            first, *rest = _yaml({key: value}, flow=False).rstrip("\n").split("\n")
            lines += [first, *(f"  {line}" if key == "also" else line for line in rest)]
    pad = " " * indent
    marked = [f"{pad}{'- ' if not n else '  '}{line}" for n, line in enumerate(lines)]
    return newline.join(marked) + newline


def _yaml(value: Any, *, flow: bool) -> str:
    text: str = yaml.safe_dump(
        value, allow_unicode=True, default_flow_style=flow, sort_keys=False, width=WIDTH
    )
    return text


def _append(root: Path, where: str, values: Mapping[str, Any], shelf: Shelf) -> Entry:
    place, path = root / "docs" / f"{where}.yml", f"docs/{where}.yml"
    old = place.read_bytes() if place.exists() else b""
    reader = Reader(path, old)
    blank = not re.sub(rb"(?m)^\s*#.*$", b"", old).strip()
    broken = [finding for finding in shelf.findings if finding.path == path]
    if broken and not blank:
        raise ShelfError(broken)
    if reader.indent is None:
        raise _wrong(path, "the list is written as [ … ]", "write it as lines that start with -")
    newline = "\r\n" if old.count(b"\r\n") * 2 > old.count(b"\n") else "\n"
    text = _dump(values, reader.indent, newline)
    before = old.decode("utf-8")
    gap = "" if not before or before.endswith("\n") else newline
    if (
        re.search(r"\n[ \r]*\n(?: *#.*\n)* *- ", before)
        and before.rstrip(" \r\n") + newline * 2 != before
    ):
        gap += newline  # the file keeps a blank line between its entries
    data = (before + gap + text).encode("utf-8")
    after = Reader(path, data)
    kept = [entry.fields for entry in reader.entries]
    if after.findings or [entry.fields for entry in after.entries] != [*kept, dict(values)]:
        mend = "see that the file is a plain list of entries, or add this one by hand"
        said = after.findings or [Finding(path, None, "an entry cannot be appended", mend)]
        raise ShelfError(said)
    reading, notes = _fitting(root, where, data, shelf)
    write_atomically(place, data.decode("utf-8"))
    return Entry(path, reading.line, text, reading, notes)


def _fitting(root: Path, where: str, data: bytes, shelf: Shelf) -> tuple[Reading, list[Finding]]:
    """The last entry of `data` as a reading, and what its page still lacks.

    Raises ShelfError for anything that the entry makes wrong, here or elsewhere on the shelf.
    """
    from warpshelf.readings import check, load

    path = f"docs/{where}.yml"
    snippets = {p.stem for p in root.glob("snippets/*/*.py") if p.stem == p.parent.name}
    after = load(root, instead={path: data})
    found = {*after.findings, *check(after, snippets)}
    found -= {*shelf.findings, *check(shelf, snippets)}
    notes = sorted(finding for finding in found if finding.path == f"docs/{where}.md")
    if wrong := sorted(found.difference(notes)):
        raise ShelfError(wrong)
    return after.topics[where].readings[-1], notes


links_app = typer.Typer(help="Add readings.", no_args_is_help=True)


@links_app.callback()
def _links() -> None:
    """Readings: what docs/**/*.yml lists."""


@links_app.command("add")
def add_command(
    url: Annotated[str, typer.Argument(help="The address, https.")],
    topic: Annotated[str, typer.Option(help="Where it belongs, such as kernels/softmax.")],
    title: Annotated[str | None, typer.Option(help="As in the original.")] = None,
    title_en: Annotated[str | None, typer.Option(help="In English, if it is not.")] = None,
    kind: Annotated[str | None, typer.Option(help="paper, post, talk, code, docs, …")] = None,
    why: Annotated[str | None, typer.Option(help="What one knows after reading it.")] = None,
    author: Annotated[list[str] | None, typer.Option(help="One author; repeat it.")] = None,
    year: Annotated[int | None, typer.Option(help="When it was published.")] = None,
    venue: Annotated[str | None, typer.Option(help="Where it was published.")] = None,
    level: Annotated[str | None, typer.Option(help="beginner, intermediate or advanced.")] = None,
    lang: Annotated[str | None, typer.Option(help="ISO 639-1; en unless given.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="One tag; repeat it.")] = None,
    snippet: Annotated[list[str] | None, typer.Option(help="A snippet's id; repeat it.")] = None,
    needs: Annotated[list[str] | None, typer.Option(help="An id to read first; repeat it.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the entry as JSON.")] = False,
) -> None:
    """Add one reading to a topic's list. Asks for what is missing when run in a terminal."""
    fields = {
        "title": title, "title_en": title_en, "kind": kind, "why": why, "authors": author,
        "year": year, "venue": venue, "level": level, "lang": lang, "tags": tag,
        "snippets": snippet, "needs": needs,
    }  # fmt: skip
    try:
        ask = _ask if _terminal() and not json_output else None
        entry = add(find().root, topic, url, ask=ask, fields=fields)
    except ModuleNotFoundError as error:
        what = f"links add needs {error.name}"
        typer.echo(f"{what}; install it with pip install -e '.[pages]'", err=True)
        raise typer.Exit(1) from None
    except ShelfError as error:
        for finding in error.findings:
            typer.echo(str(finding), err=True)
        raise typer.Exit(1) from None
    if json_output:
        said = entry.reading.model_dump(exclude_defaults=True)
        said |= {"path": entry.path, "line": entry.line}
        typer.echo(json.dumps(said, ensure_ascii=False))
    else:
        typer.echo(f"{entry.path}:{entry.line}: added {entry.reading.id!r}")
        typer.echo("\n".join(visible(line) for line in entry.text.splitlines()))
    for note in entry.notes:
        typer.echo(str(note), err=True)


def _ask(key: str, question: str) -> str:
    answer: str = typer.prompt(question, default="", show_default=False)
    return answer


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
