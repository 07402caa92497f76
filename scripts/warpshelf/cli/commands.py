"""The command line: `shelf`, also `python scripts/build.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpshelf.core import project as projects
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project

# What a command needs it imports itself: one with nothing to do is over in a moment.
if TYPE_CHECKING:
    from warpshelf.contract.snippet import Snippet
    from warpshelf.edit.edits import Mend

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Warpshelf: run the snippets, keep their records, build the site.",
)
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="All by default.")]
By = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who made the records of a GPU; a page says so.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON on standard output.")]


def run_command_line() -> None:
    """Parse the process's arguments, run, and exit with the status."""
    sys.exit(main(sys.argv[1:]))


def main(words: list[str]) -> int:
    """Run one command line; 0 all well, 1 findings (one line each on standard error), 2 usage."""
    try:
        _with_links(words)(words, prog_name="shelf", obj=words)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(bool(done.code))
    except ShelfError as error:
        tell(error.findings)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "warpshelf", "snippets"):
            raise
        mend = "run `make pages`, or `make site` for all of it"
        tell([Finding(package, None, "is not installed in this environment", mend)])
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        what = error.strerror or str(error)
        tell([Finding(str(error.filename), None, what, "see its permissions and the free space")])
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; whole records are kept, and the next run carries on\n")
        return 130
    return 0


def _with_links(words: list[str]) -> typer.Typer:
    """The commands; those of `links` are brought in unless `words` begin with another one."""
    own = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    if not app.registered_groups and not own & set(words[:1]):
        from warpshelf.cli.links import links_app

        app.add_typer(links_app, name="links")
    return app


def tell(findings: Iterable[Finding]) -> None:
    """Print findings on standard error, one line each."""
    for finding in findings:
        sys.stderr.write(f"{finding}\n")


def chosen(project: Project, ids: list[str] | None) -> list[Snippet]:
    """The snippets of `ids`, all where there is none; an unknown id is wrong usage."""
    from warpshelf.contract import snippet as snippets

    found = snippets.discover(project)
    if not ids:
        return found
    by_id = {snippet.id: snippet for snippet in found}
    for name in ids:
        if name not in by_id:
            from difflib import get_close_matches

            near = get_close_matches(name, by_id, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_id) or 'none'}"
            raise typer.BadParameter(f"{name}: no such snippet; {hint}")
    return [by_id[name] for name in dict.fromkeys(ids)]


