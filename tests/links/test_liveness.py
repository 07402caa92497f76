"""Every way in which a host answers, or does not, played by a server here and asked by lychee.

One bad day is nothing: what a row of answers makes of a link.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_server import Detour, closed_port, needs_lychee, serve_web

from warpshelf.core.findings import ShelfError
from warpshelf.links import health, liveness
from warpshelf.links.health import Health, Redirect
from warpshelf.links.liveness import (
    ROW,
    SPAN,
    LinkResponse,
    Outcome,
    WebConfig,
    check_urls,
    judge_response,
    next_state,
)

PUZZLE = "<title>Just a moment...</title>"
AT = "https://site.example.org"


@pytest.fixture(scope="module")
def checked_outcomes() -> Iterator[tuple[dict[str, Outcome], dict[str, int]]]:
    """The answers of one check over everything that can happen, and what was sent of a body."""
    over = threading.Event()
    sent = {"huge": 0}

    def answer_slowly(handler: BaseHTTPRequestHandler) -> None:
        over.wait(5)
        handler.close_connection = True

    def send_huge_body(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", str(10**11))
        handler.end_headers()
        try:
            while sent["huge"] < 10**9:
                handler.wfile.write(b"x" * 65_536)
                sent["huge"] += 65_536
        except OSError:
            pass

    def ask_for_cookie(handler: BaseHTTPRequestHandler) -> None:
        known = "seen=1" in handler.headers.get("cookie", "")
        handler.send_response(200 if known else 302)
        handler.send_header("content-length", "0")
        handler.send_header("connection", "close")
        if not known:
            handler.send_header("set-cookie", "seen=1")
            handler.send_header("location", handler.path)
        handler.end_headers()

    with serve_web() as web:
        detour = Detour(web)
        detour.elsewhere["refused.example.org"] = f"http://127.0.0.1:{closed_port()}/https"
        # No name has a part of 64 letters, so no name server is asked.
        detour.elsewhere["lost.example.org"] = f"https://{'a' * 64}.warpshelf.org/https"
        detour.elsewhere["unsure.example.org"] = f"https://{'b' * 64}.warpshelf.org/https"
        # Plain HTTP where TLS is spoken to it.
        detour.elsewhere["tls.example.org"] = web.base.replace("http:", "https:") + "/https"
        detour.known = {"lost.example.org": False, "unsure.example.org": None}
        for code in (202, 400, 401, 403, 404, 405, 406, 408, 410, 418, 451, 500, 502, 503, 999):
            detour.set_answer(f"{AT}/{code}", code)
        detour.set_answer(f"{AT}/alive")
        detour.set_answer(f"{AT}/busy", 429)
        detour.set_answer(f"{AT}/old-puzzle", 503, PUZZLE)
        detour.set_answer(f"{AT}/new-puzzle", 202, x_amzn_waf_action="challenge")
        detour.set_redirect(f"{AT}/moved", f"{AT}/moved-again")
        detour.set_redirect(f"{AT}/moved-again", f"{AT}/alive?utm_source=old", 308)
        detour.set_redirect(f"{AT}/half-moved", f"{AT}/for-now")
        detour.set_redirect(f"{AT}/for-now", f"{AT}/alive", 302)
        detour.set_redirect(f"{AT}/slash", f"{AT}/slash/")
        detour.set_answer(f"{AT}/slash/")
        detour.set_redirect(f"{AT}/off", f"{AT}/404")
        detour.set_redirect(f"{AT}/members", f"{AT}/login?next=members", 302)
        detour.set_answer(f"{AT}/login")
        detour.set_redirect(f"{AT}/loop", f"{AT}/loop")
        detour.set_answer("https://zhuanlan.zhihu.com/p/1", 500)
        detour.set_answer("https://zhuanlan.zhihu.com/p/2", 404)
        web.answers[detour.locate_path(f"{AT}/slow")] = answer_slowly
        web.answers[detour.locate_path("https://dl.acm.org/slow")] = answer_slowly
        web.answers[detour.locate_path(f"{AT}/huge")] = send_huge_body
        web.answers[detour.locate_path(f"{AT}/cookie")] = ask_for_cookie
        urls = [detour.restore_address(f"{web.base}{path}") for path in web.answers]
        odd = f"{AT}/%61%20(b)/%E6%B5%81?x=1&y=%3C2%3E"
        urls.append(detour.set_answer(odd))
        urls += [f"https://{name}.example.org/x" for name in ("refused", "lost", "unsure", "tls")]
        found = check_urls(urls, detour.make_config(), 60)
        over.set()
        assert set(found) == set(urls)
        yield found, sent


CASES = {
    "/alive": Outcome("alive"),
    "/202": Outcome("alive"),
    "/huge": Outcome("alive"),
    "/cookie": Outcome("alive"),
    "/slash": Outcome("alive"),
    "/%61%20(b)/%E6%B5%81?x=1&y=%3C2%3E": Outcome("alive"),
    "/moved": Outcome("moved", None, f"{AT}/alive"),
    "/half-moved": Outcome("moved", None, f"{AT}/for-now"),
    "/for-now": Outcome("alive"),
    "/404": Outcome("gone", "answered 404"),
    "/410": Outcome("gone", "answered 410"),
    "/off": Outcome("gone", "answered 404"),
    "/members": Outcome("blocked", "asks for a login"),
    "/busy": Outcome("blocked", "answered 429"),
    "/old-puzzle": Outcome("blocked", "answered 503"),
    "/new-puzzle": Outcome("blocked", "answered 202"),
    **{
        f"/{code}": Outcome("blocked", f"answered {code}")
        for code in (400, 401, 403, 405, 406, 418, 451, 999)
    },
    **{
        f"/{code}": Outcome("unreachable", f"answered {code}")
        for code in (408, 500, 502, 503)
    },
    "/loop": Outcome("unreachable", "redirects without end"),
    "/slow": Outcome("unreachable", "timed out", heard=False),
    "https://dl.acm.org/slow": Outcome("blocked", "timed out", heard=False),
    "https://zhuanlan.zhihu.com/p/1": Outcome("blocked", "answered 500"),
    "https://zhuanlan.zhihu.com/p/2": Outcome("gone", "answered 404"),
    "https://refused.example.org/x": Outcome("unreachable", "refused the connection", heard=False),
    "https://lost.example.org/x": Outcome("gone", "has a host without an address", heard=False),
    "https://unsure.example.org/x": Outcome("unreachable", "gave no answer", heard=False),
    "https://tls.example.org/x": Outcome("unreachable", "failed at TLS", heard=False),
}  # fmt: skip


@needs_lychee
@pytest.mark.parametrize("url", CASES)
def test_each_answer_is_told_apart(
    checked_outcomes: tuple[dict[str, Outcome], dict[str, int]], url: str
) -> None:
    whole = url if url.startswith("https://") else AT + url
    assert checked_outcomes[0][whole] == CASES[url]


@needs_lychee
def test_no_body_is_downloaded(checked_outcomes: tuple[dict[str, Outcome], dict[str, int]]) -> None:
    assert checked_outcomes[1]["huge"] < 20_000_000  # what fits into the buffers of a connection


@needs_lychee
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_of_its_own_is_refused(detour: Detour, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    words += f" -subj /CN=localhost -keyout {key} -out {certificate}"
    subprocess.run(words.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        base = f"https://localhost:{server.server_port}/https"
        detour.elsewhere["own.example.org"] = base
        found = check_urls(["https://own.example.org/"], detour.make_config(), 20)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    says = Outcome("unreachable", "failed at TLS", heard=False)
    assert found == {"https://own.example.org/": says}


@needs_lychee
def test_a_host_is_asked_a_few_times_at_once_and_with_pauses(detour: Detour) -> None:
    moments: list[float] = []

    def note_moment(handler: BaseHTTPRequestHandler) -> None:
        moments.append(time.monotonic())
        handler.send_response(200)
        handler.send_header("content-length", "0")
        handler.send_header("connection", "close")
        handler.end_headers()

    urls = [f"{AT}/{number}" for number in range(4)]
    for url in urls:
        detour.web.answers[detour.locate_path(url)] = note_moment
    found = check_urls(urls, detour.make_config(pause=0.25), 20)
    assert {answer.kind for answer in found.values()} == {"alive"}
    pauses = [after - before for before, after in zip(moments, moments[1:], strict=False)]
    assert len(pauses) == 3 and sum(pauses) > 0.6  # each alone is at the mercy of the scheduler


@needs_lychee
def test_retry_after_is_waited_for(detour: Detour) -> None:
    moments: list[float] = []

    def answer_busy(handler: BaseHTTPRequestHandler) -> None:
        moments.append(time.monotonic())
        handler.send_response(429 if len(moments) == 1 else 200)
        handler.send_header("content-length", "0")
        handler.send_header("connection", "close")
        if len(moments) == 1:
            handler.send_header("retry-after", "3")
        handler.end_headers()

    detour.web.answers[detour.locate_path(f"{AT}/busy")] = answer_busy
    assert check_urls([f"{AT}/busy"], detour.make_config(retries=1), 20) == {
        f"{AT}/busy": Outcome("alive")
    }
    assert moments[1] - moments[0] >= 3


@needs_lychee
def test_a_host_that_asks_for_an_hour_holds_up_nobody_else(
    detour: Detour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its links are left for the next check, and what was said by then is kept."""
    monkeypatch.setattr(liveness, "LONGEST", 1.5)
    monkeypatch.setattr(liveness, "PER_HOST", 4)
    detour.elsewhere["busy.example.org"] = detour.web.base.replace("127.0.0.1", "localhost")
    busy = [f"https://busy.example.org/{number}" for number in range(6)]
    for url in busy:
        detour.set_answer(url, 429, retry_after="3600")
    others = [detour.set_answer(f"{AT}/{number}") for number in range(5)]
    found = check_urls([*busy, *others, f"{AT}/gone"], detour.make_config(), 30)
    assert {url: answer.kind for url, answer in found.items() if url not in busy} == {
        **dict.fromkeys(others, "alive"), f"{AT}/gone": "gone"
    }  # fmt: skip
    assert len(set(busy) & set(found)) <= 2  # as many as were under way when it asked to wait
    assert [detour.count_requests(url) for url in busy[4:]] == [0, 0]


