"""The built site as a reader meets it: every page in a browser, wide and narrow, and every link."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import yaml
from browser import MORE, NARROW, WIDE, WIDEST, Visit, open_context
from conftest import exhaustive
from playwright.sync_api import Browser, Page

from warpshelf.core.places import page_address
from warpshelf.site import finishing

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
BASE = urlsplit(CONFIG["site_url"]).path  # where the published site lies on its host


def list_sources(nav: list) -> Iterator[str]:
    """The Markdown files that a navigation names, in its order."""
    for entry in nav:
        below = list(entry.values())[0] if isinstance(entry, dict) else entry
        if isinstance(below, list):
            yield from list_sources(below)
        else:
            yield below


# One of each kind; what is wrong with the pages of a kind is mostly wrong with each.
TEN = (
    "", "everything/", "glossary/", "results/", "kernels/softmax/one-pass/", "kernels/softmax/",
    "models/transformer-arithmetic/", "calculators/memory/", "paths/flash-attention/",
    "reference/tooling/",
)  # fmt: skip
PAGES = [page_address(source) for source in list_sources(CONFIG["nav"])]
PAGES.sort(key=lambda page: page not in TEN)
each_page = pytest.mark.parametrize(
    "page", exhaustive(PAGES, "all pages", light=len(TEN)), ids=lambda page: page or "home"
)


# Every page.

COLUMNS = 88
UNFOLD = """() => {
  document.querySelectorAll('details').forEach(fold => fold.open = true);
  document.querySelectorAll('.tabbed-block').forEach(tab => tab.style.display = 'block');
}"""
CUT_OFF = """([columns, filled]) => {
 const blocks = [...document.querySelectorAll('.highlight pre > code')];
 // All is written before anything is measured, so that the page is laid out once.
 if (filled) blocks.forEach(code => {
  code.textContent = ('m'.repeat(columns) + '\\n').repeat(3);
 });
 return blocks.map(code => {
  const longest = Math.max(...code.textContent.split('\\n').map(line => line.length));
  return {longest, over: code.scrollWidth - code.clientWidth, wide: code.clientWidth};
 }).filter(code => code.longest <= columns && code.over > 0);
}"""


NO_ALT = "images => images.filter(i => i.alt.trim() === '').map(i => i.src)"
# The colours are set as the theme's script does it; that it does is a test of its own.
REACH = """() => {
  const shown = document.body.getAttribute('data-md-color-scheme');
  return [shown, shown === 'slate' ? 'default' : 'slate'].map(scheme => {
    document.body.setAttribute('data-md-color-scheme', scheme);
    return document.documentElement.scrollWidth;
  });
}"""


def measure_reach(tab: Page, width: int) -> int:
    """How far a page reaches, once what moves when a window gets another width has come to rest."""
    for _ in range(20):
        if (reach := max(tab.evaluate(REACH))) <= width:
            break
        tab.wait_for_timeout(100)
    return reach


SCREENS, WORDS = 12, 2_500  # of a page as it is seen, a screen being 1280 x 800
OVERVIEW, STEP = 900, 1_500  # words of the pages of a topic that has a folder
# Lists that are looked up and not read through.
LOOKED_UP = ("everything/", "glossary/", "about/tags/", "results/", "reference/")
SEEN = """() => ({
  screens: document.documentElement.scrollHeight / innerHeight,
  words: document.querySelector('article').innerText.split(/\\s+/).filter(Boolean).length,
})"""
# The innermost elements that reach beyond a window.
BEYOND = """width => [...document.querySelectorAll('body *')]
  .filter(one => one.getBoundingClientRect().right > width + 1)
  .filter((one, _, all) => !all.some(other => other !== one && one.contains(other)))
  .slice(0, 5).map(one => one.outerHTML.slice(0, 90))"""


def describe_reach(tab: Page, reach: int, width: int) -> str:
    return f"{reach} px wide in a window of {width} px: {tab.evaluate(BEYOND, width)}"


# Displayed formulas of which a part is cut off.
FORMULAS = """() => [...document.querySelectorAll('div.arithmatex')]
  .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1)
  .map(box => box.textContent.slice(0, 60))"""


# A topic.

DOCS = ROOT / "docs"
PARTS = ("kernels", "models", "training", "tools")
TOPICS = sorted(
    path.relative_to(DOCS).with_suffix("").as_posix()
    for part in PARTS
    for path in (DOCS / part).glob("*.yml")
)
FOLDERS = {topic for topic in TOPICS if (DOCS / topic).is_dir()}
# The topics in which somebody learns a method, and so should try it.
CORE = [
    *(f"kernels/{name}" for name in (
        "gpu-architecture", "memory-bandwidth", "softmax", "attention", "gemm", "tensor-cores",
        "warp-primitives", "bank-conflicts", "reductions", "convolution", "stencils", "fusion",
        "performance-models", "scheduling", "blackwell")),
    *(f"models/{name}" for name in (
        "transformer", "transformer-arithmetic", "training-cost", "inference-engines",
        "quantization", "speculative-decoding")),
    *(f"training/{name}" for name in (
        "collectives", "data-parallelism", "tensor-parallelism", "sequence-parallelism",
        "pipeline-parallelism", "mixture-of-experts", "fp8")),
]  # fmt: skip
FOLD = 900  # px from the top, by which the explanation has begun


def explains_before_it_lists(topic: str, tab: Page) -> None:
    """See that a topic's page has an explanation first, and what to start with.

    The overview of a folder has a picture, and a table or a list of its pages. Where a topic is one
    page, it has pictures, exercises, and the full list last.
    """
    listed = tab.locator(".ws-start li")
    assert 1 <= listed.count() <= 2
    if topic in FOLDERS:
        assert tab.locator(".md-content svg[role=img]").count() >= 1
        own = tab.locator(".md-content article a").evaluate_all("all => all.map(a => a.pathname)")
        assert any(f"/{topic}/" in path and not path.endswith(f"/{topic}/") for path in own)
        return
    headings = tab.eval_on_selector_all(
        ".md-content h2", "all => all.map(h => [h.id, h.getBoundingClientRect().top])"
    )
    assert headings[0][1] <= FOLD
    assert headings[0][0] != "readings"
    box = listed.last.bounding_box()
    assert box["y"] + box["height"] <= headings[0][1]
    assert headings[-1][0] == "readings"
    if topic.startswith("kernels/") and topic != "kernels/series":  # a list of courses
        pictures = tab.locator(".md-content svg[role=img]")
        assert pictures.count() >= 1
        assert all(one.locator("title").text_content().strip() for one in pictures.all())
    if topic in CORE:
        has_exercises(tab)


def has_exercises(tab: Page) -> None:
    folds = tab.locator("#exercises ~ ol > li > details.success")
    assert 3 <= folds.count() <= 5
    assert tab.locator("#exercises ~ ol > li > details.success[open]").count() == 0
    folds.first.locator("summary").click()
    assert folds.first.locator("strong").first.is_visible()


# Every page.


def most_words(page: str) -> int:
    """The words that a page may have, by what it is."""
    topic, _, rest = page.removesuffix("/").partition("/")[2].partition("/")
    if f"{page.partition('/')[0]}/{topic}" not in FOLDERS or rest in ("exercises", "readings"):
        return WORDS
    return STEP if rest else OVERVIEW


@each_page
def test_page(page: str, still_visit: Visit) -> None:
    """What must hold on every page, at each width and in each colour scheme: one visit for all."""
    still_visit.tab.set_viewport_size({"width": WIDE, "height": 800})
    shown = still_visit.open_page(page)
    assert shown.locator("h1").count() == 1
    assert shown.locator("h1").inner_text().strip()
    assert shown.eval_on_selector_all("img", NO_ALT) == []
    if not page.startswith(LOOKED_UP):
        seen = shown.evaluate(SEEN)
        assert seen["screens"] <= SCREENS
        assert seen["words"] <= most_words(page)
    reach = measure_reach(shown, WIDE)
    assert reach <= WIDE, describe_reach(shown, reach, WIDE)
    if page.removesuffix("/") in TOPICS:
        explains_before_it_lists(page.removesuffix("/"), shown)
    if page.endswith("/exercises/"):
        has_exercises(shown)
    shown.evaluate(UNFOLD)  # from here on, what folds hold counts as well
    for width in (WIDE, WIDEST, NARROW):
        shown.set_viewport_size({"width": width, "height": 800})
        reach = measure_reach(shown, width)
        assert reach <= width, f"unfolded: {describe_reach(shown, reach, width)}"
        assert shown.evaluate(FORMULAS) == [], f"formulas at {width} px"
        if width == NARROW:
            continue
        for filled in (False, True):  # the code that stands there now, and the widest that may
            cut_off = shown.evaluate(CUT_OFF, [COLUMNS, filled])
            assert cut_off == [], f"lines of code seen only by scrolling sideways at {width} px"
    assert still_visit.foreign == [], "requests to other hosts"
    assert still_visit.failed == [], "requests that failed"
    assert still_visit.console == [], "errors in the console"


def test_pages_show_code(site: Path) -> None:
    """The test of every page rests on the class of a block; see that it is not blind."""
    for page in ("kernels/softmax/one-pass/", "about/contributing/kernel/"):
        text = (site / page / "index.html").read_text("utf-8")
        assert re.search(r'<div class="(?:[^"]* )?highlight"', text)


# What a reader does.


def test_front_page_shows_a_result_on_the_first_screen(wide_visit: Visit) -> None:
    tab = wide_visit.open_page("")
    card = tab.locator(".ws-hero-result")
    assert len(card.inner_text().strip()) > 40
    box = card.bounding_box()
    assert box["y"] + box["height"] <= 800
    assert tab.locator(".ws-hero-counts").inner_text().strip()


def read_scheme(tab: Page) -> str:
    return tab.evaluate("document.body.getAttribute('data-md-color-scheme')")


@pytest.mark.exhaustive(MORE)
def test_colours_follow_the_system(browser: Browser, site_origin: str) -> None:
    for system, expected in (("light", "default"), ("dark", "slate")):
        context = open_context(browser, WIDE, color_scheme=system)
        assert (
            read_scheme(Visit(context.new_page(), site_origin).open_page("about/numbers/"))
            == expected
        )
        context.close()


def test_colours_can_be_chosen_and_stay_chosen(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, WIDE, color_scheme="light")
    tab = Visit(context.new_page(), site_origin).open_page("")
    toggle = "form[data-md-component=palette] label:not([hidden])"
    tab.click(toggle)  # from the system's to light
    assert read_scheme(tab) == "default"
    tab.click(toggle)
    assert read_scheme(tab) == "slate"
    tab.goto(f"{site_origin}/about/numbers/")
    assert read_scheme(tab) == "slate"
    context.close()


CONTRAST = """selector => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const light = colour => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = light(getComputedStyle(document.querySelector(selector)).color);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05);
}"""


@pytest.mark.parametrize("system", exhaustive(["dark", "light"], "both schemes"))
def test_text_stands_out(browser: Browser, site_origin: str, system: str) -> None:
    """WCAG's AAA for text and AA for links, in both colour schemes."""
    context = open_context(browser, WIDE, color_scheme=system)
    tab = Visit(context.new_page(), site_origin).open_page("about/contributing/kernel/")
    assert tab.evaluate(CONTRAST, ".md-content p") >= 7
    assert tab.evaluate(CONTRAST, ".md-content p a") >= 4.5
    assert tab.evaluate(CONTRAST, ".md-nav__link") >= 4.5
    assert tab.evaluate(CONTRAST, ".md-copyright") >= 4.5
    context.close()


