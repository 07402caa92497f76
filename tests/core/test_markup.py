"""Whatever a text holds, a page shows it and nothing of it acts."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import urljoin

import markdown
import pytest
import yaml
from conftest import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpshelf.core.markup import (
    MARKS,
    escape_markdown,
    escape_prose,
    mark_unread,
    plain_text,
    preformatted_block,
    quote_attribute,
    quote_href,
    remove_marks,
)
from warpshelf.core.pages import heading_slug, page_anchors
from warpshelf.core.places import OnPage, page_address, whole_address

HOSTILE = [
    "<script>alert(1)</script>",
    "</code></pre><script>alert(1)</script>",
    "</li></ul><img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](https://example.org/x.png)",
    '--8<-- "secret.md"',
    "--8<--\nsecret.md\n--8<--",
    "{: onclick=alert(1) }",
    "{ .x onclick=alert(1) }",
    "::: warpshelf.markup",
    "a | b\n--|--\n1 | 2",
    "``` python\nx\n```",
    "~~~\nx\n~~~",
    '=== "Tab"\n\n    inside',
    "!!! note\n    inside",
    "??? note\n    inside",
    "# heading\n## heading",
    "heading\n=======",
    "* * *",
    "- item\n1. item",
    "term\n:   meaning",
    "[^1] and [^1]: note",
    "++ctrl+alt++ ==mark== ^^ins^^ ~~del~~ H~2~O",
    "&lt;b&gt; &amp; &#60; &copy",
    "\\*a\\* \\<b>",
    "*a* _b_ `c` **d**",
    "\x1b[31mred\x1b[0m \x1b]8;;javascript:x\x07link\x1b]8;;\x07 \x9b31m",
    "\u202etxt.exe\u202c \u2066x\u2069 \ufeff",
    "\x02wzxhzdk:0\x03 \x02amp\x03",
    "[TOC]",
    "<!-- a comment --> <?php ?> <![CDATA[x]]>",
    "https://example.org www.example.org a@example.org",
    "*[HTML]: x\nHTML",
    "    indented\n\n\n        more\n\ttab",
    "\n\nleading and trailing\n\n",
    "line\r\nline\rline\u2028line",
]
PIECES = [*HOSTILE, *"\n\t *_`<>[](){}:|#-=+!&;\\\"'~^", "    ", "a"]
TEXTS = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=8).map("".join))


PREVIEWS = "material.extensions.preview"  # works on links that MkDocs has resolved: not without it


def read_extensions() -> tuple[list[str], dict[str, dict[str, object]]]:
    """The site's Markdown extensions and their settings, as mkdocs.yml has them."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    settings_of = site["markdown_extensions"]
    del settings_of[PREVIEWS]
    settings_of["pymdownx.snippets"] = {"base_path": [str(ROOT / "tests")], "check_paths": True}
    return list(settings_of), settings_of


NAMES, SETTINGS = read_extensions()
CONVERTER = markdown.Markdown(extensions=NAMES, extension_configs=SETTINGS)


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.data: list[str] = []
        self.others: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.data.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def joined_text(self) -> str:
        return "".join(self.data)


def render_markup(source: str) -> Page:
    CONVERTER.reset()
    return Page(CONVERTER.convert(source))


def one_line(text: str) -> str:
    return " ".join(plain_text(text).replace("\t", " ").split("\n")).strip()