@needs_lychee
def test_the_budget_ends_a_check(detour: Detour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "BATCH", 1)
    clock = count()  # a second at each look
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    urls = [detour.set_answer(f"{AT}/{number}") for number in range(30)]
    heard: list[int] = []
    found = check_urls(urls, detour.make_config(), 20, heard.append)
    assert 0 < len(found) < 30 and heard[-1] == len(found)
    assert list(found) == urls[: len(found)]  # those whose turn it was first


def test_batches_have_few_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "BATCH", 5)
    monkeypatch.setattr(liveness, "PER_HOST", 2)
    urls = [f"https://www.a.org/{n}" for n in range(5)] + [f"https://b.org/{n}" for n in range(4)]
    batches = list(liveness.batch_urls(urls))
    assert sorted(url for batch in batches for url in batch) == sorted(urls)
    assert [len(batch) for batch in batches] == [4, 4, 1]


def test_without_lychee_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ShelfError) as caught:
        check_urls([AT], WebConfig(), 5)
    assert str(caught.value) == (
        "lychee: is not installed in this environment; "
        "install the extra: `.venv/bin/pip install -c constraints.txt -e '.[links]'`"
    )


@pytest.mark.parametrize("said", ["not JSON", "[]", '{"success_map": {"x": [{}]}}', "{}"])
def test_what_lychee_cannot_have_said_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    program = tmp_path / "lychee"
    program.write_text(
        f"#!{sys.executable}\nprint({said!r})\nraise SystemExit('broken \\x1b[1m')\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(liveness, "_find_lychee", lambda: str(program))
    with pytest.raises(ShelfError) as caught:
        check_urls([AT], WebConfig(), 5)
    assert "ended with 1 and without a readable answer" in str(caught.value)
    assert "it said: broken \\x1b[1m" in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_is_looked_up_only_where_it_may_be_at_fault() -> None:
    lost = LinkResponse(trouble=liveness.UNRESOLVED)
    assert judge_response(AT, lost, resolves=False).kind == "gone"
    assert (
        judge_response(AT, lost, resolves=None).kind
        == judge_response(AT, lost).kind
        == "unreachable"
    )
    assert (
        judge_response(AT, LinkResponse(trouble="timed out"), resolves=False).kind == "unreachable"
    )
    assert liveness._host_resolves("a" * 64 + ".example.org") is not True


def test_a_permanent_redirect_to_a_refusal_is_no_move() -> None:
    there = (Redirect("https://new.example.org/", 301),)
    assert judge_response(AT + "/x", LinkResponse(403, "", there)).kind == "blocked"
    assert (
        judge_response(AT + "/x", LinkResponse(200, "", there)).moved_to
        == "https://new.example.org/"
    )


URL = "https://example.org/x"
FIRST = date(2026, 11, 1)
KINDS = {
    "a": Outcome("alive"),
    "m": Outcome("moved", None, "https://new.example.org/x"),
    "g": Outcome("gone", "answered 404"),
    "u": Outcome("unreachable", "timed out"),
    "b": Outcome("blocked", "answered 403"),
}


def replay_story(story: str, days: list[int]) -> Health:
    """The state after the answers of `story`, given on `days` after the first."""
    state = None
    for letter, day in zip(story, days, strict=True):
        state = next_state(state, KINDS[letter], FIRST + timedelta(days=day))
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("story", "days", "state", "since"),
    [
        ("a", [0], "alive", None),
        ("g", [0], "failing", 0),
        ("gg", [0, 30], "failing", 0),
        ("ggg", [0, 1, 5], "failing", 0),
        ("ggg", [0, 1, 6], "gone", 0),
        ("ggg", [0, 7, 14], "gone", 0),
        ("ggg", [0, 0, 9], "failing", 0),  # a second check on one day counts for nothing
        ("gggg", [0, 0, 0, 0], "failing", 0),
        ("gaggg", [0, 1, 2, 3, 4], "failing", 2),
        ("gaggg", [0, 1, 2, 3, 8], "gone", 2),
        ("gbggg", [0, 1, 2, 3, 4], "failing", 2),  # a refusal ends a row
        ("guugg", [0, 1, 2, 8, 9], "gone", 0),  # silence neither ends nor lengthens it
        ("ugg", [0, 8, 9], "failing", 0),
        ("uuu", [0, 7, 14], "unreachable", 0),
        ("uuu", [0, 1, 2], "failing", 0),
        ("uuuggg", [0, 7, 14, 21, 28, 35], "gone", 0),
        ("gggu", [0, 7, 14, 21], "gone", 0),
        ("ggga", [0, 7, 14, 21], "alive", None),
        ("gggb", [0, 7, 14, 21], "blocked", 21),
        ("gggm", [0, 7, 14, 21], "moved", 21),
        ("mm", [0, 7], "moved", 0),
        ("bb", [0, 7], "blocked", 0),
        ("mgm", [0, 7, 14], "moved", 14),
    ],
)
def test_rows(story: str, days: list[int], state: str, since: int | None) -> None:
    found = replay_story(story, days)
    assert found.state == state
    assert found.since == (None if since is None else (FIRST + timedelta(since)).isoformat())


