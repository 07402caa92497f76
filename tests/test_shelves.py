"""Reading lists on a real site: every link resolves, and no text of an entry acts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from warpshelf.readings import Also, Reading, Shelf, Topic, load
from warpshelf.shelves import EMPTY, contents, fragments, reading_targets

ROOT = Path(__file__).resolve().parents[1]
SOFTMAX = """\
- id: online-softmax
  title: Online normalizer calculation for softmax
  url: https://arxiv.org/abs/1805.02867?a=1&copy=2
  kind: paper
  authors: [Maxim Milakov, Natalia Gimelshein, A. Third, A. Fourth]
  year: 2018
  venue: "arXiv & *more*"
  why: "Shows how the maximum | and the sum are found in one pass."
  rating: 3
  level: intermediate
  tags: [softmax, memory-bandwidth]
  snippets: [softmax, unshown]
  needs: [roofline]
  also:
    - what: code
      url: https://github.com/NVIDIA/online-softmax
    - what: published
      url: https://doi.org/10.1000/x(1)_2_
  superseded_by: flash
  mended: The seed's link led to `another` paper.
- id: flash
  title: Flash
  url: https://example.org/flash
  kind: post
  authors: [Ada, Bob, Cy]
  why: Says more.
  rating: 4
"""
MODELS = """\
- id: roofline
  title: 屋顶线模型
  title_en: The roofline model
  url: https://example.org/roofline
  kind: talk
  why: Tells which limit a kernel meets first.
  lang: zh
  needs: [flash]
- id: kernels-em-cuda
  title: Kernels em CUDA
  url: https://example.org/kernels
  kind: course
  why: Ensina.
  lang: pt