PLACES = {
    "paragraph": ("X{}Y", {"p": 1}),
    "alone in a paragraph": ("{}", None),
    "list item": ("- {}", None),
    "link": ("X[{}](https://example.org)Y", {"p": 1, "a": 1}),
    "emphasis": ("X **{}** Y", None),
    "heading": ("# X{}Y", {"h1": 1, "a": 1}),
    "table": ("| A |\n|---|\n| X{}Y |", None),
    "html": ('<ul markdown>\n<li markdown="block">\n<p markdown>X{}Y</p>\n</li>\n</ul>',
             {"ul": 1, "li": 1, "p": 1}),
    "tab": ('=== "One"\n\n    X{}Y\n', {"p": 1, "div": 4, "input": 1, "label": 1}),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_is_inert(place: str, text: str) -> None:
    template, tags = PLACES[place]
    page = render_markup(template.format(escape_markdown(text)))
    assert one_line(text) in page.joined_text.replace("\n", " ")
    harmless = render_markup(template.format("harmless"))
    assert page.tags == harmless.tags
    assert tags is None or dict(page.tags) == tags
    # The id of a heading is made of its text; nothing else may differ.
    assert [a for a in page.attributes if a[:2] != ("h1", "id") and a[0] != "a"] == [
        a for a in harmless.attributes if a[:2] != ("h1", "id") and a[0] != "a"
    ]
    assert not page.others


@settings(max_examples=300)
@given(TEXTS)
@example("&#60;b&#62;")
def test_any_text_comes_back_from_a_paragraph(text: str) -> None:
    page = render_markup(f"X{escape_markdown(text)}Y\n\nend")
    assert page.joined_text.strip() == f"X{one_line(text)}Y\nend"
    assert page.tags == {"p": 2} and not page.attributes and not page.others


@settings(max_examples=200)
@given(TEXTS)
def test_any_text_comes_back_from_inside_html(text: str) -> None:
    shown = f"<span title={quote_attribute(text)}>X{escape_markdown(text)}Y</span>"
    page = render_markup(f'<div markdown>\n<p class="ws-why" markdown>{shown}</p>\n</div>\n\nend')
    assert page.tags == {"div": 1, "p": 2, "span": 1}
    assert page.joined_text.split() == f"X{one_line(text)}Y end".split()
    assert [a for a in page.attributes if a[1] == "title"] == [("span", "title", one_line(text))]


BLOCKS = {
    "alone": ("before\n\n{}\n\nafter", {"p": 2, "pre": 1, "code": 1}),
    "first": ("{}", {"pre": 1, "code": 1}),
    "html": ('<div class="ws-x" markdown>\n\n{}\n\n</div>', {"div": 1, "pre": 1, "code": 1}),
    "details": ("<details markdown><summary>s</summary>\n\n{}\n\n</details>",
                {"details": 1, "summary": 1, "pre": 1, "code": 1}),
    "tab": ('=== "One"\n\n    before\n\n    {}\n\n    after\n\n=== "Two"\n\n    x\n', None),
    "list": ("- before\n\n    {}\n", None),
}  # fmt: skip


def inside_pre(page_source: str) -> str:
    """The text of the only <pre>, as a browser reads it."""
    found = re.findall(r"<pre[^>]*>(.*?)</pre>", page_source, re.DOTALL)
    assert len(found) == 1
    return Page(found[0]).joined_text


@pytest.mark.parametrize("place", BLOCKS)
@settings(max_examples=120)
@given(text=TEXTS)
def test_any_output_comes_back_from_a_block(place: str, text: str) -> None:
    template, tags = BLOCKS[place]
    CONVERTER.reset()
    source = CONVERTER.convert(template.format(preformatted_block(text)))
    assert inside_pre(source) == plain_text(text)
    page, harmless = Page(source), render_markup(template.format(preformatted_block("x")))
    assert page.tags == harmless.tags and page.attributes == harmless.attributes
    assert tags is None or dict(page.tags) == tags
    assert not page.others


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_output_stays_in_its_block(text: str) -> None:
    for template, _ in BLOCKS.values():
        CONVERTER.reset()
        source = CONVERTER.convert(template.format(preformatted_block(text)))
        assert inside_pre(source) == plain_text(text)
        assert "<script" not in source and "<img" not in source


def test_a_block_is_one_line_and_never_blank() -> None:
    block = preformatted_block('a\n\n\n--8<-- "x"\n    b\n')
    assert "\n" not in block and "--8<--" not in block
    assert block == (
        "<pre><code>a&#10;&#10;&#10;&#45;&#45;8&#60;&#45;&#45; &#34;x&#34;&#10;    b&#10;"
        "</code></pre>"
    )


def test_plain_drops_what_is_not_seen_and_keeps_the_rest() -> None:
    assert plain_text("\x1b[1;31mred\x1b[0m\x07 \x1b]0;title\x1b\\end") == "red end"
    assert plain_text("a\r\nb\rc\u2029d\te") == "a\nb\nc\nd\te"
    assert plain_text("\u202eabc\u200f\ud800\x00") == "abc"
    assert plain_text("流水线 é ★ 👍") == "流水线 é ★ 👍"


def test_escape_leaves_commas_and_full_stops_alone() -> None:
    assert escape_markdown("a*b") == "a&#42;b"
    left = re.sub(r"&#\d+;", "", escape_markdown("".join(map(chr, range(128)))))
    assert set(re.findall(r"[!-/:-@\[-`{-~]", left)) == {",", "."}
    assert escape_markdown(" a\n\tb ") == "a  b"
    assert escape_markdown("1. a 0.5, b.") == "1&#46; a 0.5, b."


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html,x", "file:///etc/passwd",
        "//example.org", "/a", "example.org", "", "https://", "https:///a", "http:example.org",
        "https://example.org/a b", "https://example.org/\n", "https://example.org/\x1b[0m",
        "https://user@example.org", "https://user:word@example.org", "https://[::1", " https://x.org",
        "https://example.org\\@evil.org", "https://example.org/\u202e",
    ],
)  # fmt: skip
def test_href_refuses_all_but_web_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        quote_href(url)


