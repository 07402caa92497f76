"""The commands that measure, here or on a Ray cluster, and that keep and compare the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpshelf.cli.shared import By, Ids, Json, print_findings, select_snippets
from warpshelf.core import project as projects

# What a command needs it imports itself: one with nothing to do is over in a moment.
if TYPE_CHECKING:
    from warpshelf.bench.plan import Options
    from warpshelf.contract.snippet import Snippet
    from warpshelf.core.project import Project

# `shelf run --on ADDRESS`: a run spread over the machines of a Ray cluster.

OUT = Path("records.json")  # where all goes unless told; version control leaves it alone


def validate_address(text: str) -> str:
    """An address in a form that Ray takes; another one is wrong usage."""
    from warpshelf.fleet.cluster import FORM, LOCAL

    host, colon, port = text.removeprefix("ray://").rpartition(":")
    if text not in (LOCAL, "auto") and not (host and colon and port.isdigit()):
        raise typer.BadParameter(f"{text!r} is no address; write {FORM}", param_hint="--on")
    return text


def parse_kinds(text: str | None) -> tuple[str, ...] | None:
    """The kinds of a list such as `H100,A100`; None for all that there are."""
    if text is None:
        return None
    kinds = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if not kinds:
        what = "names none; write accelerators as Ray does: H100,A100"
        raise typer.BadParameter(what, param_hint="--kinds")
    return kinds


def run_on_cluster(
    project: Project,
    picked: list[Snippet],
    where: tuple[str, str | None],
    options: Options,
    plan: bool,
    as_json: bool,
    words: Sequence[str],
) -> int:
    """Run on the cluster and the kinds of `where`, or only say what would; the exit status.

    `words` is the command line, for who goes on with it.
    """
    from warpshelf.bench import pool
    from warpshelf.cli import console
    from warpshelf.fleet.run_cluster import Fleet

    address, kinds = validate_address(where[0]), parse_kinds(where[1])
    options.out = out = options.out or OUT
    status = 0
    with console.Reporter(len(picked)) as reporter:

        def show_event(event: object) -> None:
            if isinstance(event, str):
                reporter.console.print(event, markup=False, soft_wrap=True)
            elif isinstance(event, int):
                reporter.total = event
                if reporter.live:
                    reporter.bar.update(reporter.bar.task_ids[0], total=event)
            else:
                reporter(event)

        fleet = Fleet(project, options, kinds, show_event)
        try:
            with pool.raise_on_signal():
                fleet.run_stale(picked, address, plan)
        except pool.Stopped as stop:
            fleet.mark_left(f"it was stopped by {stop.name}")
            status = stop.status
    if as_json:
        print(console.verdicts_json(fleet.verdicts))
    said = console.left_lines(fleet.verdicts, words)
    said += console.hand_in_lines(out, fleet.kept)
    said += ["nothing was run"] if plan else console.summary_lines(fleet.verdicts)
    for line in said:
        sys.stderr.write(f"{line}\n")
    failed = any(verdict.state == "failed" for verdict in fleet.verdicts)
    return status or int(failed or bool(fleet.findings))


def run(
    context: typer.Context,
    ids: Ids = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all records into this one file, for `import`.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Stop cleanly after so many seconds.")
    ] = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Verify what is current as well, trusting no record. Of code that has not "
            "changed, compiled figures, views and the configurations of a SPACE are kept.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="The same, those included, and write all records anew."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Only say within seconds whether it is right: one architecture, the cases that "
            "tell most; write no record.",
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Children at a time.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would run and how long it takes; run nothing.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="gpu|cpu", help="Make the records of the one alone.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Spread it over a Ray cluster: ray://HOST:PORT, HOST:PORT, auto, or ray for one "
            "on this machine. All records go into one file, records.json unless --out says other.",
        ),
    ] = None,
    kinds: Annotated[
        str | None, typer.Option(metavar="H100,A100", help="With --on: only these accelerators.")
    ] = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Verify snippets on this machine, time them if it has a GPU, and write their records.

    The record of a CPU that is of the present code is trusted: the demo of its snippet runs here,
    once, and has to print what the record has. What is new or has changed is verified in full.

    A machine with a GPU makes the records of its GPU first, and then those of its CPU. Stopped by
    Ctrl-C or SIGTERM, it keeps what has passed, and the same command goes on. On a cluster each
    kind of machine gets each snippet once.
    """
    if only not in (None, "gpu", "cpu"):
        raise typer.BadParameter(f"{only}: write gpu or cpu", param_hint="--only")
    if kinds is not None and on is None:
        raise typer.BadParameter("is of a cluster; name one by --on", param_hint="--kinds")
    if quick:
        if plan or force or all_ or out or on or only or budget is not None:
            what = "goes with --workers and --json alone: it plans nothing and records nothing"
            raise typer.BadParameter(what, param_hint="--quick")
        _run_quick(select_snippets(projects.find_project(), ids), workers, as_json)
        return
    from warpshelf.bench import pool
    from warpshelf.bench import run as runs
    from warpshelf.cli import console as consoles
    from warpshelf.cli import hand_in

    project = projects.find_project()
    picked = select_snippets(project, ids)
    options = runs.Options(
        force=force, everything=all_, budget=budget, out=out, workers=workers, only=only
    )
    if on is not None:
        options.origin = hand_in.run_origin(project, by, out or OUT)
        status = run_on_cluster(
            project, picked, (on, kinds), options, plan, as_json, context.obj or []
        )
        raise typer.Exit(status)
    if plan:
        intended = runs.Run(project, options).make_plan(picked)
        print(consoles.plan_json(intended)) if as_json else consoles.show_plan(intended)
        wrong = [finding for snippet in picked for finding in snippet.findings]
        print_findings(wrong)
        raise typer.Exit(1 if wrong else 0)
    options.origin = hand_in.run_origin(project, by, out)
    status = 0
    with consoles.Reporter(len(picked)) as reporter:
        work = runs.Run(project, options, reporter)
        try:
            with pool.raise_on_signal():
                work.run_stale(picked)
        except pool.Stopped as stop:
            work.mark_left(f"it was stopped by {stop.name}")
            status = stop.status
    verdicts = work.verdicts
    if as_json:
        print(consoles.verdicts_json(verdicts))
    gpu = {(one.snippet, one.machine) for one in verdicts if one.on_gpu and one.state == "passed"}
    hand_in.report_run(project, picked, gpu, out)
    said = consoles.left_lines(verdicts, context.obj or [])
    if out is not None:
        idle = options.repeats is not None and not work.planned.verdicts
        said += consoles.hand_in_lines(out, len(work.records), idle)
    said += consoles.summary_lines(verdicts)
    for line in said:
        sys.stderr.write(f"{line}\n")
    if status or any(verdict.state == "failed" for verdict in verdicts):
        raise typer.Exit(status or 1)


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
    if any(glance.findings for glance in glances):
        raise typer.Exit(1)