@pytest.mark.exhaustive(MORE)
def test_code_can_be_copied(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, WIDE, permissions=["clipboard-read", "clipboard-write"])
    tab = Visit(context.new_page(), site_origin).open_page("about/contributing/kernel/")
    code = tab.locator("pre > code").first
    assert tab.locator("pre [data-clipboard-target], pre [data-md-type=copy]").count() > 0
    tab.locator("pre").first.hover()
    tab.locator("pre [data-clipboard-target], pre [data-md-type=copy]").first.click()
    assert tab.evaluate("navigator.clipboard.readText()").strip() == code.inner_text().strip()
    context.close()


def test_page_reads_without_scripts(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, WIDE, java_script_enabled=False)
    tab = Visit(context.new_page(), site_origin).open_page("kernels/softmax/one-pass/")
    assert tab.locator("h1").is_visible()
    assert tab.locator(".highlight pre > code").first.is_visible()
    for fold, target in (("evidence", "/evidence/softmax.html"), ("file", "/softmax/softmax.py")):
        tab.locator(f".ws-{fold} > summary").click()
        link = tab.locator(f".ws-{fold} a").first
        assert link.is_visible() and link.evaluate("a => a.href").endswith(target)
    context.close()


# Code: pages write at most 88 columns of it, which `test_page` sees whole.

