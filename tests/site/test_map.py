"""The map of the tooling on the site is that of the code: every room, its layer, its modules."""

from __future__ import annotations

import re
import tomllib

import pytest
from conftest import ROOT

from warpshelf.render import listings

ROOMS = {path.parent.name for path in (ROOT / "scripts" / "warpshelf").glob("*/__init__.py")}


def read_layers() -> dict[str, int]:
    """The layer of each room, from 1 at the bottom, as import-linter holds it."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    [rule] = [one for one in tools["importlinter"]["contracts"] if one["id"] == "layers"]
    return {
        name.strip().removeprefix("warpshelf."): layer
        for layer, names in enumerate(reversed(rule["layers"]), 1)
        for name in names.split("|")
    }


def test_every_room_has_its_layer() -> None:
    assert read_layers().keys() == ROOMS


@pytest.mark.parametrize("page", ["about/tooling.md", "reference/tooling.md"])
def test_the_map_shows_every_room_on_its_layer(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| \[[^]]+\]\(\S*#(\w+)\)", text, re.M)
    assert {room: int(layer) for layer, room in rows} == read_layers()
    order = [int(layer) for layer, _ in rows]
    assert order == sorted(order, reverse=True)


def test_every_room_has_its_modules_in_the_reference() -> None:
    text = listings.render_reference(ROOT / "scripts" / "warpshelf")
    assert set(re.findall(r"^## \S+ \{ #(\w+) \.doc-heading \}$", text, re.M)) == ROOMS
    assert "<summary><code>rendering</code>: The fragments&#58; all that pages include" in text
    assert "<li><code>render_project</code>: Write every fragment and published record" in text
    assert "_mirror" not in text and "_&#95;mirror" not in text
