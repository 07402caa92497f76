"""A check from end to end: lychee asks a server here, and the file says what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from conftest import Trial
from web_server import CANARIES, Detour, closed_port, needs_lychee

from warpshelf.cli import links as commands
from warpshelf.core.findings import ShelfError
from warpshelf.links import check_links, health
from warpshelf.links.check_links import CheckResult, run_check
from warpshelf.links.health import Health, load_health

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
WRONG = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"
ARXIV = """\
<feed xmlns="http://www.w3.org/2005/Atom"><entry>
<id>http://arxiv.org/abs/2501.12948v1</id><title>{}</title></entry></feed>
"""
ENTRY = """\
- id: {id}
  title: {title}
  url: {url}
  kind: post
  why: Says how.
"""
AT = "https://site.example.org"
COPY = "http://web.archive.org/web/20200101000000/https://site.example.org/gone"


def write_topic(trial: Trial, topic: str, urls: dict[str, str]) -> None:
    """A topic whose list has an entry for each url, by its title."""
    trial.add_page(f"{topic}.md", f'# Topic\n\n--8<-- "readings/{topic}.md"\n')
    entries = [
        ENTRY.format(id=f"{topic.replace('/', '-')}-{number}", title=title, url=url)
        for number, (title, url) in enumerate(urls.items())
    ]
    (trial.root / "docs" / f"{topic}.yml").write_text("".join(entries))


def read_kept_health(trial: Trial) -> dict:
    return json.loads((trial.root / "docs" / "links.json").read_text())["links"]


def run_link_check(
    trial: Trial, detour: Detour, today: str = "2026-11-01", **options: object
) -> CheckResult:
    return run_check(trial.root, detour.make_services(today), **{"budget": 60, **options})


@needs_lychee
def test_the_states_are_recorded(trial: Trial, detour: Detour) -> None:
    detour.known["lost.example.org"] = False
    detour.elsewhere["lost.example.org"] = f"https://{'a' * 64}.warpshelf.org/https"
    urls = {
        "Alive": detour.set_answer(f"{AT}/alive"),
        "Moved": detour.set_redirect(f"{AT}/moved", f"{AT}/alive"),
        "Gone": f"{AT}/gone",
        "Lost": "https://lost.example.org/",
        "Blocked": detour.set_answer(f"{AT}/blocked", 403),
        "Down": detour.set_answer(f"{AT}/down", 500),
    }
    write_topic(trial, "tiles", urls)
    detour.web.set_answer("/available", json.dumps(
        {"archived_snapshots": {"closest": {"available": True, "url": COPY}}}))  # fmt: skip
    found = run_link_check(trial, detour)
    copy = "https" + COPY.removeprefix("http")
    failing = {"state": "failing", "since": "2026-11-01", "counted": "2026-11-01", "failures": 1,
               "archived": copy}  # fmt: skip
    assert read_kept_health(trial) == {
        urls["Alive"]: {"state": "alive", "last_alive": "2026-11-01"},
        urls["Moved"]: {"state": "moved", "since": "2026-11-01", "last_alive": "2026-11-01",
                        "moved_to": urls["Alive"]},
        urls["Gone"]: {**failing, "absences": 1, "says": "answered 404"},
        urls["Lost"]: {**failing, "absences": 1, "says": "has a host without an address"},
        urls["Blocked"]: {"state": "blocked", "since": "2026-11-01", "says": "answered 403"},
        urls["Down"]: {**failing, "says": "answered 500"},
    }  # fmt: skip
    assert (found.asked, found.fresh, found.left, len(found.links)) == (6, 0, 0, 6)
    assert load_health(trial.root) == found.health
    # The answers of two more weeks settle it; from then on the file stays as it is.
    run_link_check(trial, detour, "2026-11-08")
    assert read_kept_health(trial)[urls["Gone"]]["state"] == "failing"
    run_link_check(trial, detour, "2026-11-15")
    states = {title: read_kept_health(trial)[url]["state"] for title, url in urls.items()}
    assert states == {
        "Alive": "alive", "Moved": "moved", "Gone": "gone", "Lost": "gone", "Blocked": "blocked",
        "Down": "unreachable",
    }  # fmt: skip
    text = (trial.root / "docs" / "links.json").read_bytes()
    run_link_check(trial, detour, "2026-11-22")
    assert (trial.root / "docs" / "links.json").read_bytes() == text
    asked = [query["url"] for path, query, _ in detour.web.asked if path == "/available"]
    assert asked == [[urls["Gone"]], [urls["Lost"]], [urls["Down"]]]  # once each


@needs_lychee
def test_what_was_seen_alive_lately_is_not_asked_again(trial: Trial, detour: Detour) -> None:
    urls = {"A": detour.set_answer(f"{AT}/a"), "B": f"{AT}/b"}
    write_topic(trial, "tiles", urls)
    run_link_check(trial, detour)
    found = run_link_check(trial, detour, "2026-11-02")
    assert (found.asked, found.fresh) == (1, 1) and set(found.health) == set(urls.values())
    assert (detour.count_requests(urls["A"]), detour.count_requests(urls["B"])) == (1, 2)
    run_link_check(trial, detour, force=True)
    assert detour.count_requests(urls["A"]) == 2
    cache = trial.root / ".shelf" / "links.json"
    for broken in ("{", "[]", '{"x": 1}', '{"x": "yesterday"}', "null"):
        cache.write_text(broken)
        run_link_check(trial, detour)
    assert detour.count_requests(urls["A"]) == 7
    # A cache that is left over tells nothing of a link that has no state, or another one.
    (trial.root / "docs" / "links.json").unlink()
    run_link_check(trial, detour)
    assert detour.count_requests(urls["A"]) == 8 and urls["A"] in read_kept_health(trial)


@needs_lychee
def test_a_link_to_another_paper_is_found(trial: Trial, detour: Detour) -> None:
    """A reading group's notes once had the paper on PagedAttention link to another one."""
    url = detour.set_answer("https://arxiv.org/abs/2501.12948")
    write_topic(trial, "sessions", {PAGED: url})
    detour.web.set_answer("/arxiv", ARXIV.format(WRONG), "application/atom+xml")
    found = run_link_check(trial, detour)
    assert [link.url for link in found.misnamed_links] == [url]
    assert read_kept_health(trial)[url] == {
        "state": "alive", "last_alive": "2026-11-01", "title_there": WRONG
    }  # fmt: skip
    # It is asked for again until it fits: the entry may be mended, and so may the target.
    assert [link.url for link in run_link_check(trial, detour).misnamed_links] == [url]
    detour.web.set_answer("/arxiv", ARXIV.format(PAGED), "application/atom+xml")
    assert run_link_check(trial, detour).misnamed_links == []
    count = len([path for path, _, _ in detour.web.asked if path == "/arxiv"])
    run_link_check(trial, detour)
    assert len([path for path, _, _ in detour.web.asked if path == "/arxiv"]) == count == 3


