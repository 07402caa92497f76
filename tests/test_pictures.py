"""The PNG pictures of the site are drawn from what is there now."""

from __future__ import annotations

import struct

import pictures
import pytest
from pictures import DOCS, PICTURES, Picture

each = pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.png)


@each
def test_picture_is_current(picture: Picture) -> None:
    png = (DOCS / picture.png).read_bytes()
    again = "draw it again: python tests/pictures.py"
    assert pictures.read_digest(png) == picture.digest, again
    found = {kind: body for kind, body in pictures.read_chunks(png)}
    assert struct.unpack_from(">II", found[b"IHDR"]) == (picture.width, picture.height)
    assert len(png) < 100_000


@each
def test_digest_follows_the_source(picture: Picture, tmp_path, monkeypatch) -> None:
    before = picture.digest
    path = tmp_path / picture.svg
    path.parent.mkdir(parents=True)
    path.write_bytes((DOCS / picture.svg).read_bytes() + b"<!-- -->")
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    assert picture.digest != before


def test_a_damaged_picture_is_none() -> None:
    png = (DOCS / PICTURES[1].png).read_bytes()
    # the first counts
    assert pictures.read_digest(pictures.with_note(png, "x")) == pictures.read_digest(png)
    with pytest.raises(ValueError, match="no PNG"):
        list(pictures.read_chunks(b"GIF89a"))
    spot = png.index(b"IDAT") + 8
    with pytest.raises(ValueError, match="damaged"):
        list(pictures.read_chunks(png[:spot] + bytes([png[spot] ^ 1]) + png[spot + 1 :]))
