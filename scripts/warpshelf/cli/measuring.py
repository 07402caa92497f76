"""The commands that measure, here or on a Ray cluster, and that keep and compare the results.

What all commands share stands here as well: how snippets are named, and how findings are told.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Context, Exit, Option

from warpshelf.core import project as projects
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

# A command imports what it needs itself, so that one with nothing to do ends at once.
if TYPE_CHECKING:
    from warpshelf.bench.plan import Options
    from warpshelf.bench.run import Run
    from warpshelf.cli.console import Reporter
    from warpshelf.contract.snippet import Snippet
    from warpshelf.fleet.run_cluster import Fleet

Id = Annotated[str, Argument(metavar="ID", help="The snippet.")]
Ids = Annotated[list[str] | None, Argument(metavar="[ID]...", help="All by default.")]
Json = Annotated[bool, Option("--json", help="Print JSON on standard output.")]
By = Annotated[str | None, Option(metavar="NAME", help="Who made the GPU records; pages show it.")]
Bundle = Annotated[Path, Argument(help="A file that `shelf run --out FILE` wrote.")]
OUT = Path("records.json")  # the default of a run on a cluster; Git ignores it


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings on standard error, one line each."""
    for finding in findings:
        sys.stderr.write(f"{finding}\n")


def exit_with(findings: Sequence[Finding], told: bool = False) -> None:
    """Print findings, unless that is done already, and exit with 1 if there are any."""
    if not told:
        print_findings(findings)
    if findings:
        raise Exit(1)


def select_snippets(project: Project, ids: list[str] | None) -> list[Snippet]:
    """The snippets of `ids`, or all without any; an unknown id is wrong usage."""
    from warpshelf.contract import snippet as snippets

    if not ids:
        return snippets.discover_snippets(project)
    folders = {folder.name: folder for folder in snippets.snippet_folders(project)}
    if unknown := [name for name in ids if name not in folders]:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], folders, 1)
        names = ", ".join(folders) or "none"
        hint = f"did you mean {near[0]}?" if near else f"known are {names}"
        raise BadParameter(f"{unknown[0]}: no such snippet; {hint}")
    return [snippets.read_snippet(project, folders[name]) for name in dict.fromkeys(ids)]


def select_snippet(name: str) -> Snippet:
    """The one snippet of that name, of the project around the working directory."""
    return select_snippets(projects.find_project(), [name])[0]