def test_another_target_begins_anew() -> None:
    state = replay_story("m", [0])
    other = Outcome("moved", None, "https://newer.example.org/x")
    found = next_state(state, other, FIRST + timedelta(days=7))
    assert (found.moved_to, found.since) == (other.moved_to, "2026-11-08")


def test_the_day_last_alive_is_kept_and_seldom_renewed() -> None:
    assert replay_story("aa", [0, 27]).last_alive == "2026-11-01"
    assert replay_story("aa", [0, 28]).last_alive == "2026-11-29"
    assert replay_story("aggg", [0, 7, 14, 21]).last_alive == "2026-11-01"
    assert replay_story("aga", [0, 7, 8]).last_alive == "2026-11-09"
    assert replay_story("ab", [0, 7]).last_alive == "2026-11-01"
    assert replay_story("gm", [0, 7]).last_alive == "2026-11-08"
    assert replay_story("g", [0]).last_alive is None


def test_a_settled_state_stays_as_it_is() -> None:
    """Or the file would change at every check."""
    gone, lost = replay_story("ggg", [0, 7, 14]), replay_story("uuu", [0, 7, 14])
    for day in (21, 28, 400):
        assert next_state(gone, KINDS["g"], FIRST + timedelta(days=day)) == gone
        assert next_state(lost, KINDS["u"], FIRST + timedelta(days=day)) == lost
    assert replay_story("aaaa", [0, 7, 14, 21]) == replay_story("a", [0])