COLOURED = """async () => {
  const blocks = (root) => [...root.querySelectorAll('[class*=language-] pre > code')];
  const sent = new DOMParser().parseFromString(
    await (await fetch(location.href)).text(), 'text/html');
  const texts = blocks(sent).map(code => code.textContent);
  const found = [];
  for (const [index, code] of blocks(document).entries()) {
    code.scrollIntoView();
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)));
    found.push([code.textContent === texts[index], new Set(
      [...code.querySelectorAll('span[class]')].map(span => span.className)).size]);
  }
  return found;
}"""


def test_on_a_phone_no_name_covers_another_column(narrow_visit: Visit) -> None:
    names = narrow_visit.open_page("results/").locator(".ws-results th[scope=row] code")
    beyond = names.evaluate_all(
        """all => all.filter(code => code.getBoundingClientRect().right
          > code.closest('th').getBoundingClientRect().right + 1).map(code => code.textContent)"""
    )
    assert names.count() > 50 and beyond == []


@pytest.mark.parametrize(
    "page", exhaustive(["training/fp8/product/", "kernels/tensor-cores/wmma/"], "more code")
)
def test_code_is_coloured_and_stays_what_it_is(wide_visit: Visit, page: str) -> None:
    tab = wide_visit.open_page(page)
    tab.evaluate(UNFOLD)
    found = tab.evaluate(COLOURED)
    assert len(found) > 2 and all(same for same, _ in found)
    assert sum(kinds > 3 for _, kinds in found) > 2


