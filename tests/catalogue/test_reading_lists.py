"""Reading lists on a real site: every link resolves, and no text of an entry acts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from conftest import LIST, TOPIC, Trial

from warpshelf.catalogue import glossary, reading_lists
from warpshelf.catalogue.exports import FORMATS, format_bibtex
from warpshelf.catalogue.glossary import Glossary
from warpshelf.catalogue.reading_lists import (
    EMPTY,
    FEWEST,
    MOST_NEXT,
    UNREAD,
    ReadingContext,
    render_contents,
    render_lists,
    single_entries,
)
from warpshelf.links.health import Health
from warpshelf.readings.entries import Entry
from warpshelf.readings.model import Also, Reading, Shelf, Topic, load_shelf

ROOT = Path(__file__).resolve().parents[2]
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
REPOSITORY = "https://example.org/shelf"
SINGLE = "sessions/first/notes.md"  # deeper than a topic, and it shows one reading of another
EVERY = "/everything.md"
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

    def collect_links(self) -> dict[str, str | None]:
        return {str(a["href"]): a.get("lang") for tag, a in self.elements if "href" in a}


def cut_article(source: str) -> str:
    found = re.search(r"<article[^>]*>(.*)</article>", source, re.DOTALL)
    assert found
    return found[1]


def make_context(shelf: Shelf, **known: Health) -> ReadingContext:
    health = {shelf.readings[name.replace("_", "-")].url: found for name, found in known.items()}
    return ReadingContext(shelf, PAGES, health, EVERY)


def build_articles(root: Path, pages: dict[str, str], around: ReadingContext) -> dict[str, str]:
    """Build `pages` with the site's own settings, strictly; the HTML of each page's article."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    kept = {key: site[key] for key in ("site_name", "markdown_extensions", "validation")}
    included = kept["markdown_extensions"]["pymdownx.snippets"]
    assert included["check_paths"] is True
    included["base_path"] = ["fragments"]
    # mkdocstrings reads `:::` and `[x][y]`, so it must be there for them not to act.
    kept["plugins"] = ["search", "tags", {"mkdocstrings": {"default_handler": "python"}}]
    config = {**kept, "theme": {"name": "material", "font": False}, "strict": True}
    (root / "mkdocs.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    written = {
        **render_lists(around, REPOSITORY, exports=True),
        **single_entries(around, around.shelf.readings),
        reading_lists.EVERY_FRAGMENT: reading_lists.all_readings_list(around, exports=True),
        "readings/all.md": render_contents(around.shelf),
        **glossary.render_glossary(Glossary(), around.shelf, {}),
        "secret.txt": "SECRET",
    }
    for name, text in written.items():
        (root / "fragments" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "fragments" / name).write_text(text, encoding="utf-8")
    every = {"everything.md": f'# Every\n\n--8<-- "{reading_lists.EVERY_FRAGMENT}"\n\nend\n'}
    for name, text in {**pages, **every}.items():
        (root / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "docs" / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q"],
        cwd=root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = {name: (root / "site" / name).with_suffix("") / "index.html" for name in pages | every}
    files["index.md"] = root / "site/index.html"
    return {name: cut_article(file.read_text(encoding="utf-8")) for name, file in files.items()}


@pytest.fixture(scope="module")
def site_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def built_articles(site_root: Path) -> dict[str, str]:
    pages = {
        "index.md": '# Home\n\n--8<-- "readings/all.md"\n',
        "kernels/softmax.md": '# Softmax & co\n\n--8<-- "readings/kernels/softmax.md"\n\n'
        "## Code {#snippet-softmax}\n\n[above](../models/roofline.md#reading-roofline)\n",
        "models/roofline.md": '# Roofline\n\n--8<-- "readings/models/roofline.md"\n\nend\n',
        "models/empty.md": '# Empty\n\n--8<-- "readings/models/empty.md"\n',
        SINGLE: '# Notes\n\nFirst:\n\n--8<-- "reading/online-softmax.md"\n\nend\n',
    }
    for name, text in pages.items():
        (site_root / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (site_root / "docs" / name).write_text(text, encoding="utf-8")
    (site_root / "docs/kernels/softmax.yml").write_text(SOFTMAX, encoding="utf-8")
    (site_root / "docs/models/roofline.yml").write_text(MODELS, encoding="utf-8")
    shelf = load_shelf(site_root)
    assert not shelf.findings
    return build_articles(site_root, pages, make_context(shelf))


@pytest.fixture(scope="module")
def search_entries(site_root: Path, built_articles: dict[str, str]) -> list[dict]:
    """What Material's search knows of the site."""
    index = (site_root / "site/search/search_index.json").read_text(encoding="utf-8")
    return json.loads(index)["docs"]


def cut_entry(source: str, name: str) -> Page:
    start = rf'<li class="ws-reading"[^>]*>\s*<\w+ [^>]*id="reading-{name}"'
    found = re.search(rf"{start}.*?</li>", source, re.DOTALL)
    assert found
    return Page(found[0])


ALL = (
    "Online normalizer calculation for softmax "
    "★★★☆ · Maxim Milakov, Natalia Gimelshein, A. Third et al. · 2018 · arXiv & *more* · paper · "
    "intermediate "
    "Shows how the maximum | and the sum are found in one pass. "
    "Superseded by: Flash Read first: The roofline model "
    "Runs here: softmax, unshown · Also: code, published version "
    "Tags: softmax memory-bandwidth Cite BIBTEX Mended The seed's link led to `another` paper."
)


def words_of(page: Page) -> str:
    text = re.sub(r"@\w+\{.*?\n\}", " BIBTEX ", page.text, flags=re.DOTALL)
    return text.replace("Mended", " Mended ")


@pytest.mark.parametrize("where", ["kernels/softmax.md", SINGLE])
def test_an_entry_shows_all_it_has(built_articles: dict[str, str], where: str) -> None:
    page = cut_entry(built_articles[where], "online-softmax")
    assert " ".join(words_of(page).split()) == ALL
    stars = [a for tag, a in page.elements if a.get("class") == "ws-rating"]
    assert [(a["role"], a["aria-label"]) for a in stars] == [("img", "rated 3 of 4")]
    # People see quiet lines that open, not the citation and the note themselves.
    folded = [a["class"] for tag, a in page.elements if tag == "details"]
    assert folded == ["ws-cite", "ws-mended"]
    heading = {"id": "reading-online-softmax", "class": "ws-reading-title"}
    assert ("p" if where == SINGLE else "h3", heading) in page.elements


def test_a_citation_keeps_its_lines(built_articles: dict[str, str]) -> None:
    shelf = Shelf()
    shelf.add_file(SOFTMAX.encode(), "docs/kernels/softmax.yml")
    expected = format_bibtex(shelf.readings["online-softmax"]).strip()
    for where in ("kernels/softmax.md", SINGLE):
        assert expected in Page(built_articles[where]).text
    # a post without a year has none
    assert Page(built_articles["kernels/softmax.md"]).text.count("@") == 1


def test_an_entry_shows_nothing_it_lacks(built_articles: dict[str, str]) -> None:
    page = cut_entry(built_articles["kernels/softmax.md"], "flash")
    assert " ".join(page.text.split()) == (
        "Flash ★★★★ · Ada, Bob, Cy · post Says more. Read next: The roofline model"
    )


LINKS = [
    "https://arxiv.org/abs/1805.02867?a=1&copy=2",
    "#reading-flash",
    "../../models/roofline/#reading-roofline",
    "#snippet-softmax",
    "https://github.com/NVIDIA/online-softmax",
    "https://doi.org/10.1000/x(1)_2_",
    "../../everything/?tag=softmax",
    "../../everything/?tag=memory-bandwidth",
]


def test_links_lead_where_they_should(built_articles: dict[str, str]) -> None:
    page = cut_entry(built_articles["kernels/softmax.md"], "online-softmax")
    assert list(page.collect_links()) == LINKS
    # Elsewhere the same entry leads to the same places, whatever the depth of the page.
    single = cut_entry(built_articles[SINGLE], "online-softmax")
    assert list(single.collect_links()) == [
        link if link.startswith("https")
        else "../../../" + link.replace("../", "").replace("#", "kernels/softmax/#")
        if link.startswith("#")
        else "../" + link
        for link in LINKS
    ]  # fmt: skip
    assert (
        '<a href="../../kernels/softmax/#reading-flash">Flash</a>'
        in built_articles["models/roofline.md"]
    )
    assert [a["class"] for tag, a in single.elements if "?tag=" in str(a.get("href"))] == [
        "ws-tag", "ws-tag",
    ]  # fmt: skip


def test_titles_in_another_language_keep_it(built_articles: dict[str, str]) -> None:
    page = cut_entry(built_articles["models/roofline.md"], "roofline")
    assert page.collect_links()["https://example.org/roofline"] == "zh"
    assert page.text.split()[:4] == ["屋顶线模型", "The", "roofline", "model"]
    assert "talk · in Chinese" in " ".join(page.text.split())
    other = cut_entry(built_articles["models/roofline.md"], "kernels-em-cuda")
    assert "course · in Portuguese" in " ".join(other.text.split())
    assert [a.get("hreflang") for tag, a in other.elements if tag == "a"] == ["pt"]


def test_the_list_is_a_list(built_articles: dict[str, str]) -> None:
    page = Page(built_articles["kernels/softmax.md"])
    lists = [a for tag, a in page.elements if tag == "ul"]
    assert lists == [{"class": "ws-readings"}]  # too short to be worth filtering
    items = [parent for (tag, _), parent in zip(page.elements, page.parents, strict=True)
             if tag == "li"]  # fmt: skip
    assert items == ["ul", "ul"]
    first = next(a for tag, a in page.elements if tag == "li")
    assert first == {
        "class": "ws-reading", "data-kind": "paper", "data-year": "2018", "data-lang": "en",
        "data-level": "intermediate", "data-rating": "3", "data-runs": "yes",
        "data-tags": "softmax memory-bandwidth",
    }  # fmt: skip
    assert not any("markdown" in a or "style" in a for _, a in page.elements)
    assert not any("markdown" in a for _, a in Page(built_articles[SINGLE]).elements)


def test_every_reading_has_a_section_of_its_own_in_the_search(search_entries: list[dict]) -> None:
    found = {doc["location"]: doc for doc in search_entries}
    softmax = found["kernels/softmax/#reading-online-softmax"]
    assert softmax["title"] == "Online normalizer calculation for softmax"
    assert "found in one pass" in softmax["text"] and "@" not in softmax["text"]
    assert "Says more" not in softmax["text"]


def test_a_list_ends_with_the_ways_in_and_out(built_articles: dict[str, str]) -> None:
    links = list(Page(built_articles["kernels/softmax.md"]).collect_links())
    assert links[links.index(f"{REPOSITORY}/edit/main/docs/kernels/softmax.yml") + 1 :][:5] == [
        f"../../exports/kernels/softmax.{ending}" for ending in FORMATS
    ]  # fmt: skip
    assert f"{REPOSITORY}/issues/new?template=link.yml&topic=kernels%2Fsoftmax" in links
    assert "../exports/all.bib" in Page(built_articles["everything.md"]).collect_links()


def test_everything_is_on_one_page(built_articles: dict[str, str]) -> None:
    page = Page(built_articles["everything.md"])
    rows = [a for tag, a in page.elements if tag == "li"]
    assert [(row["data-topic"], row.get("data-runs")) for row in rows] == [
        ("kernels/softmax", "yes"), ("kernels/softmax", None),
        ("models/roofline", None), ("models/roofline", None),
    ]  # fmt: skip
    parted = Page(built_articles["everything.md"].replace("</p><p>", "|"))
    assert " ".join(parted.text.split()) == (
        "Every¶ "
        "Online normalizer calculation for softmax runs here|"
        "Maxim Milakov et al. 2018 paper Softmax & co ★★★☆ "
        "Flash|Ada et al. post Softmax & co ★★★★ "
        "屋顶线模型 The roofline model|talk Roofline "
        "Kernels em CUDA|course Roofline "
        "The whole list as BibTeX, CSL-JSON, JSON, Atom or plain text end"
    )
    links = page.collect_links()
    assert links["https://example.org/roofline"] == "zh"
    own = {"../kernels/softmax/#reading-flash", "../models/roofline/#reading-roofline"}
    assert own < set(links)


def test_a_row_is_also_found_by_words_that_it_does_not_show(built_articles: dict[str, str]) -> None:
    rows = Page(built_articles["everything.md"]).elements
    assert next(a for _, a in rows if "data-finder" in a)["data-words"] == "../exports/words.txt"
    shelf = Shelf(topics={"kernels/softmax": Topic("kernels/softmax", "T", page=True)})
    shelf.add_file(SOFTMAX.encode(), "docs/kernels/softmax.yml")
    words = reading_lists.search_words(shelf).splitlines()
    assert len(words) == len(shelf.entries)
    assert words[0] == (
        "natalia gimelshein third fourth arxiv & *more* shows maximum | sum found one pass"
    )


def fill_shelf(*entries: str, where: str = "kernels/softmax") -> Shelf:
    shelf = Shelf(topics={where: Topic(where, "T", page=True, shown=True)})
    shelf.add_file("".join(entries).encode(), f"docs/{where}.yml")
    assert not shelf.findings
    return shelf


def plain_entry(name: str, *more: str) -> str:
    lines = [f"id: {name}", f"title: Title {name}", f"url: https://example.org/{name}"]
    lines += ["kind: post", "why: Because.", *more]
    return "- " + "\n  ".join(lines) + "\n"


def one_list(around: ReadingContext, **more: bool) -> str:
    return render_lists(around, **more)["readings/kernels/softmax.md"]


def test_only_a_list_worth_filtering_has_a_finder() -> None:
    few = [plain_entry(f"r{number}") for number in range(FEWEST - 1)]
    assert "data-finder" not in one_list(make_context(fill_shelf(*few)))
    enough = one_list(make_context(fill_shelf(*few, plain_entry("last"))))
    assert '<ul class="ws-readings" data-finder="../../everything/">' in enough
    assert 'data-finder=""' in one_list(ReadingContext(fill_shelf(*few, plain_entry("last"))))


def test_a_page_says_what_to_start_with() -> None:
    around = ReadingContext(fill_shelf(plain_entry("one", "start: true"), plain_entry("two")))
    text = render_lists(around)["start/kernels/softmax.md"]
    assert 'href="https://example.org/one"' in text and "Because." in text
    assert "example.org/two" not in text
    assert '<a href="#readings">All 2 readings</a>' in text
    texts = render_lists(ReadingContext(fill_shelf(plain_entry("one"))))
    assert "Start with" not in texts["start/kernels/softmax.md"]


def test_what_nobody_could_open_stands_apart() -> None:
    many = [plain_entry(f"r{number}") for number in range(FEWEST)]
    lost = plain_entry("lost", "unread: true", "needs: [r0]")
    around = make_context(fill_shelf(many[0], lost, *many[1:]))
    shown, told, apart = one_list(around).partition(f'<p class="ws-unread">{UNREAD}</p>')
    assert told and "data-finder" in shown and "data-finder" not in apart
    assert 'id="reading-lost"' in apart and "reading-lost" not in shown.partition("<li")[2]
    assert shown.count('<li class="ws-reading"') == FEWEST
    assert "Read next" not in shown  # it is no step for anybody
    assert reading_lists.all_readings_list(around).count(reading_lists.UNOPENED) == 1
    assert UNREAD not in one_list(make_context(fill_shelf(*many)))
    alone = one_list(make_context(fill_shelf(lost.replace("r0", "lost-too"))))
    assert alone.startswith(f'<p class="ws-unread">{UNREAD}</p>')


def test_read_next_names_what_needs_it() -> None:
    after = [plain_entry(f"after{n}", "needs: [first]", f"rating: {n}") for n in (1, 2, 4, 3)]
    old = plain_entry("old", "needs: [first]", "superseded_by: after1", "rating: 4")
    text = one_list(make_context(fill_shelf(plain_entry("first"), old, *after)))
    shown = re.search(r'ws-reading-next">(.*?)</p>', text)
    assert shown
    assert re.findall(r"Title (\w+)", shown[1]) == ["after4", "after3", "after2"][:MOST_NEXT]
    assert text.count("Read next") == 1


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health("alive", last_alive="2026-11-02"), ""),
        (Health("blocked", since="2026-11-02"), ""),
        (Health("failing", since="2026-11-02", failures=1), ""),
        (Health("gone", since="2026-11-02"), "Not there any more since 2 Nov 2026."),
        (Health("unreachable", since="2026-11-02"), "Not reached since 2 Nov 2026."),
        (
            Health("moved", since="2026-11-02", moved_to="https://example.net/<b>"),
            'The link now leads to <a href="https://example.net/&lt;b&gt;">example.net</a>.',
        ),
    ],
)
def test_what_is_known_of_a_link_is_said_where_it_matters(health: Health, words: str) -> None:
    text = one_list(make_context(fill_shelf(plain_entry("one")), one=health))
    found = re.search(r'<p class="ws-reading-health">(.*?)</p>', text)
    assert (found[1] if found else "") == words