def run(
    context: Context,
    ids: Ids = None,
    out: Path | None = Option(None, help="Write all records into this one file, for `import`."),
    budget: float | None = Option(None, min=0, help="Stop cleanly after this many seconds."),
    all_: bool = Option(
        False,
        "--all",
        help="Verify current snippets too, trusting no record. Unchanged code keeps its "
        "compiled figures, its views and the configurations of a SPACE.",
    ),
    force: bool = Option(False, "--force", help="Like --all, but keep nothing; rewrite records."),
    quick: bool = Option(
        False,
        "--quick",
        help="Only check within seconds whether it is right: one architecture, the most telling "
        "cases, no record.",
    ),
    workers: int | None = Option(None, min=1, help="Child processes at a time."),
    plan: bool = Option(False, "--plan", help="Print what would run and how long; run nothing."),
    only: str | None = Option(None, metavar="gpu|cpu", help="Make only GPU or CPU records."),
    on: str | None = Option(
        None,
        metavar="ADDRESS",
        help="Run on a Ray cluster: ray://HOST:PORT, HOST:PORT, auto, or ray for one on this "
        "machine. All records go into one file: records.json, or what --out names.",
    ),
    kinds: str | None = Option(None, metavar="H100,A100", help="With --on: only these kinds."),
    by: By = None,
    as_json: Json = False,
) -> None:
    """Verify snippets on this machine, time them if it has a GPU, and write their records.

    A CPU record of the present code is trusted: its snippet's demo runs here once and has to print
    what the record has. What is new or has changed is verified in full.

    A machine with a GPU makes the records of its GPU first, and then those of its CPU. Stopped by
    Ctrl-C or SIGTERM, it keeps what has passed, and the same command continues. On a cluster each
    kind of machine runs each snippet once.
    """
    if only not in (None, "gpu", "cpu"):
        raise BadParameter(f"{only}: write gpu or cpu", param_hint="--only")
    if kinds is not None and on is None:
        raise BadParameter("needs a cluster; name one with --on", param_hint="--kinds")
    if quick:
        if plan or force or all_ or out or on or only or budget is not None:
            what = "takes only --workers and --json: it plans and records nothing"
            raise BadParameter(what, param_hint="--quick")
        _run_quick(select_snippets(projects.find_project(), ids), workers, as_json)
        return
    from warpshelf.bench import pool
    from warpshelf.bench import run as runs
    from warpshelf.cli import console, hand_in

    project = projects.find_project()
    picked = select_snippets(project, ids)
    out = out or (None if on is None else OUT)
    options = runs.Options(force, all_, budget, out, workers, only=only)
    if plan and on is None:
        intended = runs.Run(project, options).make_plan(picked)
        print(console.plan_json(intended)) if as_json else console.show_plan(intended)
        return exit_with([finding for snippet in picked for finding in snippet.findings])
    options.origin = hand_in.run_origin(project, by, out)
    address, status = None if on is None else _validate_address(on), 0
    with console.Reporter(len(picked)) as reporter:
        work: Run | Fleet
        if address is None:
            work = runs.Run(project, options, reporter)
        else:
            work = _make_fleet(project, options, kinds, reporter)
        try:
            with pool.raise_on_signal():
                if isinstance(work, runs.Run):
                    work.run_stale(picked)
                elif address:
                    work.run_stale(picked, address, plan)
        except pool.Stopped as stop:
            work.mark_left(f"it was stopped by {stop.name}")
            status = stop.status
    if as_json:
        print(console.verdicts_json(work.verdicts))
    said = console.left_lines(work.verdicts, context.obj or [])
    failed = any(verdict.state == "failed" for verdict in work.verdicts)
    if isinstance(work, runs.Run):
        hand_in.report_run(project, picked, work.verdicts, out)
        kept, idle = len(work.records), options.repeats is not None and not work.planned.verdicts
    else:
        failed |= bool(work.findings)
        kept, idle = work.kept, False
    if out is not None:
        said += console.hand_in_lines(out, kept, idle)
    said += ["nothing was run"] if plan else console.summary_lines(work.verdicts)
    for line in said:
        sys.stderr.write(f"{line}\n")
    if status or failed:
        raise Exit(status or 1)


def _validate_address(text: str) -> str:
    """An address in a form that Ray takes; anything else is wrong usage."""
    from warpshelf.fleet.cluster import FORM, LOCAL

    host, colon, port = text.removeprefix("ray://").rpartition(":")
    if text not in (LOCAL, "auto") and not (host and colon and port.isdigit()):
        raise BadParameter(f"{text!r} is not an address; write {FORM}", param_hint="--on")
    return text


def _make_fleet(project: Project, options: Options, kinds: str | None, reporter: Reporter) -> Fleet:
    """A run over the machines of a cluster, of all kinds unless told which: `H100,A100`."""
    from warpshelf.fleet.run_cluster import Fleet

    asked = None
    if kinds is not None:
        asked = tuple(dict.fromkeys(filter(None, (word.strip() for word in kinds.split(",")))))
        if not asked:
            what = "names no kind; write accelerators as Ray does: H100,A100"
            raise BadParameter(what, param_hint="--kinds")
    return Fleet(project, options, asked, reporter)


def _run_quick(picked: list[Snippet], workers: int | None, as_json: bool) -> None:
    from warpshelf.bench import run

    glances = []
    for glance in run.check_snippets(picked, workers):
        glances.append(glance)
        print_findings(glance.findings)
        if not as_json:
            print(glance, flush=True)
    if as_json:
        glances.sort(key=lambda glance: glance.snippet)  # they come as they end
        print(json.dumps([asdict(glance) for glance in glances], indent=1))
    exit_with([finding for glance in glances for finding in glance.findings], told=True)


