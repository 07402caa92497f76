"""What mkdocs.yml says of the site, and the map of the tooling."""

from __future__ import annotations

import re
import tomllib

import pytest
from conftest import ROOT, Trial

from warpshelf.core.project import Project
from warpshelf.render import listings
from warpshelf.site import project_content
from warpshelf.site.project_content import Settings

# What mkdocs.yml says of the site, however it is written, and what is wrong with it.

SITE = "https://example.org/shelf/"


def read_settings(trial: Trial, text: str) -> tuple[Settings, list[str]]:
    (trial.root / "mkdocs.yml").write_text(text, encoding="utf-8")
    found, findings = project_content.read_settings(Project(trial.root))
    return found, [str(finding) for finding in findings]


def test_the_project_s_own() -> None:
    found, findings = project_content.read_settings(Project(ROOT))
    assert findings == []
    assert found.name == "Warpshelf"
    assert found.address and found.address.startswith("https://")
    assert found.repository and found.repository.startswith("https://")


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (f"site_url: {SITE}", SITE),
        (f'"site_url": "{SITE}"  # where it is', SITE),
        (f"site_url: >-\n  {SITE}", SITE),
        (f"{{site_url: {SITE}, site_name: x}}", SITE),
        ("site_url:", None),
        ("site_url: ''", None),
        ("site_url: ~", None),
        ("extra: {site_url: https://elsewhere.example}", None),
        ("#site_url: https://elsewhere.example\na: 1", None),
    ],
)
def test_a_value_is_found_however_it_is_written(
    trial: Trial, line: str, address: str | None
) -> None:
    found, findings = read_settings(trial, f"{line}\n")
    assert (found.address, findings) == (address, [])


def test_tags_of_mkdocs_are_passed_over(trial: Trial) -> None:
    text = f"""\
site_url: {SITE}
plugins: !ENV [PLUGINS, [search]]
markdown_extensions:
  - pymdownx.emoji: {{emoji_index: !!python/name:os.system "x"}}
  - other: !!python/object/apply:os.abort []
  - third: !unheard-of 3
"""
    assert read_settings(trial, text) == (Settings(address=SITE), [])


def test_the_environment_speaks(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIAL_A", raising=False)
    monkeypatch.setenv("TRIAL_B", SITE)
    for value, address in (
        ("!ENV TRIAL_B", SITE),
        ("!ENV TRIAL_A", None),
        ("!ENV [TRIAL_A, TRIAL_B, 'https://c.example']", SITE),
        ("!ENV [TRIAL_A, 'https://c.example']", "https://c.example"),
    ):
        assert read_settings(trial, f"site_url: {value}\n") == (Settings(address=address), []), (
            value
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nsite_url: example.org\n", "mkdocs.yml:2: site_url is 'example.org'; write an "),
        ("site_url: [a]\n", "mkdocs.yml:1: site_url is 'a list'; write an address that begins "),
        ("site_url: javascript:x\n", "mkdocs.yml:1: site_url is 'javascript:x'; write an "),
        (
            "site_name: {a: b}\n",
            "mkdocs.yml:1: site_name is 'a mapping'; write the name on one line",
        ),
        ("edit_uri_template: https://example.org/{path}\n", "mkdocs.yml:1: edit_uri_template is "),
        ("site_name: 'a\n", "mkdocs.yml:2: is not YAML: found unexpected end of stream; quote"),
        ("- site_name\n", "mkdocs.yml:1: is not a mapping of settings; write `site_name: …`"),
        ("", "mkdocs.yml:1: is not a mapping of settings; "),
    ],
)
def test_each_fault_is_one_line(trial: Trial, text: str, says: str) -> None:
    found, findings = read_settings(trial, text)
    assert found == Settings()
    [line] = findings
    assert line.startswith(says)


def test_a_check_says_it(trial: Trial) -> None:
    text = (trial.root / "mkdocs.yml").read_text(encoding="utf-8")
    (trial.root / "mkdocs.yml").write_text(f"{text}site_url: nowhere\n", encoding="utf-8")
    done = trial.run_shelf("check")
    assert done.returncode == 1 and "site_url is 'nowhere'" in done.stderr


# The map of the tooling on the site is that of the code: every room, its layer, its modules.

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
