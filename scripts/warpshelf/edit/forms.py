"""A filled-in issue form, read back from GitHub's Markdown, and what GitHub is told of it.

GitHub writes each field as `### label`, a blank line and the answer; one that was left out says
`_No response_`. Whoever opened the issue may have written anything, in the form or by editing its
text, so it is not trusted: only what is visible in the issue counts, and ambiguous text is refused.

GitHub is told a pull request's text, or why there is none. Text from others appears there only in
code fences that it cannot close, where GitHub makes no mention, reference or closing keyword.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warpshelf.core.findings import LONGEST, Finding, ShelfError, printable_line
from warpshelf.edit.add_reading import AddedReading, NewReading
from warpshelf.readings.identity import canonical_url, work_identity
from warpshelf.readings.model import load_shelf
from warpshelf.web.services import Metadata

LARGEST = 65_536  # characters that GitHub lets an issue have
ANOTHER = "another one (name it under notes)"
NONE = "_No response_"
# The labels of .github/ISSUE_TEMPLATE/link.yml, in its order, and what is typed there.
LABELS = {
    "url": "line", "topic": "line", "title": "line", "title_en": "line", "kind": "line",
    "why": "text", "authors": "names", "year": "line", "venue": "line", "level": "line",
    "lang": "line", "tags": "words", "snippets": "words", "needs": "words", "also": "versions",
    "notes": "notes", "your own words": "boxes",
}  # fmt: skip
REQUIRED = ("url", "topic", "title", "kind", "why", "your own words")
HEADING = re.compile(r"### (" + "|".join(map(re.escape, LABELS)) + r")[ \t]*")
COMMENT = re.compile(r"<!--(?:-?>|.*?-->)", re.DOTALL)
FENCE = re.compile(r"(`{3,}|~{3,})[^\n`]*\n(.*?)\n?\1[`~]*", re.DOTALL)
BOX = re.compile(r"\s*[-*+] \[([ xX])\] ")
VERSION = re.compile(r"(?:[-*+]\s+)?([A-Za-z]+)\s*[:=]\s*<?(https?://[^\s<>]+)>?")


@dataclass(frozen=True)
class IssueForm:
    """What a form asks to be added: where, what address, and the values of the entry."""

    topic: str
    url: str
    fields: dict[str, Any] = field(default_factory=dict)

    def new_reading(self, root: Path) -> NewReading:
        """The addition it asks for; ShelfError unless its list exists and a page shows it."""
        shelf = load_shelf(root)
        lists = sorted(w for w, topic in shelf.topics.items() if topic.listed and topic.shown)
        if self.topic not in lists:
            mend = f"write one of {', '.join(lists)}"
            raise _form_error("topic", f"is {self.topic!r}, which is not a list", mend)
        try:
            return NewReading(root, self.topic, self.url, shelf)
        except ShelfError as error:
            raise ShelfError(replace(f, path="url") for f in error.findings) from None

    def review_notes(self, new: NewReading, metadata: Metadata | None) -> list[str]:
        """What a person should check, from what was found at the address."""
        if metadata is None:
            return []
        said = [new.title_mismatch(metadata, self.fields["title"])]
        if work_identity(metadata.url) != new.work:
            said.append(f"the address leads to {metadata.url}")
        return [note for note in said if note]


def read_issue(file: Path) -> tuple[int | None, str]:
    """The number and text of an issue: `file` is GitHub's event (.json), or the text alone."""
    try:
        text = file.read_bytes().decode("utf-8", "replace")
        if file.suffix != ".json":
            return None, text
        said = json.loads(text)["issue"]
        number, body = said["number"], said["body"]
        if type(number) is int and isinstance(body, str | None):
            return number, body or ""
        what = "is not an issue event"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError, TypeError, KeyError):
        what = "is not an issue event"
    raise ShelfError(Finding(str(file), None, what, "name another file"))


def parse_answers(text: str) -> dict[str, str]:
    """The answer under each label, as it stands there, without white space around it."""
    if len(text) > LARGEST:
        raise _form_error("form", f"has {len(text)} characters, over {LARGEST}", "shorten it")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in re.sub(r"\r\n?", "\n", text).split("\n"):
        if heading := HEADING.fullmatch(line):
            if heading[1] in found:
                mend = f"take the line `### {heading[1]}` out of the answer that holds it"
                raise _form_error(heading[1], "appears twice as a heading", mend)
            lines = found.setdefault(heading[1], [])
        else:
            lines.append(line)
    if not found:
        mend = "fill in the form for a link"
        raise _form_error("form", "holds none of the form's headings", mend)
    return {label: "\n".join(kept).strip() for label, kept in found.items()}


