"""Text from people and programs, made inert for Markdown and HTML.

A page is Markdown with HTML in it, read by several extensions in turn. Whatever a title, a note or
a program's output holds, none of it may act: no emphasis, link, tag, attribute list, fence, tab or
snippet include. All of those start with ASCII punctuation, so it goes out as numeric entities, but
for commas and most full stops; what is left has no meaning to Markdown.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# ECMA-48: CSI sequences (colours, cursor), strings (OSC titles and links, DCS, APC, PM, SOS)
# up to their terminator, and the two- and three-character escapes.
ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Characters a browser does not show or that change what is around them: C0 and C1 controls, DEL,
# direction marks, embeddings and isolates, the byte order mark, surrogates, noncharacters, and the
# two that Python-Markdown uses for its own placeholders (U+0002, U+0003 are C0 controls).
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
BREAKS = re.compile("\r\n|[\r\n\u2028\u2029]")
# A comma never means anything, and a full stop only after a number, which then begins a list.
ACTING = re.compile(r"(?<=[0-9])\.(?!\S)|[!-+\-/:-@\[-`{-~]")


def plain_text(text: str) -> str:
    r"""`text` without escape sequences and unseen characters; every line break is `\n`."""
    return UNSEEN.sub("", BREAKS.sub("\n", ANSI.sub("", text)))


def escape_markdown(text: str) -> str:
    """Markdown and HTML that show exactly `plain_text(text)`, on one line."""
    return _escape_acting(join_lines(text))


def _escape_acting(text: str) -> str:
    return ACTING.sub(lambda found: f"&#{ord(found[0])};", text)


def join_lines(text: str) -> str:
    """`plain_text(text)` with spaces for line breaks and tabs, without space at its ends."""
    return re.sub(r"[\t\n]", " ", plain_text(text)).strip()


def escape_prose(text: str) -> str:
    """`escape_markdown(text)`, with what stands between two backticks on a line shown as code."""
    return re.sub(r"&#96;(.+?)&#96;", r"<code>\1</code>", escape_markdown(text))


def quote_attribute(text: str) -> str:
    """`text` as the value of an HTML attribute, in double quotes.

    Not for an element that itself has the attribute `markdown`: Python-Markdown reads and rewrites
    those, and a text such as `&#60;` would come out as `<` (still inside its quotes).
    """
    return f'"{escape_markdown(text)}"'


def quote_href(url: str) -> str:
    """`url` as the value of an `href` attribute, in double quotes.

    Raises ValueError for anything but an absolute http or https URL without spaces, control
    characters or a user name.
    """
    if not re.fullmatch(r"[!-~\u00a1-\U0010ffff]+", url) or plain_text(url) != url or "\\" in url:
        raise ValueError(f"the URL {url!r} holds a space, a backslash or a control character")
    try:
        parts = urlsplit(url)
        named = parts.scheme.lower() in ("http", "https") and parts.hostname
        user = parts.username
    except ValueError as error:
        raise ValueError(f"the URL {url!r} cannot be read: {error}") from None
    if not named:
        raise ValueError(f"the URL {url!r} does not start with https:// and a host")
    if user is not None:
        raise ValueError(f"the URL {url!r} names a user before the host")
    return f'"{escape_markdown(url)}"'


def preformatted_block(text: str) -> str:
    r"""An HTML block `<pre><code>…</code></pre>` showing exactly `plain_text(text)`.

    The block is a single line: line breaks go out as `&#10;` and tabs as `&#9;`, so a blank line
    cannot end the block, an indent cannot change it, and no line of it can start a fence, a tab or
    a snippet. It may stand alone or indented inside a content tab. Leave a blank line around it.
    """
    shown = _escape_acting(plain_text(text))
    # Runs of spaces would survive inside <pre>, but a parser that re-wraps text must not see them.
    shown = shown.replace("\n", "&#10;").replace("\t", "&#9;")
    # The HTML parser drops a line break right after <pre>; <code> stands between, so none is lost.
    return f"<pre><code>{shown}</code></pre>"


# What no search reads, Markdown and a builder's other parsers need not read either, which was half
# of a build's time. They pass on unread what stands in a script; docs/overrides/theme/main.html
# takes these marks out of each page.
MARKS = ('<script type="text/html">', "</script >")
UNSEARCHED = re.compile(
    r'<(?P<tag>table|svg|ul|div)\b[^>]* data-search-exclude="yes".*?</(?P=tag)>', re.DOTALL
)


def mark_unread(text: str) -> str:
    """Markdown whose HTML that no search reads is marked to be passed on unread.

    Such an element holds no other of its tag.
    """
    return UNSEARCHED.sub(lambda found: found[0].join(MARKS), text)


def remove_marks(text: str) -> str:
    """The text before `mark_unread`."""
    for mark in MARKS:
        text = text.replace(mark, "")
    return text