@needs_lychee
def test_only_a_topic_or_some_links(trial: Trial, detour: Detour) -> None:
    one, two, both = (detour.set_answer(f"{AT}/{name}") for name in ("one", "two", "both"))
    write_topic(trial, "kernels/one", {"One": one, "Both": both})
    write_topic(trial, "kernels/two", {"Two": two})
    assert list(run_link_check(trial, detour, topic="kernels/two").health) == [two]
    assert detour.count_requests(one) == 0
    assert list(run_link_check(trial, detour, urls={one, f"{AT}/unknown"}).health) == [one]
    assert (
        run_link_check(trial, detour, urls=set()).links == [] and detour.count_requests(both) == 0
    )
    assert set(read_kept_health(trial)) == {one, two}  # what was found out before stays
    with pytest.raises(ShelfError) as caught:
        run_link_check(trial, detour, topic="kernels/tow")
    assert str(caught.value) == (
        "--topic: there is no topic 'kernels/tow'; write --topic kernels/two"
    )


@needs_lychee
def test_links_that_left_the_shelf_leave_the_file(trial: Trial, detour: Detour) -> None:
    one, two = detour.set_answer(f"{AT}/one"), detour.set_answer(f"{AT}/two")
    write_topic(trial, "tiles", {"One": one, "Two": two})
    run_link_check(trial, detour)
    write_topic(trial, "tiles", {"One": one})
    (trial.root / "docs" / "broken.yml").write_text("- id: [\n")
    found = run_link_check(trial, detour)
    # a list that cannot be read may still name it
    assert set(read_kept_health(trial)) == {one, two}
    assert found.unread
    (trial.root / "docs" / "broken.yml").unlink()
    run_link_check(trial, detour)
    assert set(read_kept_health(trial)) == {one}


