"""A page has one address, and a link on another page leads there."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from warpshelf.core.places import OnPage, page_address, whole_address

SITE = "https://example.org/shelf"


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("kernels/softmax", "kernels/softmax/"),
        ("about", "about/"),
        ("sessions/index", "sessions/"),
        ("sessions/README", "sessions/"),
        ("sessions/an-index", "sessions/an-index/"),
        ("index", ""),
        ("kernels/a b", "kernels/a%20b/"),
    ],
)
def test_a_page_has_one_address(where: str, wanted: str) -> None:
    assert page_address(f"{where}.md") == wanted
    for site in (SITE, f"{SITE}/"):
        assert whole_address(where, site) == f"{SITE}/{wanted}"
    for here in ("index", "kernels/other", "sessions/index"):
        link = OnPage(f"{here}.md").relative_link(f"/{where}.md#part")
        assert urljoin(whole_address(here, SITE), link) == f"{SITE}/{wanted}#part"