def test_an_archived_copy_is_linked_once() -> None:
    copy = "https://web.archive.org/web/2026/https://example.org/one"
    lost = Health("gone", since="2026-11-02", archived=copy)
    text = one_list(make_context(fill_shelf(plain_entry("one")), one=lost))
    assert f'Also:</span> <a href="{copy}">archived copy</a>' in text
    own = "also: [{what: archive, url: https://example.org/copy}]"
    text = one_list(make_context(fill_shelf(plain_entry("one", own)), one=lost))
    assert text.count("archived copy") == 1 and "https://example.org/copy" in text


def test_what_has_no_page_is_named_without_a_link() -> None:
    shelf = fill_shelf(plain_entry("one", "needs: [two]", "tags: [a-tag]"))
    shelf.add_file(plain_entry("two").encode(), "docs/kernels/lost.yml")
    text = one_list(ReadingContext(shelf))
    assert "Read first:</span> Title two</p>" in text
    assert '<span class="ws-tag">a-tag</span>' in text  # nor is there a page of all readings
    assert '<span class="ws-topic">kernels/lost</span>' in reading_lists.all_readings_list(
        ReadingContext(shelf)
    )


@pytest.mark.parametrize(
    "fragment", [f"readings/{TOPIC}.md", f"start/{TOPIC}.md", reading_lists.EVERY_FRAGMENT]
)
def test_a_list_stands_on_its_own_page_only(trial: Trial, fragment: str) -> None:
    """Elsewhere its links would lead astray."""
    own = f'# Own\n\n--8<-- "readings/{TOPIC}.md"\n'
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(f"{TOPIC}.md", own)
    trial.add_page(reading_lists.EVERY_PAGE, f'# All\n\n--8<-- "{reading_lists.EVERY_FRAGMENT}"\n')
    assert trial.run_shelf("check").stderr == ""
    trial.add_page("other.md", f'# Other\n\n--8<-- "{fragment}"\n')
    found = trial.run_shelf("check")
    assert found.returncode == 1
    assert "docs/other.md:3: embeds a list whose links only work on docs/" in found.stderr


