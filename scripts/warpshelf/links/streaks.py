"""What a link's state becomes when a new answer joins those before it.

One bad day is nothing. A link is called gone only when checks on several days in a row, spread over
the better part of a week, were told that nothing is there; until then it is failing since its day.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from warpshelf.links.health import Health
from warpshelf.links.liveness import Outcome

ROW = 3  # checks in a row, on different days
SPAN = 6  # days from the first of them to the last
RENEWED = 28  # days after which an alive link's date is written anew: a stable file, a fresh date
TROUBLES = ("failing", "gone", "unreachable")


def follow(before: Health | None, answer: Outcome, today: date) -> Health:
    """The state after `answer`, which was given `today`, for a link that was in `before`."""
    title = before.title_there if before else None
    alive = before.last_alive if before else None
    if answer.kind in ("alive", "moved"):
        known = before is not None and before.state == answer.kind
        if not (known and alive and (today - date.fromisoformat(alive)).days < RENEWED):
            alive = today.isoformat()
    if answer.kind == "alive":
        return Health("alive", last_alive=alive, title_there=title)
    if answer.kind in ("moved", "blocked"):
        # A refusal tells nothing of the page, so it ends a row: nobody is called gone by it.
        same = (
            before is not None
            and before.state == answer.kind
            and before.moved_to == answer.moved_to
        )
        since = before.since if same and before else today.isoformat()
        return Health(
            answer.kind,
            since=since,
            last_alive=alive,
            moved_to=answer.moved_to,
            title_there=title,
            says=answer.says if answer.kind == "blocked" else None,
        )
    return _failed(before, answer, today)


def _failed(before: Health | None, answer: Outcome, today: date) -> Health:
    row = before if before and before.state in TROUBLES else None
    absent = answer.kind == "gone"
    if row and (row.state == "gone" or (row.state == "unreachable" and not absent)):
        return row  # settled: nothing is counted on, so that the file stays as it is
    day = today.isoformat()
    if row is None:
        row = Health(
            "failing",
            since=day,
            last_alive=before.last_alive if before else None,
            title_there=before.title_there if before else None,
        )
    if row.counted is None or row.counted < day:
        row = replace(row, failures=row.failures + 1, absences=row.absences + absent, counted=day)
    long = (today - date.fromisoformat(row.since or day)).days >= SPAN
    if long and row.absences >= ROW:
        state = "gone"
    elif long and row.failures - row.absences >= ROW:
        state = "unreachable"
    else:
        state = "failing"
    return replace(row, state=state, says=answer.says)
