"""The copy for Zensical: its includes are written out, and its links lead where they led."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest
from conftest import Trial
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core.places import OnPage, page_address
from warpshelf.site import build

ORIGIN = "https://example.org/base/"
PAGES = st.sampled_from(
    [
        "index.md",
        "everything.md",
        "kernels/softmax.md",
        "kernels/index.md",
        "a/b/c.md",
        "a/b/index.md",
    ]
)
TARGETS = st.sampled_from(
    ["/index.md", "/everything.md", "/kernels/softmax.md", "/kernels/index.md", "/a/b/c.md",
     "/exports/all.bib", "/exports/kernels/softmax.xml", "/records/a/cpu.json"]
)  # fmt: skip
ENDS = st.sampled_from(["", "#reading-x", "?tag=a&b=c", "?tag=a#x"])


def read_by_zensical(link: str, page: str) -> str:
    """Where Zensical leads a link in the HTML of a page: it starts at the page's source."""
    here = urljoin(ORIGIN, page_address(page))
    if link.startswith(("#", "?")):
        return urljoin(here, link)
    return urljoin(here, link if page.rpartition("/")[2] == "index.md" else f"../{link}")


@given(PAGES, TARGETS, ENDS)
def test_links_in_html_lead_where_they_led(page: str, target: str, end: str) -> None:
    html = OnPage(page).link("x & y", target + end, "ws-tag")
    before = html.partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    text = build.relink_line(html, page)
    after = text.partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    assert read_by_zensical(after, page) == urljoin(urljoin(ORIGIN, page_address(page)), before)
    assert text.replace(after.replace("&", "&amp;"), "") == html.replace(
        before.replace("&", "&amp;"), ""
    )


@pytest.mark.parametrize(
    ("page", "line", "expected"),
    [
        ("kernels/softmax.md", "[a](/models/cost.md#x) b", "[a](../models/cost.md#x) b"),
        ("kernels/softmax.md", "[a](/kernels/gemm.md)", "[a](gemm.md)"),
        ("index.md", "[a](/models/cost.md?x=1)", "[a](models/cost.md?x=1)"),
        ("a/b/c.md", "![a](/assets/x.svg)", "![a](../../assets/x.svg)"),
        ("a/b.md", "[a](//example.org/x) [b](https://example.org/x)", None),
        ("a/b.md", '<a href="https&#58;//example.org/?a=1&amp;b">x</a>', None),
        ("a/b.md", '<a href="#x">x</a> <a href="?a=1">y</a> <a href="/x/">z</a>', None),
        ("a/b.md", '<a class="t" href="../../c/?q=1&amp;r">x</a>',
         '<a class="t" href="../c/?q=1&amp;r">x</a>'),
        ("a/b.md", '<img alt="" src="../../assets/x.svg">', '<img alt="" src="../assets/x.svg">'),
        ("a/b.md", '<a href="../../">home</a>', '<a href="../">home</a>'),
        ("a/index.md", '<a href="../c/">x</a>', None),
    ],
)  # fmt: skip
def test_a_line(page: str, line: str, expected: str | None) -> None:
    assert build.relink_line(line, page) == (line if expected is None else expected)


def test_pieces_are_written_out_and_code_is_let_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "list.md").write_text('<a href="../../e/">e</a>\n\n[m](/m.md)\n')
    text = (
        '# T\n\n--8<-- "x/list.md"\n\n    --8<-- "x/list.md"\n\n--8<-- "x/none.md"\n'
        '```md\n--8<-- "x.py:kernel"\n[m](/m.md)\n```\n[m](/m.md)\n'
    )
    assert build.port_page(text, "k/s.md", tmp_path) == (
        '# T\n\n<a href="../e/">e</a>\n\n[m](../m.md)\n\n'
        '    <a href="../e/">e</a>\n\n    [m](../m.md)\n\n--8<-- "x/none.md"\n'
        '```md\n--8<-- "x.py:kernel"\n[m](/m.md)\n```\n[m](../m.md)\n'
    )


@given(st.text("ab/.?#\"'<>`~[]()=-8 \n&;href", max_size=80))
def test_any_text_is_read(text: str) -> None:
    found = build.port_page(text, "a/b.md", Path("nowhere"))
    assert found == "" or found.endswith("\n")
    assert len(found.splitlines()) == len(text.splitlines()) or "`" in text


def test_a_site_is_built(trial: Trial) -> None:
    trial.add_page("kernels/products.md", "# Products\n\n[Home](/index.md)\n")
    target = trial.root / "out"
    target.mkdir()
    (target / "old.html").write_text("old")
    done = trial.run_shelf("site", "--builder", "zensical", "--site-dir", str(target))
    assert done.returncode == 0, done.stderr
    page = (target / "kernels" / "products" / "index.html").read_text("utf-8")
    assert '<a href="../../">Home</a>' in page
    assert not (target / "old.html").exists()
    assert (trial.root / "docs" / "kernels" / "products.md").read_text() == (
        "# Products\n\n[Home](/index.md)\n"
    )


@pytest.mark.parametrize("where", [".", "docs", "docs/out", "snippets"])
def test_sources_are_no_place_for_a_site(trial: Trial, where: str) -> None:
    done = trial.run_shelf("site", "--builder", "zensical", "--site-dir", str(trial.root / where))
    assert done.returncode != 0
    assert "sources of the project" in done.stderr and "name another folder" in done.stderr
    assert (trial.root / "docs" / "index.md").exists()


def test_another_builder_is_refused(trial: Trial) -> None:
    done = trial.run_shelf("site", "--builder", "hugo")
    assert done.returncode != 0
    assert done.stderr == "--builder: is 'hugo'; write one of mkdocs, zensical\n"


def test_without_zensical_one_line_says_so(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    done = trial.run_shelf("site", "--builder", "zensical")
    assert done.returncode != 0
    assert done.stderr.startswith("zensical: is not installed in this environment; run ")
    assert [*build.BUILDERS] == ["mkdocs", "zensical"]
