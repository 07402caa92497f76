"""A permanent redirect elsewhere is a move; a site's everyday redirects are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.links.health import address
from warpshelf.links.redirects import Redirect, barrier, moved

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
        (
            "https://arxiv.org/pdf/2309.06180",
            [("https://arxiv.org/pdf/2309.06180v2", 301)],
            None,
        ),
        ("https://doi.org/10.1145/1", [("https://dl.acm.org/doi/10.1145/1", 302)], None),
        (HERE, [("ftp://a.org/x", 301)], None),
        (HERE, [(f"https://a.org/{'x' * 5000}", 301)], None),
        (HERE, [("https://user@a.org/x", 301)], None),
        (HERE, [], None),
    ],
)
def test_moved(url: str, steps: list[tuple[str, int]], target: str | None) -> None:
    assert moved(url, [Redirect(*step) for step in steps]) == target


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
    assert barrier(url) is before


@given(st.text(max_size=60), st.sampled_from([301, 302, 308]))
def test_any_target_is_an_https_address_or_none(text: str, code: int) -> None:
    for target in (text, f"https://{text}", f"https://example.com/{text}"):
        found = moved(HERE, [Redirect(target, code)])
        assert found is None or address(found) is None
        assert barrier(target) in (True, False)
