"""The state of each link, kept in docs/links.json beside the readings.

People write readings; only `shelf links check` writes this file. It has one entry for each address,
by the address as it stands in the readings. Which redirects mean that a page has moved, and which
are a site's usual ones, is decided here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from warpshelf.core import files
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.markup import plain_text, quote_href
from warpshelf.readings.identity import strip_tracking, work_identity
from warpshelf.web.services import ARCHIVE

SCHEMA = 1
PATH = "docs/links.json"
LARGEST = 8_000_000  # bytes of a file that is read; an entry has about 200
LONGEST = 500  # characters of a title that is kept
STATES = {
    "alive": "it answered with a page",
    "moved": "it redirects permanently to another address",
    "failing": "the last checks failed, but too few to be sure",
    "gone": "the page or its host was missing in several checks",
    "unreachable": "nothing answered in several checks",
    "blocked": "its host blocks programs, so only a person can look",
}
# Our own words for an answer; text from the web never stands here.
SAYS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,'-]{0,59}")
MEND = "restore it from version control, or delete it: `shelf links check` writes it again"


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


def load_health(project_root: Path | str) -> dict[str, Health]:
    """The health of each address, by the address as the readings have it; {} with no file.

    Raises ShelfError with the place if the file is not what `save_health` writes.
    """
    try:
        data = (Path(project_root) / PATH).read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _file_error(f"cannot be read ({error.strerror})", "make it a readable file") from None
    if len(data) > LARGEST:
        raise _file_error(f"has {len(data)} bytes, over the limit of {LARGEST}")
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _file_error("is not complete JSON") from None
    if flaw := files.shape_problem(value, {"schema": int, "links": {"*": object}}, "file"):
        raise _file_error(flaw)
    if value["schema"] != SCHEMA:
        what = f"has schema {value['schema']}, but this program writes {SCHEMA}"
        raise _file_error(what, "update your checkout, or delete the file")
    return {url: parse_entry(url, entry) for url, entry in value["links"].items()}


def save_health(project_root: Path | str, links: dict[str, Health]) -> bool:
    """Write the file in one step; True where it changed. What is unknown is left out."""
    entries = {url: health_entry(health) for url, health in links.items()}
    for url, entry in entries.items():
        parse_entry(url, entry)  # nothing is written that `load_health` would refuse
    text = files.dump_json({"schema": SCHEMA, "links": entries})
    return files.write_atomically(Path(project_root) / PATH, text)


def health_entry(health: Health) -> dict[str, Any]:
    """An entry as the file has it."""
    return {key: value for key, value in asdict(health).items() if value}


def clean_title(text: str) -> str | None:
    """A title from the web as it may be kept: one line, visible, not too long; None if empty."""
    shown = " ".join(plain_text(text).split())
    return (shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…") or None


def address_problem(url: object) -> str | None:
    """Why `url` is not an https address that may be kept, or None."""
    if not isinstance(url, str) or len(url) > 2000:
        return "is not an address"
    try:
        quote_href(url)
    except ValueError:
        return "is not an address"
    return None if url.startswith("https://") else "is not an https address"


def _archive_problem(value: object) -> str | None:
    if (flaw := address_problem(value)) or urlsplit(str(value)).hostname == ARCHIVE:
        return flaw
    return f"is not at {ARCHIVE}"


def _date_problem(value: object) -> str | None:
    with suppress(ValueError):
        if isinstance(value, str) and date.fromisoformat(value).isoformat() == value:
            return None
    return f"is {value!r:.40}, not a day such as 2026-11-21"


def _title_problem(value: object) -> str | None:
    return None if isinstance(value, str) and clean_title(value) == value else "is not plain text"


def _count_problem(value: object) -> str | None:
    return None if type(value) is int and 0 <= value <= 999 else "is not a count"


ENTRY = {
    "state": tuple(STATES),
    "since?": _date_problem,
    "last_alive?": _date_problem,
    "moved_to?": address_problem,
    "archived?": _archive_problem,
    "title_there?": _title_problem,
    "says?": SAYS,
    "failures?": _count_problem,
    "absences?": _count_problem,
    "counted?": _date_problem,
}


def parse_entry(url: str, entry: Any) -> Health:
    """An entry of the file; ShelfError if `shelf links check` could not have written it."""
    if flaw := address_problem(url):
        raise _file_error(f"the key {url[:80]!r} {flaw}")
    flaw = files.shape_problem(entry, ENTRY, "entry")
    if not flaw and (entry["state"] == "moved") != ("moved_to" in entry):
        flaw = "moved and moved_to go together"
    if not flaw and (entry["state"] != "alive") != ("since" in entry):
        flaw = "every state but alive needs the day `since`"
    if flaw:
        raise _file_error(f"{url}: {flaw}")
    return Health(**entry)


def _file_error(what: str, mend: str = MEND) -> ShelfError:
    return ShelfError(Finding(PATH, None, what, mend))


PERMANENT = {301, 308}
# Pages that a site puts before what was asked for: the address behind them is still the right one.
BARRIER = re.compile(
    r"/(?:log-?in|log-?on|sign-?in|sign-?up|sso|auth|oauth2?|account/begin|captcha|challenge|"
    r"verify|unhuman|consent|cookie-?consent|privacy-?gate|checkpoint)(?:[/.?]|$)",
    re.IGNORECASE,
)
GATES = ("accounts.", "auth.", "captcha.", "consent.", "login.", "passport.", "signin.", "sso.")
LOCALE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2})?")


class Redirect(NamedTuple):
    """One step: the address that was led to, and the status code that led there."""

    url: str
    code: int


def permanent_target(url: str, redirects: Sequence[Redirect]) -> str | None:
    """The new address of the page behind `url`, if it moved permanently.

    Only permanent redirects count, up to the first that is not. Another scheme, `www.`, a final
    slash, a language in the path, another spelling of one work's address, the entrance of a site
    and pages that stand before others (logins, consents) are no move. The new address comes without
    tracking parameters.
    """
    steps = takewhile(lambda one: one.code in PERMANENT and not is_barrier(one.url), redirects)
    target = next(reversed([step.url for step in steps]), None)
    if target is None or _is_same_page(url, target):
        return None
    target = strip_tracking(re.sub(r"^http://", "https://", target))
    return target if address_problem(target) is None else None


def is_barrier(url: str) -> bool:
    """Whether `url` is a page that stands before others: a login, a consent, a puzzle."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(BARRIER.search(parts.path)) or (parts.hostname or "").startswith(GATES)


def _is_same_page(url: str, target: str) -> bool:
    try:
        if work_identity(url) == work_identity(target):
            return True
    except ValueError:
        return True  # to what is no address nobody moves
    places = []
    for parts in (urlsplit(url), urlsplit(target)):
        names = [name for name in unquote(parts.path).lower().split("/") if name]
        names = [name for name in names if not LOCALE.fullmatch(name) and name != "index.html"]
        host = (parts.hostname or "").removeprefix("www.")
        places.append((host, [re.sub(r"\.html?$", "", name) for name in names]))
    is_entrance = not urlsplit(url).path.strip("/")
    return places[0][0] == places[1][0] and (is_entrance or places[0] == places[1])