def test_those_that_fail_come_first_then_new_ones_then_the_oldest() -> None:
    states = {
        "alive": Health("alive", last_alive="2026-11-01"),
        "older": Health("alive", last_alive="2026-10-01"),
        "failing": Health("failing", since="2026-10-01"),
        "blocked": Health("blocked", since="2026-10-01"),
    }
    order = sorted([*states, "new"], key=lambda name: check_links.check_order(states.get(name)))
    assert order == ["failing", "new", "blocked", "older", "alive"]


@needs_lychee
@pytest.mark.parametrize("when", ["before", "after"])
def test_with_no_network_nothing_is_recorded(trial: Trial, detour: Detour, when: str) -> None:
    """Neither where there is none at all, nor where it goes while links are asked for."""
    nowhere = f"http://127.0.0.1:{closed_port()}/https"
    url = "https://down.example.org/"
    detour.elsewhere["down.example.org"] = nowhere
    write_topic(trial, "tiles", {"Alive": detour.set_answer(f"{AT}/a"), "Down": url})
    run_link_check(trial, detour)
    text = (trial.root / "docs" / "links.json").read_bytes()
    means = detour.make_services("2026-11-08")
    if when == "before":
        detour.elsewhere |= {httpx.URL(canary).host: nowhere for canary in CANARIES}
    else:

        def lose_network(what: str, *_: int) -> None:
            detour.elsewhere.update({httpx.URL(canary).host: nowhere for canary in CANARIES[1:]})

        means.tell = lose_network
    with pytest.raises(ShelfError) as caught:
        run_check(trial.root, means, budget=60, force=True)
    answered = 0 if when == "before" else 1
    assert str(caught.value) == (
        f"links: no network: {answered} of {', '.join(CANARIES)} answered; nothing was recorded; "
        "check the connection and run it again"
    )
    assert (trial.root / "docs" / "links.json").read_bytes() == text
    assert detour.count_requests(f"{AT}/a") == (1 if when == "before" else 2)


@needs_lychee
def test_one_canary_may_be_ill(trial: Trial, detour: Detour) -> None:
    write_topic(trial, "tiles", {"Down": "https://down.example.org/"})
    nowhere = f"http://127.0.0.1:{closed_port()}/https"
    detour.elsewhere |= {"down.example.org": nowhere, httpx.URL(CANARIES[0]).host: nowhere}
    assert run_link_check(trial, detour).health["https://down.example.org/"].state == "failing"


def test_a_damaged_file_stops_the_check_and_stays(trial: Trial, detour: Detour) -> None:
    write_topic(trial, "tiles", {"Alive": detour.set_answer(f"{AT}/a")})
    path = trial.root / "docs" / "links.json"
    path.write_text('{"schema": 1, "links": {')
    with pytest.raises(ShelfError, match="^docs/links.json: is not complete JSON"):
        run_link_check(trial, detour)
    assert path.read_text() == '{"schema": 1, "links": {' and not detour.web.asked


@needs_lychee
def test_what_the_readings_say_is_not_touched(trial: Trial, detour: Detour) -> None:
    write_topic(trial, "tiles", {"Moved": detour.set_redirect(f"{AT}/moved", f"{AT}/alive")})
    detour.set_answer(f"{AT}/alive")
    path = trial.root / "docs" / "tiles.yml"
    before = path.read_bytes()
    run_link_check(trial, detour)
    assert path.read_bytes() == before
    new = {p.relative_to(trial.root).as_posix() for p in trial.root.rglob("*.json")}
    assert new == {"docs/links.json", ".shelf/links.json"}


