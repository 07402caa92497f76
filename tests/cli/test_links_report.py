"""What was found, as lines and as Markdown: text from the web acts nowhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.cli import links
from warpshelf.links.check_links import CheckResult, list_links
from warpshelf.links.health import Health, clean_title
from warpshelf.readings import model

AT = "https://site.example.org"
HOSTILE = (
    "::error::x @everyone <script>alert(1)</script> `x` [a](https://evil.example.org) "
    "![b](//c) #12 owner/repo#3 ##[add-matcher]x | ``` </code><img src=x> &amp; a\\_b"
)
STATES = {
    "gone": Health("gone", since="2026-11-01", last_alive="2026-10-01", says="answered 404",
                   archived="https://web.archive.org/web/2020/x"),
    "moved": Health("moved", since="2026-11-01", moved_to="https://new.example.org/@you/x"),
    "titled": Health("alive", last_alive="2026-11-01", title_there=HOSTILE),
    "failing": Health("failing", since="2026-11-01", says="timed out"),
    "silent": Health("unreachable", since="2026-11-01", says="gave no answer"),
    "blocked": Health("blocked", since="2026-11-01", says="answered 403"),
    "alive": Health("alive", last_alive="2026-11-01"),
}  # fmt: skip


def make_survey(root: Path, states: dict[str, Health], ours: str = "Ours") -> CheckResult:
    """A survey of a list with a link for each state, in their order; arXiv's where a title is."""
    entries, health = [], {}
    for number, (name, state) in enumerate(states.items()):
        url = f"https://arxiv.org/abs/2309.{number:05}" if state.title_there else f"{AT}/{name}"
        entries.append(
            {"id": name, "title": f"{ours} {number}", "url": url, "kind": "post", "why": "W."}
        )
        health[url] = state
    (root / "docs").mkdir(exist_ok=True)
    (root / "docs" / "tiles.yml").write_text(json.dumps(entries, indent=0))
    shelf = model.load_shelf(root)
    assert not shelf.findings
    return CheckResult(list(list_links(shelf).values()), health, len(states), 0, 0)


def test_lines_stand_in_groups_with_a_place_each(tmp_path: Path) -> None:
    found = links.report_lines(make_survey(tmp_path, STATES))
    heads = [line for line in found if re.fullmatch(r"[A-Z][^:]*: \d+", line)]
    assert heads == [
        "Gone: 1", "Moved permanently: 1", "Different title: 1",
        "Failing, not yet long enough to be gone: 1", "No answer in several checks: 1",
        "Blocks programs: 1",
    ]  # fmt: skip
    assert found[1] == (
        f"docs/tiles.yml:5: {AT}/gone is gone since 2026-11-01, alive 2026-10-01: "
        "it answered 404; link another, or the archived copy https://web.archive.org/web/2020/x"
    )
    assert found[-1] == "7 links, 2 alive, 7 checked now" and len(found) == 13
    assert all(
        line.startswith("docs/tiles.yml:") for line in found if line not in heads[:] + found[-1:]
    )


def test_what_was_left_is_said(tmp_path: Path) -> None:
    found = make_survey(tmp_path, {"alive": STATES["alive"]})
    found.fresh, found.left, found.unread = 3, 2, 1
    assert links.report_lines(found) == [
        "1 link, 1 alive, 1 checked now, 3 seen alive recently and skipped, "
        "2 left for the next check, lists with errors left out: see `shelf check`"
    ]


def assert_inert(text: str) -> None:
    """Fail where `text` holds more markup than the report itself writes."""
    bare = re.sub(r"^## [A-Z][A-Za-z, ]*: \d+$", "", text, flags=re.M)
    bare = re.sub(r'<a href="[\w&#;]+">([\w&#;]+)</a>', r"\1", bare)
    bare = re.sub(r"<code>([^<>]*)</code>", r"\1", bare)
    bare = re.sub(r"^- ([\w&#;]+): ", r"\1", bare, flags=re.M)
    bare = re.sub(r"&#\d+;", "", bare)
    assert not re.search(r"[<>@`\[\]#|*_~!\\:/]", bare), bare


def test_markdown_holds_no_markup_of_others(tmp_path: Path) -> None:
    found = make_survey(tmp_path, STATES)
    text = links.report_markdown(found, "https://github.com/warpshelf/warpshelf")
    assert_inert(text)
    assert "## Different title: 1" in text and "everyone" in text
    place = "https&#58;&#47;&#47;github&#46;com&#47;warpshelf&#47;warpshelf&#47;blob&#47;main"
    assert f'<a href="{place}&#47;docs&#47;tiles&#46;yml&#35;L5">' in text
    # Whatever names a person stands in <code>, where GitHub notifies nobody.
    for name in re.findall(r".*(?:everyone|&#64;).*", text):
        assert re.search(r"<code>.*(?:everyone|&#64;).*</code>", name)


@given(st.text(min_size=1, max_size=200))
def test_no_text_acts(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    kept = clean_title(text)
    if kept is None:
        return
    state = Health("alive", last_alive="2026-11-01", title_there=kept)
    found = make_survey(tmp_path_factory.mktemp("any"), {"one": state})
    assert_inert(links.report_markdown(found))
    for line in links.report_lines(found):
        assert line.isprintable() and re.match(r"(?:docs/tiles\.yml:\d+: |[A-Z]|1 link, )", line)


def test_a_long_report_is_cut_at_a_line(tmp_path: Path) -> None:
    states = {f"gone-{number}": STATES["gone"] for number in range(400)}
    text = links.report_markdown(make_survey(tmp_path, states))
    assert 50_000 < len(text) < 65_536
    assert text.endswith("\n\nThe rest is cut, as a longer report would not fit.\n")
    assert_inert(text)


def test_all_well_is_said(tmp_path: Path) -> None:
    text = links.report_markdown(make_survey(tmp_path, {"alive": STATES["alive"]}))
    assert text == "1 link, 1 alive, 1 checked now.\n\nEvery link that was checked is alive.\n"


def test_json_has_every_link_and_what_fails(tmp_path: Path) -> None:
    said = links.report_json(make_survey(tmp_path, STATES))
    assert json.loads(json.dumps(said)) == said
    assert [link["state"] for link in said["links"]] == [state.state for state in STATES.values()]
    fails = {finding["group"]: finding["fails"] for finding in said["findings"]}
    assert fails == {
        "gone": True, "moved": True, "title": True, "failing": False, "unreachable": False,
        "blocked": False,
    }  # fmt: skip