def test_pages_write_no_longer_lines_of_code() -> None:
    long = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        fence = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            mark = re.match(r" *(`{3,}|~{3,})", line)
            if mark and (not fence or mark[1] == fence):
                fence = "" if fence else mark[1]
            elif fence and len(line.strip()) > COLUMNS:
                long.append(f"{path.relative_to(ROOT)}:{number}")
    assert long == []


@pytest.mark.exhaustive(MORE)
def test_prose_is_no_wider_for_it(wide_visit: Visit) -> None:
    tab = wide_visit.open_page("kernels/softmax/one-pass/")
    box = "element => element.getBoundingClientRect().width / element.parentElement.clientWidth"
    assert tab.eval_on_selector(".md-content__inner > p", box) < 0.9
    assert tab.eval_on_selector(".md-content__inner .highlight", box) > 0.95


# Links. No browser: the files are read.


class Links(HTMLParser):
    """Anchors, links and embedded addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.embedded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        relations = set(values.get("rel", "").split())
        followed = tag == "a" or (tag == "link" and relations & {"canonical", "prev", "next"})
        if "href" in values:
            (self.links if followed else self.embedded).add(values["href"])
        if "src" in values:
            self.embedded.add(values["src"])


@pytest.fixture(scope="session")
def parsed_pages(site: Path) -> dict[str, Links]:
    """Each HTML file of the site by its address below the site's base."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        links = Links()
        links.feed(path.read_text(encoding="utf-8"))
        links.close()
        pages[path.relative_to(site).as_posix()] = links
    return pages


