"""The JSON Schema of a reading list, by which an editor checks and completes what is typed.

It is made from the model in `warpshelf.readings.model`, and refuses nothing that `shelf check`
accepts. What it cannot express (one identity, known ids) is left to `shelf check`.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project
from warpshelf.readings.model import OTHER_SCRIPT, Reading

PLACE = "docs/assets/readings.schema.json"
ADDRESS = "https://warpshelf.github.io/warpshelf/assets/readings.schema.json"
DIALECT = "http://json-schema.org/draft-07/schema#"  # the newest that editors know throughout
SETTINGS = ".vscode/settings.json"
KINDS = {
    "paper": "A paper, preprint, thesis or report.",
    "post": "An article on a blog or a forum.",
    "talk": "A recording or the slides of a talk.",
    "code": "A repository, or a file of one.",
    "docs": "Documentation of a product.",
    "course": "A course or a set of lectures.",
    "book": "A book, or a chapter of one.",
    "tool": "A program to be used.",
    "site": "A collection of other things.",
}


def build_schema() -> dict[str, Any]:
    """The schema: a list of readings, each key with its description, pattern or choices."""
    made: Any = TypeAdapter(list[Reading]).json_schema(ref_template="#/definitions/{model}")
    parts = {name: _tidy_schema(part) for name, part in made["$defs"].items()}
    reading = parts[Reading.__name__]
    kind = reading["properties"]["kind"]
    kind["enumDescriptions"] = [KINDS[name] for name in kind["enum"]]
    reading["allOf"] = _language_rules()
    return {
        "$schema": DIALECT,
        "$id": ADDRESS,
        "title": "A reading list of Warpshelf",
        "description": "docs/<part>/<topic>.yml: the readings that the page of the topic shows.",
        "type": "array",
        "items": made["items"],
        "definitions": parts,
    }


def schema_text() -> str:
    """The schema as it is committed."""
    return json.dumps(build_schema(), indent=2) + "\n"


def write_schema(project: Project) -> bool:
    """Put the schema in place; True where it was not current."""
    return write_atomically(project.root / PLACE, schema_text())


def check_schema(project: Project) -> list[Finding]:
    """What is wrong with the committed schema. A project without one lacks nothing by that."""
    path, settings = project.root / PLACE, project.root / SETTINGS
    mend = "run `shelf schema --write` and commit the file"
    try:
        current = path.read_bytes() == schema_text().encode()
    except FileNotFoundError:
        named = settings.is_file() and PLACE in settings.read_text("utf-8", errors="replace")
        return [Finding(PLACE, None, f"is missing, but {SETTINGS} names it", mend)] if named else []
    what = "is not the schema that the readings have now"
    return [] if current else [Finding(PLACE, None, what, mend)]


def _language_rules() -> list[dict[str, Any]]:
    """A title in another language has its English beside it, and only such a title."""
    other = {"properties": {"title": {"pattern": OTHER_SCRIPT.pattern}}, "required": ["title"]}
    foreign = {"properties": {"lang": {"not": {"const": "en"}}}, "required": ["lang"]}
    return [
        {"if": other, "then": foreign | {"required": ["lang", "title_en"]}},
        {"if": {"required": ["title_en"]}, "then": foreign},
    ]


def _tidy_schema(part: Any) -> Any:
    """Without generated titles and defaults, and without null, which no key may be."""
    if isinstance(part, list):
        return [_tidy_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    choices = [one for one in part.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        part = {**part, **choices[0]}
        del part["anyOf"]
    found = {}
    for name, value in part.items():
        if name == "properties":
            found[name] = {key: _tidy_schema(inner) for key, inner in value.items()}
        elif name != "title" and not (name == "default" and value in (None, [])):
            found[name] = _tidy_schema(value)
    return found