@app.command()
def run(
    context: typer.Context,
    ids: Ids = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all records into this one file, for `import`.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Stop cleanly after so many seconds.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run what is current as well.")] = False,
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

    A machine with a GPU makes the records of its GPU first, and then those of its CPU. Stopped by
    Ctrl-C or SIGTERM, it keeps what has passed, and the same command goes on. On a cluster each
    kind of machine gets each snippet once.
    """
    if only not in (None, "gpu", "cpu"):
        raise typer.BadParameter(f"{only}: write gpu or cpu", param_hint="--only")
    if kinds is not None and on is None:
        raise typer.BadParameter("is of a cluster; name one by --on", param_hint="--kinds")
    from warpshelf.bench import run as runs
    from warpshelf.bench import stopping
    from warpshelf.cli import closing, handing
    from warpshelf.cli import console as consoles

    project = projects.find()
    picked = chosen(project, ids)
    options = runs.Options(force=force, budget=budget, out=out, workers=workers, only=only)
    if on is not None:
        from warpshelf.cli import fleet

        options.origin = handing.of_run(project, by, out or fleet.OUT)
        status = fleet.run(project, picked, (on, kinds), options, plan, as_json, context.obj or [])
        raise typer.Exit(status)
    if plan:
        from warpshelf.cli import planned

        intended = runs.Run(project, options).plan(picked)
        print(planned.as_json(intended)) if as_json else planned.show(intended)
        wrong = [finding for snippet in picked for finding in snippet.findings]
        tell(wrong)
        raise typer.Exit(1 if wrong else 0)
    options.origin = handing.of_run(project, by, out)
    status = 0
    with consoles.Reporter(len(picked)) as reporter:
        work = runs.Run(project, options, reporter)
        try:
            with stopping.raised():
                work.over(picked)
        except stopping.Stopped as stop:
            work.leave(f"it was stopped by {stop.name}")
            status = stop.status
    verdicts = work.verdicts
    if as_json:
        print(closing.as_json(verdicts))
    gpu = {(one.snippet, one.machine) for one in verdicts if one.on_gpu and one.state == "passed"}
    handing.after_run(project, picked, gpu, out)
    said = closing.left(verdicts, context.obj or [])
    if out is not None:
        said += closing.handing_in(out, len(work.records), force and not work.planned.verdicts)
    said.append(closing.counted(verdicts))
    for line in said:
        sys.stderr.write(f"{line}\n")
    if status or any(verdict.state == "failed" for verdict in verdicts):
        raise typer.Exit(status or 1)


@app.command()
def machine() -> None:
    """Print in JSON what this machine is, as its records have it."""
    from warpshelf.bench import here

    print(json.dumps(here.look(projects.find())))


@app.command("import")
def import_(
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
    from warpshelf.cli import handing
    from warpshelf.contract import snippet as snippets
    from warpshelf.records import bundle, neighbours

    project = projects.find()
    terms = handing.terms(project, skip_stale, by, attestation, trusted_root)
    known = snippets.discover(project)
    done = bundle.import_all(project, known, file, terms)
    doubts = handing.imported(done, known)
    names = [project.relative(path) for path in done.written]
    if as_json:
        print(json.dumps({"written": names, "left": done.left, "doubts": doubts}, indent=1))
        return
    for line in doubts:
        sys.stderr.write(f"{line}\n")
    for name in names:
        print(f"wrote {name}")
    folders = {path.parent for path in done.written}
    for line in neighbours.of_all(one for one in known if one.results in folders):
        print(line)
    for name in done.left:
        print(f"left out {name}: made from other code")
    if not names:
        print("nothing to write: every record is in place already")


@app.command()
def checksums(
    file: Annotated[Path, typer.Argument(help="What `shelf run --out FILE` wrote.")],
) -> None:
    """Print the SHA-256 of each record of a GPU in a bundle, as its file here will have it."""
    from warpshelf.records import attestation, bundle

    sys.stdout.write(attestation.checksums(bundle.read(file)))


@app.command()
def check(
    fix: Annotated[
        bool, typer.Option("--fix", help="First mend in the reading lists what is safe to mend.")
    ] = False,
    mutants: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Instead run this snippet's mutants by all its cases."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check all that a pull request must pass; no GPU, no network, nothing is run."""
    from warpshelf.site import inspection

    project = projects.find()
    if mutants is not None:
        from warpshelf.cli import matrix

        wrong = matrix.show(chosen(project, [mutants])[0], as_json)
        if not as_json:
            tell(wrong)
        raise typer.Exit(1 if wrong else 0)
    mended: list[Mend] = []
    left: list[Finding] = []
    if fix:
        from warpshelf.edit import mends

        mended, left = mends.fix(project.root)
    findings = sorted({*left, *inspection.check(project)})
    if as_json:
        found = [finding.__dict__ for finding in findings]
        done = {"mended": [mend.__dict__ for mend in mended], "findings": found}
        print(json.dumps(done if fix else found, indent=1))
    else:
        for mend in mended:
            print(mend)
        tell(findings)
        for line in inspection.remarks(project):
            sys.stderr.write(f"{line}\n")
    if findings:
        raise typer.Exit(1)
    if not as_json:
        print("all well")


@app.command()
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
    from warpshelf.cli import reach as reaches

    wrong = reaches.show(chosen(projects.find(), ids), arch or [], largest, as_json)
    if not as_json:
        tell(wrong)
    if wrong:
        raise typer.Exit(1)


@app.command()
def schema(
    write: Annotated[
        bool, typer.Option("--write", help="Write it to where the editors' settings expect it.")
    ] = False,
) -> None:
    """Print the JSON Schema of a reading list, by which editors check and complete."""
    from warpshelf.readings import editors

    if not write:
        sys.stdout.write(editors.text())
        return
    changed = editors.write(projects.find())
    print(f"wrote {editors.PLACE}" if changed else f"{editors.PLACE} is current")


@app.command()
def site(
    serve: Annotated[bool, typer.Option("--serve", help="Serve with live reload.")] = False,
    site_dir: Annotated[Path | None, typer.Option(help="Where to build.")] = None,
    builder: Annotated[str, typer.Option(help="mkdocs or zensical.")] = "mkdocs",
    address: Annotated[str, typer.Option(help="Where to serve.")] = "127.0.0.1:8000",
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Write the fragments and stop.")
    ] = False,
) -> None:
    """Render the records and readings, and build the site, strictly."""
    from warpshelf.site import build as builds

    project = projects.find()
    if serve:
        from warpshelf.site import serve as server

        raise typer.Exit(server.serve(project, address))
    if render_only:
        tell(findings := builds.render(project).findings)
        raise typer.Exit(1 if findings else 0)
    raise typer.Exit(builds.build(project, site_dir, builder))