def test_href_keeps_the_address() -> None:
    url = "https://example.org/a(b)_c?x=1&copy=2#d'e"
    page = render_markup(f"X <a href={quote_href(url)}>x</a>")
    assert page.attributes == [("a", "href", url)]
    assert not render_markup(f"X <a href={quote_href(url)}>x</a>").others


def test_prose_shows_what_stands_between_backticks_as_code() -> None:
    assert escape_prose("a `b` c") == "a <code>b</code> c"
    assert escape_prose("`a` and `b`").count("<code>") == 2
    for text in ("a ` b", "``", "no code"):
        assert escape_prose(text) == escape_markdown(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_prose_is_inert_too(text: str) -> None:
    shown = escape_prose(f"`{text}`")
    inside = shown.replace("<code>", "").replace("</code>", "")
    assert not re.search(r"[<>`*_\[\]{}]", inside)


TABLE = '<table class="a" data-search-exclude="yes">\n<tr><td>*1*</td></tr>\n\n</table>'


def test_what_no_search_reads_is_passed_on_and_the_rest_is_read() -> None:
    text = f"<div>\n{TABLE} <p>{TABLE}</p>\n<table><tr><td>2</td></tr></table>\n</div>\n\n*b*\n"
    marked = mark_unread(text)
    assert marked.count(TABLE.join(MARKS)) == marked.count(MARKS[0]) == 2
    assert remove_marks(marked) == text
    made = markdown.markdown(marked, extensions=["md_in_html"])
    assert remove_marks(made) == markdown.markdown(text, extensions=["md_in_html"])


def test_the_theme_takes_out_the_marks() -> None:
    theme = (ROOT / "docs/overrides/theme/main.html").read_text(encoding="utf-8")
    shown = theme[theme.index("{% block content %}") :]
    assert all(f"replace('{mark}', \"\")" in shown for mark in MARKS)


# Anchors are told without building a page, as the build names them.

PAGES = sorted((ROOT / "docs").rglob("*.md"))
EXTENSIONS = ["attr_list", "toc", "pymdownx.superfences"]


def build_anchors(text: str) -> set[str]:
    """The anchors of a page's headings as Markdown makes them."""
    html = markdown.markdown(text, extensions=EXTENSIONS)
    return set(re.findall(r'<h[1-6][^>]*? id="([^"]+)"', html))


def test_every_heading_of_our_pages_is_named_as_the_build_names_it() -> None:
    assert len(PAGES) > 60
    for page in PAGES:
        text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.S)
        missing = build_anchors(text) - page_anchors(text)
        assert not missing, f"{page}: {missing}"


# No emphasis and no code: Markdown reads odd ones in ways that no heading of ours needs.
WORDS = st.text("abC -.,:12()'é", max_size=20).map(lambda text: f"x{text}y")


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=6))
def test_any_heading(words: list[str]) -> None:
    text = "\n\n".join(f"## {word}" for word in words)
    assert page_anchors(text) == build_anchors(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A b\n## A b\n### A b\n", {"a-b", "a-b_1", "a-b_2"}),
        ("## Views { #views }\n## More {: #more .x }\n", {"views", "more"}),
        ('<p class="x" id="here">\n<!-- id="not" -->', {"here"}),
        ("```python\n# no heading\n```\n~~~~\n## nor this\n~~~~\n## Yes\n", {"yes"}),
        ("## [Linked](a.md) text\n## `n` decides\n", {"linked-text", "n-decides"}),
        ("", set()),
    ],
)
def test_what_counts(text: str, found: set[str]) -> None:
    assert page_anchors(text) == found


def test_slug() -> None:
    assert heading_slug("What `n` decides: Überlauf, 2-D") == "what-n-decides-uberlauf-2-d"


# A page has one address, and a link on another page leads there.

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