# The command.


@pytest.fixture
def detoured_trial(trial: Trial, detour: Detour, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A project whose `shelf links check` asks the server here."""
    monkeypatch.setattr(commands, "check_services", lambda tell: detour.make_services("2026-11-01"))
    return trial


@needs_lychee
def test_the_command_fails_for_what_is_to_be_mended_only(
    detoured_trial: Trial, detour: Detour
) -> None:
    write_topic(
        detoured_trial,
        "tiles",
        {"Down": detour.set_answer(f"{AT}/down", 500), "Gone": f"{AT}/gone"},
    )
    done = detoured_trial.run_shelf("links", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Failing, not yet long enough to be gone: 2\n"
        f"docs/tiles.yml:3: {AT}/down fails since 2026-11-01: it answered 500\n"
        f"docs/tiles.yml:8: {AT}/gone fails since 2026-11-01: it answered 404\n"
        "2 links, 0 alive, 2 checked now\n"
    )
    detour.set_redirect(f"{AT}/gone", f"{AT}/there")
    detour.set_answer(f"{AT}/there")
    done = detoured_trial.run_shelf("links", "check")
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"Moved permanently: 1\ndocs/tiles.yml:8: {AT}/gone moved permanently to {AT}/there; "
        "check that it is the same work, then write the new address\nFailing"
    )
    state = {"state": "gone", "since": "2026-10-01", "says": "answered 404"}
    states = {"schema": 1, "links": {f"{AT}/gone": state}}
    detour.set_answer(f"{AT}/gone", 410)
    (detoured_trial.root / "docs" / "links.json").write_text(json.dumps(states))
    done = detoured_trial.run_shelf("links", "check", "--topic", "docs/tiles.yml")
    assert done.returncode == 1
    assert "Gone: 1\ndocs/tiles.yml:8: " in done.stdout


@needs_lychee
def test_the_command_answers_in_json_and_markdown(
    detoured_trial: Trial, detour: Detour, tmp_path: Path
) -> None:
    url = detour.set_answer("https://arxiv.org/abs/2501.12948")
    write_topic(detoured_trial, "tiles", {PAGED: url, "Alive": detour.set_answer(f"{AT}/a")})
    detour.web.set_answer("/arxiv", ARXIV.format(WRONG), "application/atom+xml")
    report = tmp_path / "reports" / "links.md"
    done = detoured_trial.run_shelf(
        "links", "check", "--json", "--report", str(report), "--budget", "60"
    )
    assert done.returncode == 1 and done.stderr == ""
    said = json.loads(done.stdout)
    assert said["asked"] == 2 and said["links"][1] == {
        "url": f"{AT}/a", "places": ["docs/tiles.yml:8"], "state": "alive",
        "last_alive": "2026-11-01",
    }  # fmt: skip
    [finding] = said["findings"]
    assert finding == {
        "group": "title", "path": "docs/tiles.yml", "line": 3, "fails": True,
        "what": f"{url}: the page is titled '{WRONG}', the list says '{PAGED}'",
        "mend": "correct the address or the title",
    }  # fmt: skip
    assert "## Different title: 1" in report.read_text()


def test_the_command_says_in_one_line_what_is_wrong(detoured_trial: Trial, detour: Detour) -> None:
    done = detoured_trial.run_shelf("links", "check", "--changed-since", "origin/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "--changed-since: 'origin/nowhere' is not a commit of this repository, "
        "or Git failed; fetch it, or name another\n"
    )
    assert detoured_trial.run_shelf("links", "check", "--budget", "0").returncode == 2


def test_the_real_means_are_the_real_web() -> None:
    means = commands.check_services(print)
    assert means.tell is print and means.web.there(AT) == means.web.back(AT) == AT
    assert means.today is None and not means.endpoints.private
    assert all(url.startswith("https://") for url in (*means.canaries, means.endpoints.archive))
    assert means.web.pause >= 1 and len(means.canaries) >= check_links.QUORUM


def test_the_committed_states_can_be_read() -> None:
    health.load_health(Path(__file__).resolve().parents[2])