def test_an_empty_topic_says_so(built_articles: dict[str, str]) -> None:
    assert f'<p class="ws-empty">{EMPTY}</p>' in built_articles["models/empty.md"]
    assert EMPTY in reading_lists.all_readings_list(ReadingContext(Shelf()))


def test_the_contents_count_every_topic(built_articles: dict[str, str]) -> None:
    page = Page(built_articles["index.md"])
    words = " ".join(page.text.split())
    assert words.endswith("4 readings in all. Kernels 2 Softmax & co 2 Models 2 Empty 0 Roofline 2")
    assert [link for link in page.collect_links() if link != "#home"] == [
        "kernels/softmax/", "models/empty/", "models/roofline/",
    ]  # fmt: skip


def test_a_topic_without_a_page_is_not_in_the_contents() -> None:
    shelf = Shelf()
    shelf.add_file(SOFTMAX.encode(), "docs/kernels/softmax.yml")
    assert "softmax" not in render_contents(shelf) and "0 readings in all" in render_contents(shelf)
    assert list(render_lists(ReadingContext(shelf))) == [
        "readings/kernels/softmax.md", "start/kernels/softmax.md"
    ]  # fmt: skip


def test_a_need_that_is_not_on_the_shelf_is_named_without_a_link() -> None:
    shelf = Shelf()
    shelf.add_file(SOFTMAX.encode(), "docs/kernels/softmax.yml")
    assert "Read first:</span> roofline</p>" in one_list(ReadingContext(shelf))


