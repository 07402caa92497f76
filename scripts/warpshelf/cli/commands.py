"""The command line: `shelf`, also `python scripts/build.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Exit, Option

from warpshelf.cli import measuring
from warpshelf.cli.measuring import Id, Json, exit_with, print_findings, select_snippet
from warpshelf.core import project as projects
from warpshelf.core.findings import Finding, ShelfError

# A command imports what it needs itself, so that one with nothing to do ends at once.
if TYPE_CHECKING:
    from warpshelf.edit.autofix import Fix

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Warpshelf: run the snippets, keep their records, build the site.",
)
for command in (measuring.run, measuring.machine, measuring.checksums, measuring.compare):
    app.command()(command)
app.command("import")(measuring.import_records)
app.command()(measuring.history)
app.command()(measuring.reach)
app.command()(measuring.goals)


def run_command_line() -> None:
    """Parse the process's arguments, run, and exit with the status."""
    sys.exit(main(sys.argv[1:]))


def main(words: list[str]) -> int:
    """Run one command line: 0 if all is well, 1 for findings (on standard error), 2 for usage."""
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
        mend = "run `make pages`, or `make site` to install everything"
        print_findings([Finding(package, None, "is not installed in this environment", mend)])
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        what, mend = error.strerror or str(error), "check its permissions and the free space"
        print_findings([Finding(str(error.filename), None, what, mend)])
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished records are kept, and the next run continues\n")
        return 130
    return 0


def _with_links(words: list[str]) -> typer.Typer:
    """The commands; those of `links` are imported unless `words` begin with another one."""
    own = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    if not app.registered_groups and not own & set(words[:1]):
        from warpshelf.cli.links import links_app

        app.add_typer(links_app, name="links")
    return app


@app.command()
def check(
    fix: bool = Option(False, "--fix", help="First fix in the lists what is safe to fix."),
    mutants: str | None = Option(
        None, metavar="ID", help="Instead run each case on this snippet's mutants."
    ),
    as_json: Json = False,
) -> None:
    """Check what a pull request must pass, without a GPU or network and without running code."""
    from warpshelf.site import freshness

    if mutants is not None:
        from warpshelf.cli import kernels

        return exit_with(kernels.show_mutants(select_snippet(mutants), as_json), as_json)
    project = projects.find_project()
    mended: list[Fix] = []
    left: list[Finding] = []
    if fix:
        from warpshelf.edit import autofix

        mended, left = autofix.fix_lists(project.root)
    found, remarks = freshness.cached_check(project)
    findings = sorted({*left, *found})
    if as_json:
        told = [vars(finding) for finding in findings]
        done = {"mended": [vars(mend) for mend in mended], "findings": told}
        print(json.dumps(done if fix else told, indent=1))
        return exit_with(findings, told=True)
    for mend in mended:
        print(mend)
    print_findings(findings)
    for line in remarks:
        sys.stderr.write(f"{line}\n")
    exit_with(findings, told=True)
    print("all well")


@app.command()
def schema(
    write: bool = Option(False, "--write", help="Write it where the editor settings expect it."),
) -> None:
    """Print the JSON Schema of a reading list, for editors to check and complete entries."""
    from warpshelf.readings import crosscheck

    if not write:
        sys.stdout.write(crosscheck.schema_text())
        return
    changed = crosscheck.write_schema(projects.find_project())
    print(f"wrote {crosscheck.PLACE}" if changed else f"{crosscheck.PLACE} is current")


@app.command()
def site(
    serve: bool = Option(False, "--serve", help="Serve with live reload."),
    site_dir: Path | None = Option(None, help="Where to build."),
    builder: str = Option("mkdocs", help="mkdocs or zensical."),
    address: str = Option("127.0.0.1:8000", help="Where to serve."),
    render_only: bool = Option(False, "--render-only", help="Write the fragments and stop."),
) -> None:
    """Render the records and readings, then build the site in strict mode."""
    from warpshelf.site import build as builds

    project = projects.find_project()
    if serve:
        from warpshelf.site import serve as server

        raise Exit(server.serve_site(project, address))
    if render_only:
        return exit_with(builds.update_fragments(project).findings)
    raise Exit(builds.build_site(project, site_dir, builder))


@app.command()
def look(
    id_: Id,
    arch: str = Option("sm_90", help="sm_80, sm_90 or sm_100."),
    variant: str | None = Option(None, help="One variant, line by line."),
    kernel: str | None = Option(None, help="One of its kernels."),
    against: str | None = Option(
        None, metavar="FILE.ptx|COMMIT", help="Show what differs from this build."
    ),
    save: Path | None = Option(None, help="Write the PTX of one kernel, to compare with later."),
    sass: bool = Option(False, "--sass", help="Show the machine code of loops."),
    as_json: Json = False,
) -> None:
    """Show a snippet's compiled kernels: machine code, counts and lower bounds, but no times.

    Without a variant, print a table of all. Kept views are shown at once, others are made here.
    """
    from warpshelf.bench.compiling import ViewRequest
    from warpshelf.cli import kernels

    asked = ViewRequest(select_snippet(id_), arch, variant, kernel)
    exit_with(kernels.show_kernels(asked, against, save, sass, as_json))


@app.command()
def rivals(
    id_: Id,
    checkouts: Path | None = Option(None, help="A folder with clones of their repositories."),
) -> None:
    """Compile the public kernels in a snippet's published.yml and keep their figures."""
    from warpshelf.cli import kernels

    kernels.compile_rivals(select_snippet(id_), checkouts)


@app.command()
def new(
    id_: str = Argument(..., metavar="ID", help="Small letters, digits, underscores."),
    kind: str = Option("triton", help="triton, cuda, program or model."),
    source: str | None = Option(None, help="Id of the reading it comes from."),
    topic: str | None = Option(None, help="Page to show it on, e.g. kernels/softmax."),
) -> None:
    """Create a new snippet's folder, with a small snippet that already runs."""
    from warpshelf.contract import mutants

    project = projects.find_project()
    source = source or mutants.PLACEHOLDER
    for path in mutants.create_snippet(project, id_, kind, source, topic):
        print(f"wrote {project.relative_path(path)}")
    print(mutants.next_steps(id_, source, topic))