def test_what_else_is_known_stays() -> None:
    known = Health("alive", last_alive="2026-11-01", title_there="A title")
    failing = next_state(known, KINDS["g"], FIRST)
    assert failing.title_there == "A title" and failing.last_alive == "2026-11-01"
    kept = Health("failing", since="2026-11-01", archived="https://web.archive.org/x", failures=1)
    assert next_state(kept, KINDS["g"], FIRST + timedelta(days=1)).archived == kept.archived
    assert next_state(kept, KINDS["a"], FIRST + timedelta(days=1)).archived is None


def test_a_clock_set_back_counts_nothing() -> None:
    found = replay_story("ggg", [10, 5, 0])
    assert (found.state, found.failures) == ("failing", 1)


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 20)), min_size=1))
def test_gone_takes_a_row_and_refusals_never_count(steps: list[tuple[str, int]]) -> None:
    day, state, row = FIRST, None, []
    for letter, wait in steps:
        day += timedelta(days=wait)
        state = next_state(state, KINDS[letter], day)
        row = [*row, (letter, day)] if letter in "gu" else []
        assert health.parse_entry(URL, health.health_entry(state)) == state
        absent = {when for kind, when in row if kind == "g"}
        if state.state == "gone":
            assert len(absent) >= ROW and (row[-1][1] - row[0][1]).days >= SPAN
        if state.state == "blocked":
            assert letter == "b"