def own_file(page: str, link: str) -> tuple[str, str] | None:
    """The file and anchor that a link on a page leads to; None if it leads off the site."""
    here = urljoin(CONFIG["site_url"], page.removesuffix("index.html"))
    parts = urlsplit(urljoin(here, link))
    if parts.netloc != urlsplit(CONFIG["site_url"]).netloc:
        return None
    if not parts.path.startswith(BASE):
        return f"outside {BASE}: {parts.path}", parts.fragment
    path = unquote(parts.path.removeprefix(BASE))
    return (f"{path}index.html" if path == "" or path.endswith("/") else path), parts.fragment


def test_every_page_of_the_navigation_is_built(parsed_pages: dict[str, Links]) -> None:
    assert set(TEN) <= set(PAGES)
    assert {f"{page}index.html" for page in PAGES} <= set(parsed_pages)
    assert {f"{topic}/" for topic in TOPICS} <= set(PAGES)
    assert {f"{topic}/readings/" for topic in FOLDERS} <= set(PAGES)
    assert {f"{topic}/exercises/" for topic in FOLDERS & set(CORE)} <= set(PAGES)


def test_links_within_the_site_lead_somewhere(site: Path, parsed_pages: dict[str, Links]) -> None:
    broken = []
    for page, links in parsed_pages.items():
        for link in sorted(links.links | links.embedded):
            target = own_file(page, link)
            if target is None:
                continue
            path, anchor = target
            if not (site / path).is_file():
                broken.append(f"{page}: {link} (no such file)")
            elif anchor and path in parsed_pages and unquote(anchor) not in parsed_pages[path].ids:
                broken.append(f"{page}: {link} (no such anchor)")
    assert broken == []


def test_each_column_of_a_table_has_a_name(site: Path) -> None:
    """Also on the pages that axe does not look at."""
    nameless = re.compile(r"<th\b[^>]*>\s*</th>")
    pages = {path: path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}
    assert sum("<th" in text for text in pages.values()) > 40
    assert [str(path) for path, text in pages.items() if nameless.search(text)] == []


def test_nothing_is_embedded_from_elsewhere(parsed_pages: dict[str, Links]) -> None:
    embedded = [
        f"{page}: {link}"
        for page, links in parsed_pages.items()
        for link in links.embedded
        if own_file(page, link) is None and not link.startswith("data:")
    ]
    assert embedded == []


def test_style_sheets_fetch_nothing_from_elsewhere(site: Path) -> None:
    foreign = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", re.IGNORECASE)
    sheets = list(site.rglob("*.css"))
    assert sheets
    assert [sheet.name for sheet in sheets if foreign.search(sheet.read_text("utf-8"))] == []


def test_data_files_stay_unpublished(site: Path) -> None:
    """Readings and templates are sources, not pages."""
    assert list(site.rglob("*.yml")) == []
    assert list(site.rglob("*.jinja")) == []


KILOBYTES, NODES = 300, 5_000  # of a page as it is sent
INDEX = 200_000  # bytes of the search's index, compressed


def test_no_page_weighs_too_much(site: Path) -> None:
    heavy = []
    for path in sorted(site.rglob("*.html")):
        text = path.read_text("utf-8")
        nodes = len(re.findall(r"<[a-z]", text))
        if len(text.encode()) > 1000 * KILOBYTES or nodes > NODES:
            heavy.append(f"{path.relative_to(site)}: {len(text) // 1000} KB, {nodes} nodes")
    assert heavy == []


def test_rules_that_pages_do_without_are_dropped(site: Path, builder: str) -> None:
    """And no page has more tabs side by side than there are rules left for."""
    css = "@media print{.no-js .tabbed-set a,.b{c:d}.tabbed-set>input:nth-child(9)~:nth-child(9){}}"
    assert finishing.drop_rules(css) == "@media print{.b{c:d}}"
    css = "table:not([class])+*{c:d}table:not([class]) td>:last-child{e:f}"
    assert finishing.drop_rules(css) == "table.ws-plain td>:last-child{e:f}"
    if builder == "mkdocs":
        [theme] = site.glob("assets/stylesheets/main.*.css")
        left = theme.read_text("utf-8")
        assert f".tabbed-set>input:nth-child({finishing.TABS})" in left
        assert f".tabbed-set>input:nth-child({finishing.TABS + 1})" not in left
    pages = (path.read_text("utf-8") for path in site.rglob("*.html"))
    counts = {int(count) for page in pages for count in re.findall(r'data-tabs="\d+:(\d+)"', page)}
    assert 1 < max(counts) <= finishing.TABS


