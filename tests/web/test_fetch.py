"""An answer from the web is bounded in size, time, hops and reach, and fails with one reason."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from web_server import Web, serve_web

from warpshelf.web import fetch
from warpshelf.web.fetch import Unreachable, fetch_url


def catch_refusal(url: str, client: httpx.Client, **options: object) -> str:
    with pytest.raises(Unreachable) as caught:
        fetch_url(url, client, **options)
    said = str(caught.value)
    assert said.isprintable() and len(said) <= 301
    return said


def test_an_answer(web: Web, client: httpx.Client) -> None:
    web.set_answer("/a", b"\xe9", "text/html; charset=ISO-8859-1")
    answer = fetch_url(f"{web.base}/a", client, private=True, accept="text/html")
    assert answer == fetch.Answer(f"{web.base}/a", "text/html", "iso-8859-1", b"\xe9", True)
    assert web.asked[0][2]["Accept"] == "text/html"


def test_only_permanent_moves_name_another_address(web: Web, client: httpx.Client) -> None:
    web.set_redirect("/a", "/b")
    web.set_redirect("/b", f"{web.base}/c", 302)
    web.set_redirect("/c", "/d", 308)
    web.set_answer("/d", "here")
    answer = fetch_url(f"{web.base}/a", client, private=True)
    assert (answer.url, answer.data) == (f"{web.base}/b", b"here")


def test_hops_are_counted(web: Web, client: httpx.Client) -> None:
    web.set_redirect("/a", "/a")
    assert "redirects more than 5 times" in catch_refusal(f"{web.base}/a", client, private=True)
    assert len(web.asked) == 6


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://x.org/", "https://", "//[", "javascript:1", "http://a b/"]
)
def test_a_redirect_leads_to_the_web_or_nowhere(web: Web, client: httpx.Client, to: str) -> None:
    web.set_redirect("/a", to)
    assert catch_refusal(f"{web.base}/a", client, private=True)
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
     "224.0.0.1", "255.255.255.255", "::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1",
     "2002:7f00:1::", "64:ff9b::10.0.0.1", "::"],
)  # fmt: skip
def test_a_name_with_a_private_address_is_refused(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(fetch, "_resolve_host", lambda *_: ["93.184.215.14", address])
    monkeypatch.setattr(fetch, "_uses_proxy", lambda *_: False)
    assert catch_refusal("https://x.org/", client) == "x.org is not on the public internet"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "https://10.0.0.1/",
     "http://x.org:8080/", "https://x.org:22/", "http://user@x.org/", "http://x.org:99999/",
     "gopher://x.org/"],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused_even_behind_a_proxy(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(fetch, "_uses_proxy", lambda *_: True)
    monkeypatch.setattr(client, "stream", lambda *_, **__: pytest.fail("it was asked for"))
    assert catch_refusal(url, client)


def test_a_name_that_answers_differently_the_next_time(
    web: Web, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked up is not trusted: the connection's own end is looked at as well."""
    monkeypatch.setattr(fetch, "_resolve_host", lambda *_: ["93.184.215.14"])
    monkeypatch.setattr(fetch, "_uses_proxy", lambda *_: False)
    monkeypatch.setattr(fetch, "PUBLIC_PORTS", (int(web.base.rpartition(":")[2]),))
    web.set_answer("/a", "secret")
    url = web.base.replace("127.0.0.1", "localhost") + "/a"
    assert catch_refusal(url, client) == "localhost is not on the public internet"