"""
PAGES = {"softmax": "/kernels/softmax.md#snippet-softmax"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</p></li></ul><img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    '--8<-- "secret.txt"',
    "{: onclick=alert(1) }",
    "::: warpshelf.markup",
    "a | b `c` **d** _e_ ~~f~~",
    "\x1b[31mred\x1b[0m",
    "\u202egpj.exe\u202c",
    '" onmouseover="alert(1)',
    "```\nfence\n```",
    "# heading",
    "&lt;script&gt; &#60;b&#62;",
    "\x02wzxhzdk:0\x03",
]


class Page(HTMLParser):
    """A page's elements as (tag, attributes), checked to be nested properly; its text."""

    EMPTY = {"meta", "link", "input", "img", "br", "hr", "path", "source", "base"}

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.parents: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.parents.append(self.open[-1] if self.open else "")
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.parents.append(self.open[-1] if self.open else "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> dict[str, str | None]:
        return {str(a["href"]): a.get("lang") for tag, a in self.elements if "href" in a}


def article(source: str) -> str:
    found = re.search(r"<article[^>]*>(.*)</article>", source, re.DOTALL)
    assert found
    return found[1]


def build(root: Path, pages: dict[str, str], shelf: Shelf) -> dict[str, str]:
    """Build `pages` with the site's own settings, strictly; the HTML of each page's article."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    kept = {key: site[key] for key in ("site_name", "markdown_extensions", "validation")}
    for item in kept["markdown_extensions"]:
        if isinstance(item, dict) and "pymdownx.snippets" in item:
            assert item["pymdownx.snippets"]["check_paths"] is True
            item["pymdownx.snippets"]["base_path"] = ["fragments"]
    # mkdocstrings reads `:::` and `[x][y]`, so it must be there for them not to act.
    kept["plugins"] = ["search", "tags", {"mkdocstrings": {"default_handler": "python"}}]
    config = {**kept, "theme": {"name": "material", "font": False}, "strict": True}
    (root / "mkdocs.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    written = {
        **fragments(shelf, PAGES),
        "readings/all.md": contents(shelf),
        "secret.txt": "SECRET",
    }
    for name, text in written.items():
        (root / "fragments" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "fragments" / name).write_text(text, encoding="utf-8")
    for name, text in pages.items():
        (root / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "docs" / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q"],
        cwd=root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        name: article((root / "site" / name).with_suffix("").joinpath("index.html").read_text())
        for name in pages
        if name != "index.md"
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("site")
    pages = {
        "index.md": '# Home\n\n--8<-- "readings/all.md"\n',
        "kernels/softmax.md": '# Softmax & co\n\n--8<-- "readings/kernels/softmax.md"\n\n'
        "## Code {#snippet-softmax}\n",
        "models/roofline.md": '# Roofline\n\n--8<-- "readings/models/roofline.md"\n\nend\n',
        "models/empty.md": '# Empty\n\n--8<-- "readings/models/empty.md"\n',
    }
    for name, text in pages.items():
        (root / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "docs" / name).write_text(text, encoding="utf-8")
    (root / "docs/kernels/softmax.yml").write_text(SOFTMAX, encoding="utf-8")
    (root / "docs/models/roofline.yml").write_text(MODELS, encoding="utf-8")
    shelf = load(root)
    assert not shelf.findings
    built = build(root, pages, shelf)
    built["index.md"] = article((root / "site/index.html").read_text(encoding="utf-8"))
    return built


def entry(source: str, name: str) -> Page:
    found = re.search(rf'<li[^>]* id="reading-{name}"[^>]*>.*?</li>', source, re.DOTALL)
    assert found
    return Page(found[0])


def test_an_entry_shows_all_it_has(site: dict[str, str]) -> None:
    page = entry(site["kernels/softmax.md"], "online-softmax")
    words = " ".join(page.text.split())
    assert words == (
        "Online normalizer calculation for softmax ★★★☆ rated 3 of 4 "
        "Maxim Milakov, Natalia Gimelshein, A. Third et al. · 2018 · arXiv & *more* · paper · "
        "intermediate "
        "Shows how the maximum | and the sum are found in one pass. "
        "Superseded by: Flash Read first: The roofline model Runs here: softmax, unshown "
        "Also: code, published version Tags: softmax memory-bandwidth "
        "Link or title mended The seed's link led to `another` paper."
    )
    stars = [a for tag, a in page.elements if a.get("aria-hidden") == "true"]
    assert len(stars) == 1 and ("span", {"class": "ws-rating-text"}) in page.elements
    # People see a quiet line that opens, not the note itself.
    assert [tag for tag, a in page.elements if a.get("class") == "ws-mended"] == ["details"]


def test_an_entry_shows_nothing_it_lacks(site: dict[str, str]) -> None:
    page = entry(site["kernels/softmax.md"], "flash")
    assert " ".join(page.text.split()) == "Flash ★★★★ rated 4 of 4 Ada, Bob, Cy · post Says more."
    assert "et al." not in page.text


def test_links_lead_where_they_should(site: dict[str, str]) -> None:
    page = entry(site["kernels/softmax.md"], "online-softmax")
    assert list(page.links()) == [
        "https://arxiv.org/abs/1805.02867?a=1&copy=2",
        "./#reading-flash",
        "../../models/roofline/#reading-roofline",
        "./#snippet-softmax",
        "https://github.com/NVIDIA/online-softmax",
        "https://doi.org/10.1000/x(1)_2_",
    ]
    assert '<a href="../../kernels/softmax/#reading-flash">Flash</a>' in site["models/roofline.md"]


def test_titles_in_another_language_keep_it(site: dict[str, str]) -> None:
    page = entry(site["models/roofline.md"], "roofline")
    assert page.links()["https://example.org/roofline"] == "zh"
    assert page.text.split()[:4] == ["屋顶线模型", "The", "roofline", "model"]
    assert "talk · in Chinese" in " ".join(page.text.split())
    other = entry(site["models/roofline.md"], "kernels-em-cuda")
    assert "course · in Portuguese" in " ".join(other.text.split())
    assert [a.get("hreflang") for tag, a in other.elements if tag == "a"] == ["pt"]


def test_the_list_is_a_list(site: dict[str, str]) -> None:
    page = Page(site["kernels/softmax.md"])
    lists = [a for tag, a in page.elements if tag == "ul"]
    assert lists == [{"class": "ws-readings"}]
    items = [
        (a["id"], parent)
        for (tag, a), parent in zip(page.elements, page.parents, strict=True)
        if tag == "li"
    ]
    assert items == [("reading-online-softmax", "ul"), ("reading-flash", "ul")]
    first = next(a for tag, a in page.elements if tag == "li")
    assert first["data-kind"] == "paper" and first["data-tags"] == "softmax memory-bandwidth"
    assert all(a.get("class", "ws-").startswith("ws-") for tag, a in page.elements
               if tag in ("ul", "li", "p", "span", "details"))  # fmt: skip
    assert not any("markdown" in a or "style" in a for _, a in page.elements)


def test_an_empty_topic_says_so(site: dict[str, str]) -> None:
    assert f'<p class="ws-empty">{EMPTY}</p>' in site["models/empty.md"]


def test_the_contents_count_every_topic(site: dict[str, str]) -> None:
    page = Page(site["index.md"])
    words = " ".join(page.text.split())
    assert words.endswith("4 readings in all. Kernels 2 Softmax & co 2 Models 2 Empty 0 Roofline 2")
    assert [link for link in page.links() if link != "#home"] == [
        "kernels/softmax/", "models/empty/", "models/roofline/",
    ]  # fmt: skip


def test_targets_are_those_of_the_anchors() -> None:
    shelf = Shelf()
    shelf.add(SOFTMAX.encode(), "docs/kernels/softmax.yml", "kernels/softmax")
    assert reading_targets(shelf) == {
        "online-softmax": "/kernels/softmax.md#reading-online-softmax",
        "flash": "/kernels/softmax.md#reading-flash",
    }


def test_a_topic_without_a_page_is_not_in_the_contents() -> None:
    shelf = Shelf()
    shelf.add(SOFTMAX.encode(), "docs/kernels/softmax.yml", "kernels/softmax")
    assert "softmax" not in contents(shelf) and "0 readings in all" in contents(shelf)
    assert list(fragments(shelf, {})) == ["readings/kernels/softmax.md"]


def test_a_need_that_is_not_on_the_shelf_is_named_without_a_link() -> None:
    shelf = Shelf()
    shelf.add(SOFTMAX.encode(), "docs/kernels/softmax.yml", "kernels/softmax")
    assert "Read first:</span> roofline</p>" in fragments(shelf, {})["readings/kernels/softmax.md"]


def test_hostile_texts_show_and_do_not_act(tmp_path: Path) -> None:
    """Even for entries that the loader would refuse, nothing of a text acts on the site."""
    topic = Topic("kernels/hostile", HOSTILE[0], page=True, shown=True, listed=True)
    shelf = Shelf(topics={"kernels/hostile": topic})
    for number, text in enumerate(HOSTILE):
        reading = Reading.model_construct(
            id=f"h{number}", title=text, title_en=text, url="https://example.org/?a=<b>&c='d'",
            kind="post", authors=[text], venue=text, why=text, lang="zh", mended=text,
            needs=[f"h{(number + 1) % len(HOSTILE)}", text], snippets=[text], tags=[text],
            also=[Also(what="code", url="https://example.org/%22`*_[x](y)")],
        )  # fmt: skip
        reading._part, reading._topic = "kernels", "hostile"
        topic.readings.append(reading)
        shelf.readings[reading.id] = reading
    pages = {
        "index.md": '# Home\n\n--8<-- "readings/all.md"\n',
        "kernels/hostile.md": '# X\n\n--8<-- "readings/kernels/hostile.md"\n\nend\n',
    }
    source = build(tmp_path, pages, shelf)["kernels/hostile.md"]
    index = Page(article((tmp_path / "site/index.html").read_text(encoding="utf-8")))
    assert HOSTILE[0] in index.text and "script" not in {tag for tag, _ in index.elements}
    page = Page(source)
    tags = {tag for tag, _ in page.elements}
    assert tags == {"h1", "a", "ul", "li", "p", "span", "details", "summary"}
    assert sum(tag == "li" for tag, _ in page.elements) == len(HOSTILE)
    names = {name for _, attributes in page.elements for name in attributes}
    assert names <= {
        "id", "class", "href", "hreflang", "lang", "title", "aria-hidden", "data-kind",
        "data-lang", "data-tags", "markdown",
    }  # fmt: skip
    assert "SECRET" not in source and "\x1b" not in source and "\u202e" not in source
    assert all(
        link.startswith(("https://example.org/", "#x", "./#reading-h")) for link in page.links()
    )
    for text in HOSTILE[:7]:
        assert page.text.count(text) >= 6, text
    assert "red" in page.text and "[31m" not in page.text
