"""The copy in the Internet Archive, or nothing: an answer of any kind ends no check."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from loopback import Web

from warpshelf.links import health
from warpshelf.web import fetch, lookup

URL = "https://example.org/a?b=1&c=2"


def asked(web: Web, base: str | None = None) -> str | None:
    with fetch.client() as client:
        endpoints = replace(web.endpoints, archive=base or web.endpoints.archive)
        return lookup.archived(URL, client, endpoints)


def answer(url: object, available: object = True) -> str:
    closest = {"url": url, "available": available, "status": "200", "timestamp": "20200101000000"}
    return json.dumps({"url": URL, "archived_snapshots": {"closest": closest}})


def test_the_copy_is_found_by_the_whole_address(web: Web) -> None:
    web.put("/available", answer("http://web.archive.org/web/20200101000000/https://example.org/a"))
    assert asked(web) == "https://web.archive.org/web/20200101000000/https://example.org/a"
    [(_, query, _)] = web.asked
    assert query == {"url": [URL]}


@pytest.mark.parametrize(
    "body",
    [
        '{"url": "x", "archived_snapshots": {}}',
        '{"archived_snapshots": []}',
        "[]",
        "null",
        "no JSON",
        "[" * 100_000,
        answer("https://evil.example.org/web/2020/x"),
        answer("javascript:alert(1)"),
        answer("https://user@web.archive.org/x"),
        answer("https://web.archive.org/a b"),
        answer(None),
        answer("https://web.archive.org/web/2020/x", available=False),
        answer("https://web.archive.org/" + "x" * 5000),
    ],
)
def test_other_answers_are_no_copy(web: Web, body: str) -> None:
    web.put("/available", body)
    assert asked(web) is None


def test_no_answer_is_no_copy(web: Web) -> None:
    assert asked(web) is None  # 404
    assert asked(web, "http://127.0.0.1:9/available") is None


def test_whatever_is_found_can_be_kept(web: Web) -> None:
    web.put("/available", answer("http://web.archive.org/web/2020/http://example.org/<x>&'\""))
    found = asked(web)
    assert found is None or health.address(found) is None