def test_hostile_texts_show_and_do_not_act(tmp_path: Path) -> None:
    """Even for entries that the loader would refuse, nothing of a text acts on the site."""
    topic = Topic("kernels/hostile", HOSTILE[0], page=True, shown=True, listed=True)
    shelf = Shelf(topics={"kernels/hostile": topic})
    for number, text in enumerate(HOSTILE):
        reading = Reading.model_construct(
            id=f"h{number}", title=text, title_en=text, url="https://example.org/?a=<b>&c='d'",
            kind="post", authors=[text], venue=text, why=text, lang="zh", mended=text, year=2020,
            needs=[f"h{(number + 1) % len(HOSTILE)}", text], snippets=[text], tags=[text],
            also=[Also(what="code", url="https://example.org/%22`*_[x](y)")],
        )  # fmt: skip
        reading._entry = Entry(1, path="docs/kernels/hostile.yml")
        topic.readings.append(reading)
        shelf.readings[reading.id] = reading
    singled = "".join(f'--8<-- "reading/h{number}.md"\n\n' for number in range(len(HOSTILE)))
    pages = {
        "index.md": '# Home\n\n--8<-- "readings/all.md"\n',
        "kernels/hostile.md": '# X\n\n--8<-- "readings/kernels/hostile.md"\n\nend\n',
        "kernels/within.md": f"# X\n\n<div markdown>\n\n{singled}</div>\n",
        "kernels/single.md": f"# X\n\n{singled}",
    }
    built = build_articles(tmp_path, pages, ReadingContext(shelf, PAGES, {}, EVERY))
    index = Page(built.pop("index.md"))
    assert HOSTILE[0] in index.text and "script" not in {tag for tag, _ in index.elements}
    for name, source in built.items():
        page = Page(source)
        tags = {tag for tag, _ in page.elements} - {"div", "pre", "code", "details", "summary"}
        assert tags <= {"h1", "h3", "a", "ul", "li", "p", "span"}, name
        assert sum(tag == "li" for tag, _ in page.elements) == len(HOSTILE)
        names = {name for _, attributes in page.elements for name in attributes}
        assert names <= {
            "id", "class", "href", "hreflang", "lang", "data-kind", "data-lang", "data-tags",
            "data-year", "data-words", "data-topic", "data-finder", "data-preview",
            "data-search-exclude",
            "title",
        }, name  # fmt: skip
        assert "SECRET" not in source and "\x1b" not in source and "\u202e" not in source
        links = page.collect_links()
        own = ("https://example.org/", "#", "../../kernels/hostile/", "../kernels/hostile/",
               "../hostile/", "../../exports/", "../exports/")  # fmt: skip
        assert all(link.startswith(own) for link in links), links
        least = 2 if name == "everything.md" else 6
        for text in HOSTILE[:7]:
            assert page.text.count(text) >= least, text
        assert "red" in page.text and "[31m" not in page.text