def parse_form(text: str) -> IssueForm:
    """The form of an issue's text; ShelfError with each answer that is unreadable or missing."""
    findings: list[Finding] = []
    values: dict[str, Any] = {}
    for label, answer in parse_answers(text).items():
        try:
            value = _parse_value(label, _visible_answer(label, answer))
        except ShelfError as error:
            findings += error.findings
        else:
            values |= {} if value in (None, "", []) else {label: value}
    told = {finding.path for finding in findings}
    findings += [
        Finding(label, None, "has no answer", "write one under its heading")
        for label in REQUIRED
        if label not in values and label not in told
    ]
    if findings:
        raise ShelfError(findings)
    left_out = ("url", "topic", "notes", "your own words")
    fields = {key: value for key, value in values.items() if key not in left_out}
    return IssueForm(values["topic"], values["url"], fields)


def _form_error(label: str, what: str, mend: str) -> ShelfError:
    return ShelfError(Finding(label, None, what, mend))


def _visible_answer(label: str, answer: str) -> str:
    """What of an answer a reader of the issue sees: no comments, no fence around all of it."""
    shown = COMMENT.sub("", answer).strip()
    if "<!--" in shown:
        mend = "remove the <!--, which hides what follows it"
        raise _form_error(label, "holds an HTML comment that does not end", mend)
    if fenced := FENCE.fullmatch(shown):
        shown = fenced[2].strip()
    return "" if shown == NONE else shown


def _parse_value(label: str, answer: str) -> Any:
    """An answer as a value of its kind in LABELS; ShelfError if it is not one."""
    kind = LABELS[label]
    lines = [line.strip() for line in answer.split("\n") if line.strip()]
    if kind == "boxes":
        boxes = [BOX.match(line) for line in lines]
        if not boxes or not all(box and box[1] in "xX" for box in boxes):
            raise _form_error(label, "is not ticked", "tick it, if it is true")
        return True
    if kind == "text":
        return " ".join(answer.split())
    if kind == "names":
        return [name.strip() for name in re.split("[,;\n]", answer) if name.strip()]
    if kind == "words":
        words = (word.strip("`") for word in re.split(r"[\s,;]+", answer))
        return [word for word in words if word not in ("", "-", "*")]
    if kind == "versions":
        return list(map(_parse_version, lines))
    if kind == "line" and len(lines) > 1:
        raise _form_error(label, "holds more than one line", "write it on one")
    if label == "topic" and answer == ANOTHER:
        mend = "a maintainer replaces this with a topic from the list"
        raise _form_error(label, f"is {answer!r}", mend)
    if label == "year" and answer:
        if not re.fullmatch("[0-9]{4}", answer):
            raise _form_error(label, f"is {answer!r}, which is not a year", "write its four digits")
        return int(answer)
    return answer.removeprefix("<").removesuffix(">") if label == "url" else answer


def _parse_version(line: str) -> dict[str, str]:
    found = VERSION.fullmatch(line)
    if not found:
        mend = "write one a line as slides: https://example.org/slides.pdf"
        raise _form_error("also", f"holds {line!r}", mend)
    what = found[1].lower()
    try:
        return {"what": what, "url": canonical_url(found[2], what in ("preprint", "published"))}
    except ValueError as error:
        raise _form_error("also", str(error), "write it as https://…") from None


MOST = 50  # findings or notes that are told
LABEL = "accepted"


def fence_lines(lines: Iterable[str]) -> str:
    """A code block of GitHub's Markdown that shows `lines`, each on one line, and nothing else."""
    kept = [printable_line(line)[:LONGEST] for line in lines]
    longest = max((len(run) for line in kept for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *kept, fence])


def pull_request(
    entry: AddedReading, number: int | None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The pull request for an entry that was written, from the issue `number`.

    Text from others appears only in its code block.
    """
    where = entry.path.removeprefix("docs/").removesuffix(".yml")
    body = [f"Adds the reading `{entry.reading.id}` to `{entry.path}`, as the form asks for."]
    if number is not None:
        body.append(f"Closes #{number}")
    if notes:
        body += ["Check before merging:", fence_lines(notes[:MOST])]
    title = f"Add the reading {entry.reading.id} to {where}"
    return {"ok": True, "path": entry.path, "title": title, "body": "\n\n".join(body) + "\n"}


def refusal_comment(findings: Sequence[Finding], path: str | None = None) -> dict[str, Any]:
    """The comment on an issue whose form cannot become an entry of the list at `path`."""
    # The list was not written: a place in it would say nothing.
    lines = [f"{one.what}; {one.mend}" if one.path == path else str(one) for one in findings[:MOST]]
    if len(findings) > MOST:
        lines.append(f"and {len(findings) - MOST} more")
    body = [
        "The form cannot become an entry yet:",
        fence_lines(lines),
        f"Edit the issue to fix this; a maintainer then sets the label `{LABEL}` again.",
    ]
    return {"ok": False, "comment": "\n\n".join(body) + "\n"}
