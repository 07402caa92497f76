"""The PNG pictures of the site, drawn from SVG by a browser: `python tests/pictures.py`.

Fonts differ between machines, so a picture is not compared by its pixels. It holds the digest of
what it was drawn from instead, which a test compares.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
NOTE = b"Source"  # keyword of the text chunk that holds the digest


@dataclass(frozen=True)
class Picture:
    """A PNG below docs/, and how it is drawn."""

    png: str
    svg: str
    width: int
    height: int
    paper: str = "transparent"
    margin: int = 0

    @property
    def source(self) -> str:
        """The page of which the browser takes a picture."""
        svg = base64.b64encode((DOCS / self.svg).read_bytes()).decode()
        wide, high = self.width - 2 * self.margin, self.height - 2 * self.margin
        return (
            f"<body style='margin:{self.margin}px;background:{self.paper}'>"
            f"<img src='data:image/svg+xml;base64,{svg}' width='{wide}' height='{high}'"
            " style='display:block'>"
        )

    @property
    def digest(self) -> str:
        """The digest of what the picture is drawn from."""
        made = f"{self.width} {self.height} {self.source}".encode()
        return hashlib.sha256(made).hexdigest()


PICTURES = (
    Picture("assets/card.png", "overrides/pictures/card.svg", 1200, 630),
    Picture("assets/favicon.png", "assets/logo.svg", 96, 96),
    Picture("assets/touch.png", "assets/logo.svg", 180, 180, "#fcfbf8", 18),
)


def read_chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG: what each is, and what it holds.

    Raises:
        ValueError: it is no PNG, or a chunk is damaged.
    """
    if not png.startswith(SIGNATURE):
        raise ValueError("it is no PNG")
    at = len(SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body = png[at + 8 : at + 8 + length]
        if png[at + 8 + length : at + 12 + length] != _pack_checksum(kind + body):
            raise ValueError(f"its chunk {kind.decode('latin-1')} is damaged")
        yield kind, body
        at += 12 + length


def read_digest(png: bytes) -> str:
    """The digest that a picture holds; empty where it holds none."""
    for kind, body in read_chunks(png):
        if kind == b"tEXt" and body.startswith(NOTE + b"\0"):
            return body.removeprefix(NOTE + b"\0").decode("latin-1")
    return ""


def with_note(png: bytes, digest: str) -> bytes:
    """The same picture, with the digest before its last chunk."""
    body = NOTE + b"\0" + digest.encode("latin-1")
    text = struct.pack(">I4s", len(body), b"tEXt") + body + _pack_checksum(b"tEXt" + body)
    end = struct.pack(">I4s", 0, b"IEND") + _pack_checksum(b"IEND")
    return png.removesuffix(end) + text + end


def _pack_checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def draw_pictures() -> None:
    """Draw every picture that is not of its present source."""
    from browser import launch_browser

    with launch_browser() as browser:
        for picture in PICTURES:
            path = DOCS / picture.png
            if path.exists() and read_digest(path.read_bytes()) == picture.digest:
                continue
            tab = browser.new_page(viewport={"width": picture.width, "height": picture.height})
            tab.set_content(picture.source)
            png = tab.screenshot(omit_background=picture.paper == "transparent")
            path.write_bytes(with_note(png, picture.digest))
            print(f"wrote {picture.png}")
            tab.close()


if __name__ == "__main__":
    draw_pictures()