@app.command()
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
    project = projects.find()
    if others:
        from warpshelf.cli import compared

        compared.show(chosen(project, [id_])[0], others, as_json)
        return
    from warpshelf.cli import compare as comparing

    comparing.show(project, chosen(project, [id_])[0], as_json)


@app.command()
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
    from warpshelf.cli import history as histories

    one = chosen(projects.find(), [id_])[0]
    if because is not None:
        histories.explain(one, because, machine, as_json)
    else:
        histories.show(one, machine, as_json)


@app.command()
def look(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The snippet.")],
    arch: Annotated[str, typer.Option(help="sm_80, sm_90 or sm_100.")] = "sm_90",
    variant: Annotated[str | None, typer.Option(help="One variant, line by line.")] = None,
    kernel: Annotated[str | None, typer.Option(help="One of its kernels.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="FILE.ptx|COMMIT", help="Show what differs from another build."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the PTX of one kernel, to compare with later.")
    ] = None,
    sass: Annotated[bool, typer.Option("--sass", help="Show the machine code of loops.")] = False,
    as_json: Json = False,
) -> None:
    """Show what the machine will do with a snippet's kernels: code, counts, bounds; no times.

    Without a variant a table of all. Views that are kept are shown at once, others made here.
    """
    from warpshelf.cli import look as looks

    project = projects.find()
    wanted = looks.Wanted(against, save, sass, as_json)
    wrong = looks.show(chosen(project, [id_])[0], arch, variant, kernel, wanted)
    tell(wrong)
    if wrong:
        raise typer.Exit(1)


@app.command(name="rivals")
def beside(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The snippet.")],
    checkouts: Annotated[
        Path | None, typer.Option(help="A folder with clones of the repositories that it names.")
    ] = None,
) -> None:
    """Compile the public kernels of a snippet's rivals.yml, and keep what they are compiled to."""
    from warpshelf.cli import rivals

    rivals.compile_all(chosen(projects.find(), [id_])[0], checkouts)


@app.command()
def new(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Small letters, digits, underscores.")],
    kind: Annotated[str, typer.Option(help="triton, cuda, program or model.")] = "triton",
    source: Annotated[str | None, typer.Option(help="Id of the reading it comes from.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="Page to show it on, e.g. kernels/softmax.")
    ] = None,
) -> None:
    """Make a new snippet's folder: one that runs, ready to be made yours."""
    from warpshelf.contract import scaffold

    project = projects.find()
    source = source or scaffold.PLACEHOLDER
    for path in scaffold.write(project, id_, kind, source, topic):
        print(f"wrote {project.relative(path)}")
    print(scaffold.next_steps(id_, source, topic))