def test_a_redirect_to_a_private_address_is_refused(
    web: Web, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = httpx.MockTransport(
        lambda _: httpx.Response(302, headers={"location": f"{web.base}/"})
    )
    monkeypatch.setattr(fetch, "_resolve_host", lambda *_: ["93.184.215.14"])
    with httpx.Client(transport=public, trust_env=False) as client:
        assert "is not a public http or https address" in catch_refusal("https://x.org/", client)
    assert not web.asked


def test_a_name_that_nobody_has(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_uses_proxy", lambda *_: False)
    for host in ("no-such-host.invalid", "x" * 64 + ".org"):
        assert "cannot be found" in catch_refusal(f"https://{host}/", client)


def test_no_server(client: httpx.Client) -> None:
    with serve_web() as web:
        base = web.base
    assert "127.0.0.1 cannot be reached" in catch_refusal(f"{base}/", client, private=True)


@pytest.mark.parametrize(
    ("status", "words"), [(404, "404 Not Found"), (418, "418 I"), (599, "599")]
)
def test_another_status(web: Web, client: httpx.Client, status: int, words: str) -> None:
    web.set_answer("/a", "no", status=status)
    with pytest.raises(Unreachable, match=f"127.0.0.1 answers {words}") as caught:
        fetch_url(f"{web.base}/a", client, private=True)
    assert caught.value.status == status


def test_a_long_answer_is_cut(web: Web, client: httpx.Client) -> None:
    web.set_answer("/a", b"x" * 5000)
    answer = fetch_url(f"{web.base}/a", client, private=True, largest=1000)
    assert (len(answer.data), answer.whole) == (1000, False)
    answer = fetch_url(f"{web.base}/a", client, private=True, largest=5000)
    assert (len(answer.data), answer.whole) == (5000, True)


def test_a_packed_answer_is_unpacked_no_further_than_the_limit(
    web: Web, client: httpx.Client
) -> None:
    web.set_answer("/a", gzip.compress(b"hello" * 100), content_encoding="gzip")
    assert fetch_url(f"{web.base}/a", client, private=True).data == b"hello" * 100
    web.set_answer("/a", gzip.compress(bytes(100 * 1024 * 1024), 9), content_encoding="gzip")
    tracemalloc.start()
    answer = fetch_url(f"{web.base}/a", client, private=True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(answer.data), answer.whole) == (fetch.LARGEST, False)
    assert most < 8 * 1024 * 1024


@pytest.mark.parametrize(
    ("body", "packed", "words"),
    [(b"no gzip", "gzip", "cannot be read"), (b"x", "br", "compressed as br"),
     (b"x", "gzip, gzip", "compressed as gzip, gzip")],
)  # fmt: skip
def test_an_answer_that_cannot_be_unpacked(
    web: Web, client: httpx.Client, body: bytes, packed: str, words: str
) -> None:
    web.set_answer("/a", body, content_encoding=packed)
    assert words in catch_refusal(f"{web.base}/a", client, private=True)


def test_an_answer_that_comes_in_drops(
    web: Web, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip_answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(200):
            try:
                handler.wfile.write(b"x")
                handler.wfile.flush()
            except OSError:
                return
            time.sleep(0.02)

    web.answers["/a"] = drip_answer
    monkeypatch.setattr(fetch, "LONGEST", 0.2)
    assert "did not answer in time" in catch_refusal(f"{web.base}/a", client, private=True)


def test_no_answer_at_all(web: Web, client: httpx.Client) -> None:
    web.answers["/a"] = lambda handler: time.sleep(0.5)
    client.timeout = httpx.Timeout(0.1)
    assert "did not answer in time" in catch_refusal(f"{web.base}/a", client, private=True)


def test_an_answer_that_is_no_http(web: Web, client: httpx.Client) -> None:
    web.answers["/a"] = lambda handler: handler.wfile.write(b"\x1b[31m nonsense\r\n\r\n")
    assert "cannot be reached" in catch_refusal(f"{web.base}/a", client, private=True)


def test_a_proxy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    with httpx.Client() as trusting, httpx.Client(trust_env=False) as own:
        assert fetch._uses_proxy("https", "x.org", trusting)
        assert not fetch._uses_proxy("http", "x.org", trusting)
        assert not fetch._uses_proxy("https", "x.org", own)