def machine() -> None:
    """Print in JSON what this machine is, as its records have it."""
    from warpshelf.bench import pool

    print(json.dumps(pool.local_machine(projects.find_project())))


def import_records(
    file: Annotated[Path, typer.Argument(help="What `shelf run --out FILE` wrote.")],
    skip_stale: Annotated[
        bool, typer.Option("--skip-stale", help="Leave out records of other code.")
    ] = False,
    by: By = None,
    attestation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The attestation of the job that made the records."),
    ] = None,
    trusted_root: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A Sigstore trusted root, in place of the public one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put the records of another machine in place: all of them, or none."""
    from warpshelf.cli import hand_in
    from warpshelf.contract import snippet as snippets
    from warpshelf.records import bundle, record_comparison

    project = projects.find_project()
    terms = hand_in.import_terms(project, skip_stale, by, attestation, trusted_root)
    known = snippets.discover_snippets(project)
    done = bundle.import_bundle(project, known, file, terms)
    doubts = hand_in.report_import(done, known)
    names = [project.relative_path(path) for path in done.written]
    if as_json:
        print(json.dumps({"written": names, "left": done.left, "doubts": doubts}, indent=1))
        return
    for line in doubts:
        sys.stderr.write(f"{line}\n")
    for name in names:
        print(f"wrote {name}")
    folders = {path.parent for path in done.written}
    touched = (one for one in known if one.results in folders)
    for line in record_comparison.find_disagreements(touched):
        print(line)
    for name in done.left:
        print(f"left out {name}: made from other code")
    if not names:
        print("nothing to write: every record is in place already")


def checksums(
    file: Annotated[Path, typer.Argument(help="What `shelf run --out FILE` wrote.")],
) -> None:
    """Print the SHA-256 of each record of a GPU in a bundle, as its file here will have it."""
    from warpshelf.records import bundle

    sys.stdout.write(bundle.checksum_lines(bundle.read_bundle(file)))


def compare(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The snippet.")],
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="OTHER",
            help="Run nothing, but show this record (a key, KEY@COMMIT or a file) beside another.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a snippet here, and show this machine beside the published ones.

    With --with two records are set side by side: those named, or one and the newest of its kind.
    """
    from warpshelf.cli import compare as comparing

    project = projects.find_project()
    one = select_snippets(project, [id_])[0]
    if others:
        comparing.show_two(one, others, as_json)
    else:
        comparing.show_here(project, one, as_json)


def history(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The snippet.")],
    machine: Annotated[
        str | None, typer.Option(metavar="SLUG", help="Of one kind of GPU, or of one record.")
    ] = None,
    because: Annotated[
        str | None,
        typer.Option(metavar="WHY", help="Say why a record is slower than the one before it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the times of a snippet by commit, driver, torch and Triton, from version control."""
    from warpshelf.cli import compare as comparing

    one = select_snippets(projects.find_project(), [id_])[0]
    if because is not None:
        comparing.explain_slowdown(one, because, machine, as_json)
    else:
        comparing.show_history(one, machine, as_json)


def reach(
    ids: Ids = None,
    arch: Annotated[
        list[str] | None, typer.Option(metavar="SM", help="For this one, such as sm_86; repeat it.")
    ] = None,
    largest: Annotated[
        bool, typer.Option("--largest", help="Only the largest case of each form: quicker.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile every launch for every GPU from sm_75 to sm_120: what fits, what NEEDS must say.

    No GPU is needed. All kernels take an hour; their binaries are kept for the next time.
    """
    from warpshelf.cli import kernels

    wrong = kernels.show_reach(
        select_snippets(projects.find_project(), ids), arch or [], largest, as_json
    )
    if not as_json:
        print_findings(wrong)
    if wrong:
        raise typer.Exit(1)