def machine() -> None:
    """Print in JSON what this machine is, as its records have it."""
    from warpshelf.bench import pool

    print(json.dumps(pool.local_machine(projects.find_project())))


def import_records(
    file: Bundle,
    skip_stale: bool = Option(False, "--skip-stale", help="Skip records of other code."),
    by: By = None,
    attestation: Path | None = Option(
        None, metavar="FILE", help="The attestation of the job that made the records."
    ),
    trusted_root: Path | None = Option(
        None, metavar="FILE", help="A Sigstore trusted root, in place of the public one."
    ),
    as_json: Json = False,
) -> None:
    """Import the records of another machine: all of them, or none."""
    from warpshelf.cli import hand_in
    from warpshelf.contract import snippet as snippets
    from warpshelf.records import bundle, record_comparison

    project = projects.find_project()
    terms = hand_in.import_terms(project, skip_stale, by, attestation, trusted_root)
    known = snippets.discover_snippets(project)
    done = bundle.import_bundle(project, known, file, terms)
    doubts = hand_in.report_records(done.records, known)
    names = [project.relative_path(path) for path in done.written]
    if as_json:
        print(json.dumps({"written": names, "left": done.left, "doubts": doubts}, indent=1))
        return
    for line in doubts:
        sys.stderr.write(f"{line}\n")
    folders = {path.parent for path in done.written}
    for name in names:
        print(f"wrote {name}", flush=True)
    touched = [one for one in known if one.results in folders]
    lines = list(record_comparison.find_disagreements(touched))
    lines += [f"skipped {name}: made from other code" for name in done.left]
    if not names:
        lines.append("nothing to write: every record is already in place")
    for line in lines:
        print(line)


def checksums(file: Bundle) -> None:
    """Print the SHA-256 that the file of each GPU record in a bundle will have here."""
    from warpshelf.records import bundle

    sys.stdout.write(bundle.checksum_lines(bundle.read_bundle(file)))


def compare(
    id_: Id,
    others: list[str] | None = Option(
        None,
        "--with",
        metavar="OTHER",
        help="Run nothing; compare this record (a key, KEY@COMMIT or a file) with another.",
    ),
    as_json: Json = False,
) -> None:
    """Run a snippet here, and compare this machine with the published ones.

    With --with, compare two records: the two named, or the one named and the newest of its kind.
    """
    from warpshelf.cli import compare as comparing

    one = select_snippet(id_)
    comparing.show_two(one, others, as_json) if others else comparing.show_here(one, as_json)


def history(
    id_: Id,
    machine: str | None = Option(None, metavar="SLUG", help="Only this kind of GPU or record."),
    because: str | None = Option(None, metavar="WHY", help="Note why a record is slower."),
    as_json: Json = False,
) -> None:
    """Show the times of a snippet by commit, driver, torch and Triton, from version control."""
    from warpshelf.cli import compare as comparing

    one = select_snippet(id_)
    if because is not None:
        comparing.explain_slowdown(one, because, machine, as_json)
    else:
        comparing.show_history(one, machine, as_json)


def goals(ids: Ids = None, as_json: Json = False) -> None:
    """Print what kernels are to reach, and what records of GPUs have measured of it."""
    from warpshelf.cli import kernels

    project = projects.find_project()
    exit_with(kernels.show_goals(project, select_snippets(project, ids), as_json))


def reach(
    ids: Ids = None,
    arch: list[str] | None = Option(None, metavar="SM", help="Only this, like sm_86; repeat it."),
    largest: bool = Option(False, "--largest", help="Only the largest case of each form: quicker."),
    as_json: Json = False,
) -> None:
    """Compile every launch for every GPU from sm_75 to sm_120, and print what does not fit.

    No GPU is needed. All kernels take an hour; their binaries are kept for the next run.
    """
    from warpshelf.cli import kernels

    picked = select_snippets(projects.find_project(), ids)
    exit_with(kernels.show_reach(picked, arch or [], largest, as_json), told=as_json)
