"""What `shelf look` shows: the views of a snippet's kernels, or what changed of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from warpshelf.bench import looking
from warpshelf.bench.looking import Asked, Seen
from warpshelf.bench.pool import Job
from warpshelf.cli import views
from warpshelf.cli.console import Reporter
from warpshelf.cli.printing import console
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.look import assembler, differences
from warpshelf.look.differences import Difference


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for beside the kernels."""

    against: str | None = None
    save: Path | None = None
    sass: bool = False
    as_json: bool = False


def show(
    snippet: Snippet, arch: str, variant: str | None, kernel: str | None, wanted: Wanted
) -> list[Finding]:
    """Print what is asked for of a snippet; the LIMITS that were seen to be broken.

    Raises:
        BadParameter: an architecture, variant, kernel or commit is unknown.
        ShelfError: it cannot be looked at here.
    """
    try:
        asked = Asked(snippet, looking.named(arch, looking.ARCHS, "architecture"), variant, kernel)
        with Reporter(1) as reporter:
            return _shown(asked, wanted, reporter)
    except looking.Unknown as unknown:
        raise typer.BadParameter(str(unknown)) from None


def _shown(asked: Asked, wanted: Wanted, tell: Callable[[Job], None]) -> list[Finding]:
    path = _file(wanted.against)
    seen = looking.look(asked, tell, whole=path is not None or wanted.save is not None)
    if path is not None or wanted.save is not None:
        _one(seen, "--save" if path is None else "--against FILE.ptx")
    if path is not None:
        _against_file(asked, seen, path, wanted)
    elif wanted.against is not None:
        with looking.as_of(asked.snippet, wanted.against) as old:
            before = _before(replace(asked, snippet=old), tell)
        _against_commit(seen, before, wanted)
    elif wanted.as_json:
        print(json.dumps(seen.views, indent=1))
    elif wanted.save is None:
        _print(asked, seen, wanted.sass)
    if wanted.save is not None:
        write_atomically(wanted.save, assembler.written(seen.modules[0]))
        sys.stderr.write(f"wrote {wanted.save}: {seen.modules[0].name} for {asked.arch}\n")
    return seen.findings


def _before(asked: Asked, tell: Callable[[Job], None]) -> Seen:
    """What there was at a commit; none where the variant or kernel is newer."""
    try:
        return looking.look(asked, tell)
    except looking.Unknown:
        return Seen([])


def _file(against: str | None) -> Path | None:
    """The file that is meant, if it is no commit."""
    if against is None or not (against.endswith(".ptx") or Path(against).is_file()):
        return None
    if not Path(against).is_file():
        raise looking.Unknown(f"{against}: no such file")
    return Path(against)


def _one(seen: Seen, option: str) -> None:
    if len(seen.views) == 1:
        return
    names = "; ".join(f"{one['variant']}: {one['kernel']}" for one in seen.views)
    raise looking.Unknown(f"{option} is of one kernel; choose --variant and --kernel from: {names}")


def _print(asked: Asked, seen: Seen, sass: bool) -> None:
    out = console()
    several = len({one["variant"] for one in seen.views}) > 1
    if asked.variant is None and several and not sass:
        views.table(out, asked.snippet.id, asked.arch, seen.views)
        return
    for one in seen.views:
        views.report(out, one, sass)


def _against_file(asked: Asked, seen: Seen, path: Path, wanted: Wanted) -> None:
    view, now = seen.views[0], seen.modules[0]
    who, was, is_ = looking.built(looking.saved(path, now.symbol), now, asked.arch)
    changes = differences.changes(differences.code(was), differences.code(is_))
    found = Difference(view["variant"], view["kernel"], changes)
    if wanted.as_json:
        print(json.dumps({"assembler": who, **found.as_dict()}, indent=1))
        return
    title = f"both assembled by {who} for {asked.arch}"
    views.difference(console(), found, (path.name, "now"), title)


def _against_commit(seen: Seen, before: Seen, wanted: Wanted) -> None:
    found: list[dict[str, Any]] = []
    out = console()
    for was, now in differences.pairs(before.views, seen.views):
        if was is None or now is None:
            one = now or was or {}
            known = {key: one[key] for key in ("variant", "kernel")}
            found.append(known | {"only": "now" if was is None else wanted.against})
            if not wanted.as_json:
                views.alone(out, one, "now" if was is None else f"as of {wanted.against}")
            continue
        change = differences.difference(was, now)
        found.append(change.as_dict())
        if not wanted.as_json:
            views.difference(out, change, (str(wanted.against), "now"), now["arch"])
    if wanted.as_json:
        print(json.dumps(found, indent=1))
