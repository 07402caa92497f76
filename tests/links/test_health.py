"""The file of states: written whole, read with suspicion.

A permanent redirect elsewhere is a move; a site's everyday redirects are none.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core.findings import ShelfError
from warpshelf.links import health
from warpshelf.links.health import (
    Health,
    Redirect,
    address_problem,
    is_barrier,
    load_health,
    permanent_target,
    save_health,
)

URL = "https://example.org/a"
LINKS = {
    URL: Health("alive", last_alive="2026-11-01"),
    "https://example.org/b": Health(
        "gone", since="2026-11-01", last_alive="2026-10-01", says="answered 404",
        archived="https://web.archive.org/web/2020/https://example.org/b", failures=3, absences=3,
        counted="2026-11-15", title_there="流 “x”",
    ),
    "https://example.org/c": Health("moved", since="2026-11-01", moved_to="https://b.org/c"),
}  # fmt: skip


def write_health(root: Path, text: str | bytes) -> None:
    (root / "docs").mkdir(exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    (root / "docs" / "links.json").write_bytes(data)


def catch_refusal(root: Path) -> str:
    with pytest.raises(ShelfError) as caught:
        load_health(root)
    [finding] = caught.value.findings
    assert finding.path == "docs/links.json" and "\n" not in str(finding)
    return str(finding)


def test_no_file_is_nothing_known(tmp_path: Path) -> None:
    assert load_health(tmp_path) == {}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert save_health(tmp_path, LINKS) and load_health(tmp_path) == LINKS
    assert not save_health(tmp_path, dict(reversed(LINKS.items())))  # in whichever order
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["links.json"]


def test_the_file_is_sorted_with_one_item_a_line(tmp_path: Path) -> None:
    save_health(tmp_path, {"https://b.org": LINKS[URL], "https://a.org": LINKS[URL]})
    assert (tmp_path / "docs" / "links.json").read_text() == (
        '{\n "links": {\n'
        '  "https://a.org": {\n   "last_alive": "2026-11-01",\n   "state": "alive"\n  },\n'
        '  "https://b.org": {\n   "last_alive": "2026-11-01",\n   "state": "alive"\n  }\n'
        ' },\n "schema": 1\n}\n'
    )


def test_a_killed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_health(tmp_path, LINKS)

    def interrupt_save(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt_save)
    with pytest.raises(KeyboardInterrupt):
        save_health(tmp_path, {})
    assert load_health(tmp_path) == LINKS and len(list((tmp_path / "docs").iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not complete JSON"),
        ('{"schema": 1, "links": {', "is not complete JSON"),
        (b"\xff\xfe", "is not complete JSON"),
        ("[" * 100_000, "is not complete JSON"),
        ("[]", "file is not an object"),
        ('{"schema": 1}', "file lacks 'links'"),
        ('{"schema": 1, "links": {}, "more": 1}', "file has the unknown key 'more'"),
        ('{"schema": 2, "links": {}}', "has schema 2"),
        ('{"schema": true, "links": {}}', "file.schema is True"),
        ('{"schema": 1, "links": []}', "file.links is not an object"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    write_health(tmp_path, text)
    assert words in catch_refusal(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    write_health(tmp_path, " " * (health.LARGEST + 1))
    assert "over the limit" in catch_refusal(tmp_path)


def test_a_folder_in_its_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "docs" / "links.json").mkdir(parents=True)
    assert "cannot be read" in catch_refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "dead"}, "entry.state is 'dead', not one of alive, moved"),
        ({"state": ["gone"]}, "entry.state is ['gone'], not one of"),
        ({"colour": "red"}, "entry has the unknown key 'colour'"),
        ({"since": "2026-11-31"}, "since is '2026-11-31', not a day"),
        ({"since": "20261101"}, "since is '20261101', not a day"),
        ({"since": 20261101}, "not a day"),
        ({"last_alive": "yesterday"}, "last_alive is 'yesterday'"),
        ({"archived": "https://evil.example.org/"}, "archived is not at web.archive.org"),
        ({"archived": "javascript:alert(1)"}, "archived is not an address"),
        ({"archived": "http://web.archive.org/x"}, "archived is not an https address"),
        ({"moved_to": "https://b.org/x"}, "moved and moved_to go together"),
        ({"title_there": "a\nb"}, "title_there is not plain text"),
        ({"title_there": "\x1b[31m"}, "title_there is not plain text"),
        ({"title_there": "x" * 501}, "title_there is not plain text"),
        ({"title_there": ""}, "title_there is not plain text"),
        ({"says": "<script>"}, "entry.says is '<script>'"),
        ({"failures": -1}, "failures is not a count"),
        ({"failures": True}, "failures is not a count"),
        ({"absences": 10**30}, "absences is not a count"),
        ({"since": None}, "entry.since is None, not a day"),
    ],
)
def test_a_hostile_entry_is_one_clear_line(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    entry = {"state": "gone", "since": "2026-11-01", **change}
    write_health(tmp_path, json.dumps({"schema": 1, "links": {URL: entry}}))
    said = catch_refusal(tmp_path)
    assert words in said and URL in said


@pytest.mark.parametrize("url", ["x", "http://a.org", "https://a b.org", "https://a.org/\x1b[1m"])
def test_a_hostile_key_is_one_clear_line(tmp_path: Path, url: str) -> None:
    write_health(tmp_path, json.dumps({"schema": 1, "links": {url: {"state": "alive"}}}))
    assert "the key " in catch_refusal(tmp_path)


def test_an_entry_that_is_no_object(tmp_path: Path) -> None:
    write_health(tmp_path, json.dumps({"schema": 1, "links": {URL: None}}))
    assert f"{URL}: entry is not an object" in catch_refusal(tmp_path)


def test_nothing_is_saved_that_could_not_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ShelfError):
        save_health(
            tmp_path, {URL: Health("failing", since="2026-11-01", archived="https://evil.org/")}
        )
    assert not (tmp_path / "docs").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
KEYS = st.sampled_from([*Health.__dataclass_fields__, "other"])


@given(entries=st.dictionaries(st.just(URL) | st.text(max_size=9), st.dictionaries(KEYS, JSON)))
def test_any_json_is_loaded_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, object]
) -> None:
    root = tmp_path_factory.mktemp("any")
    write_health(root, json.dumps({"schema": 1, "links": entries}))
    try:
        found = load_health(root)
    except ShelfError as error:
        assert len(error.findings) == 1 and "\n" not in str(error)
    else:
        assert save_health(root, found) in (True, False) and load_health(root) == found


@given(st.text(max_size=700))
def test_a_title_is_kept_as_it_will_be_loaded(text: str) -> None:
    kept = health.clean_title(text)
    assert kept is None or (health.clean_title(kept) == kept and len(kept) <= health.LONGEST)


HERE = "https://docs.example.org/guide/tiles.html"


@pytest.mark.parametrize(
    ("url", "steps", "target"),
    [
        (HERE, [("https://new.example.com/tiles", 301)], "https://new.example.com/tiles"),
        (HERE, [("https://new.example.com/tiles", 308)], "https://new.example.com/tiles"),
        (HERE, [("http://new.example.com/tiles", 301)], "https://new.example.com/tiles"),
        (HERE, [("https://a.org/x", 301), ("https://b.org/x", 301)], "https://b.org/x"),
        (HERE, [("https://a.org/x", 301), ("https://b.org/x", 302)], "https://a.org/x"),
        (HERE, [("https://a.org/x?utm_source=y&z=1", 301)], "https://a.org/x?z=1"),
        (
            "https://github.com/facebookresearch/llama-recipes",
            [("https://github.com/meta-llama/llama-cookbook", 301)],
            "https://github.com/meta-llama/llama-cookbook",
        ),
        (HERE, [("https://a.org/x", 302), ("https://b.org/x", 301)], None),
        (HERE, [("https://a.org/x", 307)], None),
        (HERE, [("http://docs.example.org/guide/tiles.html", 301), (HERE, 301)], None),
        (HERE, [("https://www.docs.example.org/guide/tiles", 301)], None),
        (HERE, [("https://docs.example.org/en/guide/tiles/", 301)], None),
        (HERE, [("https://docs.example.org/en-us/guide/tiles/index.html", 301)], None),
        (HERE, [("https://docs.example.org/Guide/Tiles.html", 301)], None),
        (HERE, [("https://login.example.org/?next=guide", 301)], None),
        (HERE, [("https://docs.example.org/consent?to=guide", 301), (HERE, 302)], None),
        (HERE, [("https://a.org/x", 301), ("https://a.org/signin", 301)], "https://a.org/x"),
        ("https://example.org", [("https://example.org/blog/2026/", 301)], None),
        ("https://example.org/", [("https://www.example.org/start.html", 301)], None),
        ("https://example.org/", [("https://example.com/", 301)], "https://example.com/"),
        ("https://arxiv.org/pdf/2309.06180", [("https://arxiv.org/pdf/2309.06180v2", 301)], None),
        ("https://doi.org/10.1145/1", [("https://dl.acm.org/doi/10.1145/1", 302)], None),
        (HERE, [("ftp://a.org/x", 301)], None),
        (HERE, [(f"https://a.org/{'x' * 5000}", 301)], None),
        (HERE, [("https://user@a.org/x", 301)], None),
        (HERE, [], None),
    ],
)
def test_moved(url: str, steps: list[tuple[str, int]], target: str | None) -> None:
    assert permanent_target(url, [Redirect(*step) for step in steps]) == target


@pytest.mark.parametrize(
    ("url", "before"),
    [
        ("https://example.org/login", True),
        ("https://example.org/users/sign_in", False),
        ("https://example.org/users/sign-in?to=x", True),
        ("https://accounts.google.com/v3/x", True),
        ("https://www.zhihu.com/account/unhuman?type=unhuman", True),
        ("https://consent.youtube.com/m", True),
        ("https://example.org/blog/login-free-web", False),
        ("https://example.org/authors/", False),
        ("https://example.org/author", False),
        ("https://example.org/verification-of-kernels", False),
    ],
)
def test_barrier(url: str, before: bool) -> None:
    assert is_barrier(url) is before


@given(st.text(max_size=60), st.sampled_from([301, 302, 308]))
def test_any_target_is_an_https_address_or_none(text: str, code: int) -> None:
    for target in (text, f"https://{text}", f"https://example.com/{text}"):
        found = permanent_target(HERE, [Redirect(target, code)])
        assert found is None or address_problem(found) is None
        assert is_barrier(target) in (True, False)
