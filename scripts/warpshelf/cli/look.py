"""What `shelf look` shows: the views of a snippet's kernels, or what changed of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from warpshelf.bench import make_views
from warpshelf.bench.make_views import ViewRequest, ViewResult
from warpshelf.bench.pool import Job
from warpshelf.cli import views
from warpshelf.cli.console import Reporter
from warpshelf.cli.printing import make_console
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.look import assembler, differences
from warpshelf.look.differences import Difference


@dataclass(frozen=True)
class LookOptions:
    """What the command line asks for beside the kernels."""

    against: str | None = None
    save: Path | None = None
    sass: bool = False
    as_json: bool = False


def show_kernels(
    snippet: Snippet, arch: str, variant: str | None, kernel: str | None, wanted: LookOptions
) -> list[Finding]:
    """Print what is asked for of a snippet; the LIMITS that were seen to be broken.

    Raises:
        BadParameter: an architecture, variant, kernel or commit is unknown.
        ShelfError: it cannot be looked at here.
    """
    try:
        asked = ViewRequest(
            snippet, make_views.match_name(arch, make_views.ARCHS, "architecture"), variant, kernel
        )
        with Reporter(1) as reporter:
            return _show_request(asked, wanted, reporter)
    except make_views.UnknownName as unknown:
        raise typer.BadParameter(str(unknown)) from None


def _show_request(
    asked: ViewRequest, wanted: LookOptions, tell: Callable[[Job], None]
) -> list[Finding]:
    path = _ptx_file(wanted.against)
    seen = make_views.get_views(asked, tell, whole=path is not None or wanted.save is not None)
    if path is not None or wanted.save is not None:
        _require_one(seen, "--save" if path is None else "--against FILE.ptx")
    if path is not None:
        _compare_file(asked, seen, path, wanted)
    elif wanted.against is not None:
        with make_views.snippet_at_commit(asked.snippet, wanted.against) as old:
            before = _views_before(replace(asked, snippet=old), tell)
        _compare_commit(seen, before, wanted)
    elif wanted.as_json:
        print(json.dumps(seen.views, indent=1))
    elif wanted.save is None:
        _print_views(asked, seen, wanted.sass)
    if wanted.save is not None:
        write_atomically(wanted.save, assembler.format_ptx(seen.modules[0]))
        sys.stderr.write(f"wrote {wanted.save}: {seen.modules[0].name} for {asked.arch}\n")
    return seen.findings


def _views_before(asked: ViewRequest, tell: Callable[[Job], None]) -> ViewResult:
    """What there was at a commit; none where the variant or kernel is newer."""
    try:
        return make_views.get_views(asked, tell)
    except make_views.UnknownName:
        return ViewResult([])


def _ptx_file(against: str | None) -> Path | None:
    """The file that is meant, if it is no commit."""
    if against is None or not (against.endswith(".ptx") or Path(against).is_file()):
        return None
    if not Path(against).is_file():
        raise make_views.UnknownName(f"{against}: no such file")
    return Path(against)


def _require_one(seen: ViewResult, option: str) -> None:
    if len(seen.views) == 1:
        return
    names = "; ".join(f"{one['variant']}: {one['kernel']}" for one in seen.views)
    raise make_views.UnknownName(
        f"{option} is of one kernel; choose --variant and --kernel from: {names}"
    )


def _print_views(asked: ViewRequest, seen: ViewResult, sass: bool) -> None:
    out = make_console()
    several = len({one["variant"] for one in seen.views}) > 1
    if asked.variant is None and several and not sass:
        views.print_variants(out, asked.snippet.id, asked.arch, seen.views)
        return
    for one in seen.views:
        views.print_kernel(out, one, sass)


def _compare_file(asked: ViewRequest, seen: ViewResult, path: Path, wanted: LookOptions) -> None:
    view, now = seen.views[0], seen.modules[0]
    who, was, is_ = make_views.assemble_pair(make_views.load_ptx(path, now.symbol), now, asked.arch)
    changes = differences.changed_figures(
        differences.machine_figures(was), differences.machine_figures(is_)
    )
    found = Difference(view["variant"], view["kernel"], changes)
    if wanted.as_json:
        print(json.dumps({"assembler": who, **found.as_dict()}, indent=1))
        return
    title = f"both assembled by {who} for {asked.arch}"
    views.print_difference(make_console(), found, (path.name, "now"), title)


def _compare_commit(seen: ViewResult, before: ViewResult, wanted: LookOptions) -> None:
    found: list[dict[str, Any]] = []
    out = make_console()
    for was, now in differences.pair_views(before.views, seen.views):
        if was is None or now is None:
            one = now or was or {}
            known = {key: one[key] for key in ("variant", "kernel")}
            found.append(known | {"only": "now" if was is None else wanted.against})
            if not wanted.as_json:
                views.print_unmatched(out, one, "now" if was is None else f"as of {wanted.against}")
            continue
        change = differences.compare_views(was, now)
        found.append(change.as_dict())
        if not wanted.as_json:
            views.print_difference(out, change, (str(wanted.against), "now"), now["arch"])
    if wanted.as_json:
        print(json.dumps(found, indent=1))
