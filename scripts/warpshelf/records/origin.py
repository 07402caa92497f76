"""Who made a record of a GPU: a person, by the name they go by, or a job of GitHub Actions.

Enters: a name, the environment of a process, a checkout. Leaves: what stands under `origin` in a
record. The record of a CPU has none: anyone can make it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from warpshelf.core import git
from warpshelf.records.schema import JOB, PERSON

Origin = dict[str, str]  # {"who": a name} or {"job": the address of a job's log}


def person(name: str) -> Origin:
    """The origin of records that a person made.

    Raises:
        ValueError: it is no name.
    """
    if not PERSON.fullmatch(name):
        raise ValueError(f"{name!r:.60} is no name: up to 80 characters on a line, without < and >")
    return {"who": name}


def job(environment: Mapping[str, str]) -> Origin | None:
    """The origin of what this process makes, where it is a job of GitHub Actions."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return None
    parts = [environment.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    address = f"{parts[0]}/{parts[1]}/actions/runs/{parts[2]}"
    return {"job": address} if JOB.fullmatch(address) else None


def user(root: Path) -> Origin | None:
    """The origin of what the user of a checkout makes, by the name that git has of them."""
    name = git.line(root, "config", "user.name") or ""
    return {"who": name} if PERSON.fullmatch(name) else None


def words(origin: Origin) -> str:
    """An origin as it is told: a name, or a job by its address."""
    return origin.get("who") or f"the job {origin['job']}"


def committed(root: Path, commit: str) -> datetime | None:
    """When a commit was made; None where this checkout does not have it."""
    name = commit.removesuffix("+changes")
    told = git.line(root, "show", "--no-patch", "--format=%ct", f"{name}^{{commit}}")
    return datetime.fromtimestamp(int(told), UTC) if told and told.isdigit() else None