def test_plain_tables_come_in_boxes_that_scroll(site: Path) -> None:
    """As the theme's script would put them, which then finds none."""
    plain, boxed = "<table><tr></table>", '<table class="ws-table"></table>'
    inner = finishing.BOXED.format('<table class="ws-plain"><tr></table>')
    assert finishing.box_tables(plain + boxed + plain) == inner + boxed + inner
    pages = [path.read_text("utf-8") for path in site.rglob("*.html")]
    assert sum(page.count("ws-plain") for page in pages) > 100
    assert not any(re.search(r"<table(?![^>]*class=)", page) for page in pages)


def test_a_term_is_explained_once_in_a_section(site: Path) -> None:
    warp, sm = '<abbr title="threads">{}</abbr>', '<abbr title="unit">SM</abbr>'
    text = warp.format("warp") + sm + warp.format("Warps") + "<h2>a {}</h2>" + warp.format("warp")
    ready = finishing.explain_once(text.format(sm) + f"<abc>{sm}</abc><a>{sm}</a>{sm}")
    assert ready == (
        warp.format("warp") + sm + "Warps<h2>a SM</h2>" + warp.format("warp")
        + f"<abc>{sm}</abc><a>SM</a>SM"
    )  # fmt: skip
    link = '<a class="headerlink" href="#a" {0}="Link"><a href="#b" class="headerlink" {0}="Link">'
    assert finishing.label_links(link.format("title")) == link.format("aria-label")
    page = (site / "kernels" / "gpu-architecture" / "index.html").read_text("utf-8")
    for section in page.split("<h2")[:-1]:
        titles = re.findall(r'<abbr title="([^"]+)"', section)
        assert len(titles) == len(set(titles))


@pytest.mark.parametrize("page", ["kernels/gpu-architecture/", "results/", "kernels/gemm/"])
def test_a_page_is_styled_once(
    narrow_visit: Visit, browser: Browser, page: str, builder: str
) -> None:
    """On a phone most of the time for which a page is blocked goes into its styles.

    Whatever changes the page at its start may have it all styled anew, which it was four times.
    """
    if builder != "mkdocs":
        pytest.skip("Zensical's own script has a page styled anew")
    narrow_visit.tab.goto("about:blank")
    browser.start_tracing(page=narrow_visit.tab, categories=["devtools.timeline"])
    tab = narrow_visit.open_page(page)
    tab.wait_for_load_state("networkidle")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    counts = [event["args"].get("elementCount", 0) for event in events
              if event["name"] == "UpdateLayoutTree" and event["ph"] == "X"]  # fmt: skip
    elements = tab.evaluate("document.querySelectorAll('body *').length")
    assert 0.3 * elements < sum(counts) < 1.8 * elements, sorted(counts)[-5:]


def test_the_index_of_the_search_is_small(site: Path, builder: str) -> None:
    if builder != "mkdocs":
        pytest.skip("Zensical makes an index of its own, which nobody shortens")
    index = site / "search" / "search_index.json"
    assert len(gzip.compress(index.read_bytes())) <= INDEX


def test_the_index_waits_until_the_search_is_used(wide_visit: Visit, builder: str) -> None:
    if builder != "mkdocs":
        pytest.skip("the search of Zensical asks for its index itself")
    asked: list[str] = []
    wide_visit.tab.on("request", lambda request: asked.append(request.url))
    tab = wide_visit.open_page("kernels/softmax/")
    assert not [url for url in asked if "search_index" in url]
    with tab.expect_request("**/search/search_index.json"):
        tab.locator(".md-search__input").focus()
