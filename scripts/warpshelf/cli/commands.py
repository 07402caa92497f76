"""The command line: `shelf`, also `python scripts/build.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpshelf.cli import measuring
from warpshelf.cli.shared import Json, print_findings, select_snippets
from warpshelf.core import project as projects
from warpshelf.core.findings import Finding, ShelfError

# What a command needs it imports itself: one with nothing to do is over in a moment.
if TYPE_CHECKING:
    from warpshelf.edit.autofix import Fix

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Warpshelf: run the snippets, keep their records, build the site.",
)
app.command()(measuring.run)
app.command()(measuring.machine)
app.command("import")(measuring.import_records)
app.command()(measuring.checksums)
app.command()(measuring.compare)
app.command()(measuring.history)
app.command()(measuring.reach)


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
        print_findings(error.findings)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "warpshelf", "snippets"):
            raise
        mend = "run `make pages`, or `make site` for all of it"
        print_findings([Finding(package, None, "is not installed in this environment", mend)])
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        what = error.strerror or str(error)
        print_findings(
            [Finding(str(error.filename), None, what, "see its permissions and the free space")]
        )
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
    from warpshelf.site import freshness

    project = projects.find_project()
    if mutants is not None:
        from warpshelf.cli import kernels

        wrong = kernels.show_mutants(select_snippets(project, [mutants])[0], as_json)
        if not as_json:
            print_findings(wrong)
        raise typer.Exit(1 if wrong else 0)
    mended: list[Fix] = []
    left: list[Finding] = []
    if fix:
        from warpshelf.edit import autofix

        mended, left = autofix.fix_lists(project.root)
    found, remarks = freshness.cached_check(project)
    findings = sorted({*left, *found})
    if as_json:
        told = [finding.__dict__ for finding in findings]
        done = {"mended": [mend.__dict__ for mend in mended], "findings": told}
        print(json.dumps(done if fix else told, indent=1))
    else:
        for mend in mended:
            print(mend)
        print_findings(findings)
        for line in remarks:
            sys.stderr.write(f"{line}\n")
    if findings:
        raise typer.Exit(1)
    if not as_json:
        print("all well")


@app.command()
def schema(
    write: Annotated[
        bool, typer.Option("--write", help="Write it to where the editors' settings expect it.")
    ] = False,
) -> None:
    """Print the JSON Schema of a reading list, by which editors check and complete."""
    from warpshelf.readings import crosscheck

    if not write:
        sys.stdout.write(crosscheck.schema_text())
        return
    changed = crosscheck.write_schema(projects.find_project())
    print(f"wrote {crosscheck.PLACE}" if changed else f"{crosscheck.PLACE} is current")


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

    project = projects.find_project()
    if serve:
        from warpshelf.site import serve as server

        raise typer.Exit(server.serve_site(project, address))
    if render_only:
        print_findings(findings := builds.update_fragments(project).findings)
        raise typer.Exit(1 if findings else 0)
    raise typer.Exit(builds.build_site(project, site_dir, builder))


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
    from warpshelf.cli import kernels as looks

    project = projects.find_project()
    wanted = looks.LookOptions(against, save, sass, as_json)
    wrong = looks.show_kernels(select_snippets(project, [id_])[0], arch, variant, kernel, wanted)
    print_findings(wrong)
    if wrong:
        raise typer.Exit(1)


@app.command(name="rivals")
def rivals_command(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The snippet.")],
    checkouts: Annotated[
        Path | None, typer.Option(help="A folder with clones of the repositories that it names.")
    ] = None,
) -> None:
    """Compile the public kernels of a snippet's rivals.yml, and keep what they are compiled to."""
    from warpshelf.cli import kernels

    kernels.compile_rivals(select_snippets(projects.find_project(), [id_])[0], checkouts)


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
    from warpshelf.contract import mutants

    project = projects.find_project()
    source = source or mutants.PLACEHOLDER
    for path in mutants.create_snippet(project, id_, kind, source, topic):
        print(f"wrote {project.relative_path(path)}")
    print(mutants.next_steps(id_, source, topic))
