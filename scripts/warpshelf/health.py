"""Health: what machines found out about each link, kept in docs/links.json beside the readings.

People write readings; this file is written by `shelf links check` alone, and neither writes into
the other. It has one entry for each address, by the address as it stands in the readings.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from warpshelf.files import dump, write_atomically
from warpshelf.findings import Finding, ShelfError
from warpshelf.markup import href, plain

SCHEMA = 1
PATH = "docs/links.json"
LARGEST = 8_000_000  # bytes of a file that is read; an entry has about 200
LONGEST = 500  # characters of a title that is kept
STATES = {
    "alive": "it answered with a page",
    "moved": "it leads, for good, to another address",
    "failing": "the last checks failed, and too few of them to say more",
    "gone": "check after check, the page or its host was not there",
    "unreachable": "check after check, nothing answered",
    "blocked": "its host turns programs away, so only a person can look",
}
# Our own words for an answer; text from the web never stands here.
SAYS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,'-]{0,59}")
ARCHIVE = "web.archive.org"
MEND = "restore it from version control, or delete it: `shelf links check` writes it anew"


@dataclass(frozen=True)
class Health:
    """What is known of one address. Days are ISO 8601 text, such as 2026-11-21."""

    state: str  # a key of STATES
    since: str | None = None  # the first day of this state; of the first failure in a row of them
    last_alive: str | None = None  # a day on which it answered; renewed every few weeks only
    moved_to: str | None = None
    archived: str | None = None  # a copy in the Internet Archive, where the link fails
    title_there: str | None = None  # what the work is called there, whether or not it is ours
    says: str | None = None  # the last answer in a few words of ours: `answered 404`
    failures: int = 0  # days in a row on which a check failed; counted until the state is settled
    absences: int = 0  # of them, those on which the answer was that nothing is there
    counted: str | None = None  # the last day that was counted


def load(project_root: Path | str) -> dict[str, Health]:
    """The health of each address, by the address as the readings have it; {} with no file.

    Raises:
        ShelfError: the file is not what `save` writes; one finding says where it departs.
    """
    path = Path(project_root) / PATH
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _wrong(f"cannot be read ({error.strerror})", "make it a readable file") from None
    if len(data) > LARGEST:
        raise _wrong(f"has {len(data)} bytes, over the limit of {LARGEST}", MEND)
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _wrong("is not whole JSON", MEND) from None
    if not isinstance(value, dict) or set(value) != {"schema", "links"}:
        raise _wrong("is no object with just the keys `links` and `schema`", MEND)
    if value["schema"] != SCHEMA or isinstance(value["schema"], bool):
        what = f"is of schema {str(value['schema'])[:20]!r}, and this program writes {SCHEMA}"
        raise _wrong(what, "update your checkout, or delete the file")
    if not isinstance(value["links"], dict):
        raise _wrong("has no object at `links`", MEND)
    return {url: _entry(url, entry) for url, entry in value["links"].items()}


def save(project_root: Path | str, links: dict[str, Health]) -> bool:
    """Write the file in one step; True where it changed. What is unknown is left out."""
    entries = {url: written(health) for url, health in links.items()}
    for url, entry in entries.items():
        _entry(url, entry)  # nothing is written that `load` would refuse
    text = dump({"schema": SCHEMA, "links": entries})
    return write_atomically(Path(project_root) / PATH, text)


def written(health: Health) -> dict[str, Any]:
    """An entry as the file has it."""
    return {key: value for key, value in asdict(health).items() if value}


def title(text: str) -> str | None:
    """A title from the web as it may be kept: one line, visible, not too long; None if empty."""
    shown = " ".join(plain(text).split())
    return (shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…") or None


def address(url: object) -> str | None:
    """Why `url` is no https address that may be kept, or None."""
    if not isinstance(url, str) or len(url) > 2000:
        return "is no address"
    try:
        href(url)
    except ValueError:
        return "is no address"
    return None if url.startswith("https://") else "is no https address"


def _wrong(what: str, mend: str) -> ShelfError:
    return ShelfError(Finding(PATH, None, what, mend))


def _entry(url: str, entry: object) -> Health:
    if flaw := address(url):
        raise _wrong(f"the key {url[:80]!r} {flaw}", MEND)
    if flaw := _flaw(entry):
        raise _wrong(f"{url}: {flaw}", MEND)
    assert isinstance(entry, dict)
    return Health(**entry)


def _flaw(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return "its entry is no object"
    if unknown := sorted(set(entry) - {field.name for field in fields(Health)}):
        return f"the key {unknown[0][:40]!r} is unknown"
    if not isinstance(entry.get("state"), str) or entry["state"] not in STATES:
        return f"its state is {str(entry.get('state'))[:40]!r}, none of {', '.join(STATES)}"
    for key in ("since", "last_alive", "counted"):
        if key in entry and not _day(entry[key]):
            return f"{key} is {str(entry[key])[:40]!r}, no day such as 2026-11-21"
    for key in ("moved_to", "archived"):
        if key in entry and (flaw := address(entry[key])):
            return f"{key} {flaw}"
    if "archived" in entry and urlsplit(entry["archived"]).hostname != ARCHIVE:
        return f"archived is not at {ARCHIVE}"
    kept = entry.get("title_there", "x")
    if not isinstance(kept, str) or title(kept) != kept:
        return "title_there is no line of text"
    if not isinstance(entry.get("says", "x"), str) or not SAYS.fullmatch(entry.get("says", "x")):
        return "says is none of our words"
    for key in ("failures", "absences"):
        number = entry.get(key, 0)
        if type(number) is not int or not 0 <= number <= 999:
            return f"{key} is no count"
    if (entry["state"] == "moved") != ("moved_to" in entry):
        return "moved and moved_to go together"
    if (entry["state"] != "alive") != ("since" in entry):
        return "every state but alive has a day since when"
    return None


def _day(text: object) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
