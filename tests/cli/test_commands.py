"""The commands, and where they are documented."""

from __future__ import annotations

from itertools import takewhile

from conftest import ROOT

from warpshelf.cli import commands
from warpshelf.cli.links import links_app


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/about/tooling.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `") for line in text.splitlines() if "| `shelf " in line}
    # `shelf links add URL --topic T`: the words in front of what is to be filled in
    listed = {" ".join(takewhile(str.islower, row.split())) for row in rows}
    own = {
        one.name or getattr(one.callback, "__name__", "")
        for one in commands.app.registered_commands
    }
    links = {f"links {one.name}" for one in links_app.registered_commands}
    assert listed == {f"shelf {name}" for name in own | links}
