"""The command line.

`papergpu run` compiles a CUDA program and executes it, or a script with its kernels of Triton, or a
program that is compiled already; `papergpu nvcc` compiles one as nvcc would.
`papergpu forms` prints the table of all that is executed, and with files of PTX behind it
what kernels are made of, and what of it is executed; `--json` says the same to programs.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from papergpu import session
from papergpu.counters import Collected, format_table
from papergpu.debugger import debug_launches
from papergpu.device import parse_target
from papergpu.errors import (
    HOST,
    KINDS,
    OPERAND,
    CompileError,
    Finding,
    Unavailable,
    Unsupported,
)
from papergpu.forms import FORMS, Form, Slot, UnknownForm, find_form
from papergpu.launch import AUTOTUNE, SCHEDULES, Settings
from papergpu.pack import write_packs
from papergpu.parse import Unreadable, parse

# ---- what is executed: the table of forms, and the forms in a file

LEGEND = """\
Every form that is executed: opcode, least version of PTX, least target, types, and modifiers in
order. A modifier is one of those with | between them, may be left out where ? stands behind, and
has the name before =. Types are those of the operands, the result first: t is whatever modifier t
is, wide twice as wide, dot u32 where x and y are and s32 elsewhere, preds two predicates, bool a
b32 and a predicate, imm8 a constant; - says that it is no function of one thread's operands."""


def format_forms() -> str:
    """The table of forms by chapters of the PTX ISA, a line for each row."""
    lines, chapter = [LEGEND], ""
    for form in FORMS:
        if form.chapter != chapter:
            chapter = form.chapter
            lines.append(f"\n{chapter}")
        opcode, types = "|".join(form.slots[0][1]), " ".join(form.operands)
        modifiers = map(_format_slot, form.slots[1:])
        said = f"  {opcode:21} PTX {_format_version(form)}  sm_{form.target:<3}  {types:20}"
        lines.append(f"{said} {' '.join(modifiers)}".rstrip())
    return "\n".join(lines)


def _format_slot(slot: Slot) -> str:
    """A slot as the table has it: `r=rn|rz?`."""
    name, choices, optional = slot
    written = "|".join(choices)
    return f"{'' if name == written else f'{name}='}{written}{'?' if optional else ''}"


def _format_version(form: Form) -> str:
    return ".".join(map(str, form.version))


def _describe_form(form: Form) -> dict[str, object]:
    """A row for programs; `operands` is null where what is done is no function of them."""
    (_, opcodes, _), *modifiers = form.slots
    return {
        "name": form.name,
        "opcodes": opcodes,
        "modifiers": [
            {"name": name, "choices": choices, "optional": optional}
            for name, choices, optional in modifiers
        ],
        "operands": None if form.operands == ("-",) else form.operands,
        "version": _format_version(form),
        "target": f"sm_{form.target}",
        "chapter": form.chapter,
    }


def count_forms(path: str) -> list[tuple[str, int, str | None]]:
    """The forms in a file of PTX, how often each stands there, and its chapter if it is executed.

    Raises:
        ValueError: the file cannot be read, or is not PTX.
    """
    try:
        module = parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); name a PTX file"
        raise ValueError(message) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text; name a PTX file, not a cubin") from None
    except Unreadable as error:
        raise ValueError(f"{path}:{error}; name a PTX file as a compiler writes it") from None
    found = Counter(one.form for one in module.iterate_instructions())
    return [(form, count, _find_chapter(form)) for form, count in sorted(found.items())]


def _find_chapter(form: str) -> str | None:
    try:
        return find_form(form).form.chapter
    except UnknownForm:
        return None


def format_counts(path: str, found: Sequence[tuple[str, int, str | None]]) -> str:
    """What `count_forms` found, a line for each form and one for all."""
    lines = [
        f"{count:6}  {form:50}  {chapter or 'not in the table of forms'}"
        for form, count, chapter in found
    ]
    total, missing = sum(one[1] for one in found), sum(one[2] is None for one in found)
    lines.append(f"{path}: {total} instructions in {len(found)} forms, {missing} not in the table")
    return "\n".join(lines)


# ---- a script executed with Triton's kernels on the CPU, as on a GPU


def run_script(given: argparse.Namespace, settings: Settings) -> int:
    """Execute a script; 1 if a kernel did something wrong or something unsupported.

    With `--profile` a table of what all its launches did, line by line of the source, goes to
    stderr at the end. What else the script raises, it raises here.
    """
    from papergpu.programs import Report, locate_finding

    path = given.script
    if not Path(path).is_file():
        print(f"{path}: no such script; name a Python file", file=sys.stderr)
        return 2
    os.environ.pop("TRITON_INTERPRET", None)  # it would leave nothing to execute
    session.replace_settings(settings)
    counted, said = Collected(), Report(only=given.only)
    before = sys.argv, sys.path[:]
    sys.argv = [path, *given.arguments]
    sys.path[0:0] = [str(Path(path).resolve().parent)]
    triton = find_spec("triton") is not None and find_spec("torch") is not None
    with (
        write_packs(Path(given.pack)) if given.pack else nullcontext(),
        debug_launches(given.kernel) if given.command == "debug" else nullcontext(),
        session.on_launch(counted),
        session.on_launch(said.add_launch),
        session.on_finding(lambda finding: said.add(locate_finding(finding))),
    ):
        try:
            if triton:
                from papergpu.triton import active

                with active(given.target, cuda=True):
                    runpy.run_path(path, run_name="__main__")
            else:
                runpy.run_path(path, run_name="__main__")
        except Finding as finding:
            said.add(locate_finding(finding))
        except (Unavailable, Unsupported) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            sys.argv, sys.path[:] = before
            if given.profile:
                print(format_table(counted.profile()), file=sys.stderr)
            if said.findings:
                print(said, file=sys.stderr)
            if given.report:
                said.write(given.report, counted)
    return int(bool(said.findings))


def run_program(given: argparse.Namespace, settings: Settings) -> int:
    """Execute a CUDA program, from its source or compiled; 2 if it cannot begin."""
    from papergpu import programs

    path = Path(given.script)
    if not path.is_file():
        print(f"{path}: no such program; name a .cu file or an executable", file=sys.stderr)
        return 2
    try:
        options = {"target": given.target, "only": given.only, "table": given.profile,
                   "report": given.report and os.path.abspath(given.report),
                   "pack": given.pack, "debug": given.command == "debug"}  # fmt: skip
        programs.run_program(path.resolve(), given.arguments, settings, options)
    except (CompileError, Unavailable, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def run_nvcc(arguments: Sequence[str]) -> int:
    """Compile as nvcc would, for papergpu; its exit status."""
    from papergpu import toolkit

    try:
        command = toolkit.nvcc_command(arguments)
    except (CompileError, Unavailable) as error:
        print(error, file=sys.stderr)
        return 2
    return subprocess.run(command).returncode


def print_forms(paths: list[str], as_json: bool) -> int:
    """Print the forms of files, or the whole table; 1 if a file is unreadable or has others."""
    if not paths:
        print(json.dumps([_describe_form(form) for form in FORMS]) if as_json else format_forms())
        return 0
    found, status = {}, 0
    for path in paths:
        try:
            found[path] = count_forms(path)
        except ValueError as error:
            print(error, file=sys.stderr)
            status = 1
    if as_json:
        names = ("form", "count", "chapter")
        shown = {path: [dict(zip(names, one, strict=True)) for one in made]
                 for path, made in found.items()}  # fmt: skip
        print(json.dumps(shown))
    else:
        for path, made in found.items():
            print(format_counts(path, made))
    return int(status or any(one[2] is None for made in found.values() for one in made))


_KINDS = (*KINDS, OPERAND, HOST)


def _parse_kinds(text: str) -> list[str]:
    found = text.split(",")
    if unknown := [one for one in found if one not in _KINDS]:
        raise argparse.ArgumentTypeError(f"no kind {unknown[0]!r}; choose {', '.join(_KINDS)}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="papergpu", description="A GPU made of paper.")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("forms", help="list the forms of instructions that are executed")
    listed.add_argument("--json", action="store_true", help="print JSON")
    listed.add_argument("files", nargs="*", metavar="FILE", help="PTX: list the forms in it")
    executed = commands.add_parser("run", help="execute a program with its kernels on the CPU")
    stepped = commands.add_parser("debug", help="the same, step by step through its launches")
    for one in (executed, stepped):
        one.add_argument("--target", default="sm_90", help="the GPU to compile for (sm_90)")
        one.add_argument("--schedule", choices=SCHEDULES, default="robin", help="warp order")
        one.add_argument("--seed", type=int, default=0, help="shuffle blocks and warps")
        one.add_argument("--kernel", metavar="TEXT", default="",
                         help="check, count, stop at only kernels whose name has it")  # fmt: skip
        one.add_argument("--no-checks", action="store_true", help="do not check for races")
    executed.add_argument("--threads", type=int, default=0, help="CPU threads; 0: all")
    executed.add_argument("--autotune", choices=AUTOTUNE, default="first",
                          help="of Triton's tuners: configurations that are run")  # fmt: skip
    executed.add_argument("--only", metavar="KIND,...", type=_parse_kinds, default=(),
                          help=f"tell of these kinds alone: {', '.join(_KINDS)}")  # fmt: skip
    executed.add_argument("--limit", type=int, default=Settings.limit,
                          help="instructions after which a warp is taken to hang")  # fmt: skip
    executed.add_argument("--fatal", action="store_true", help="end at the first finding")
    executed.add_argument(
        "--profile", action="store_true", help="print at the end what each line of the source did"
    )
    executed.add_argument(
        "--report",
        metavar="FILE",
        help="write what was found: .json, .sarif, or .html with its source",
    )
    executed.add_argument("--pack", metavar="FOLDER", type=os.path.abspath,
                          help="write each launch there, for a browser")  # fmt: skip
    stepped.set_defaults(**vars(executed.parse_args([])))
    for one in (executed, stepped):
        one.add_argument("script", metavar="PROGRAM", help="a .cu or .py file, or an executable")
        one.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    compiled = commands.add_parser("nvcc", help="compile a CUDA program that runs here",
                                   add_help=False, prefix_chars="\0")  # fmt: skip
    compiled.add_argument("arguments", nargs=argparse.REMAINDER, metavar="OPTION")
    served = commands.add_parser("serve")  # as a program starts it: see papergpu.programs
    served.add_argument("file", type=int)
    given = parser.parse_args(arguments)
    if given.command == "nvcc":
        return run_nvcc(given.arguments)
    if given.command == "serve":
        from papergpu.programs import serve

        return serve(given.file)
    if given.command == "forms":
        return print_forms(given.files, given.json)
    settings = Settings(
        checks=not given.no_checks,
        profile=given.profile or (given.report or "").endswith(".html"),
        schedule=given.schedule,
        seed=given.seed,
        threads=given.threads,
        autotune=given.autotune,
        fatal=given.fatal,
        kernel=given.kernel,
        limit=given.limit,
    )
    try:
        parse_target(given.target)
    except ValueError as error:
        parser.error(str(error))
    run = run_script if given.script.endswith(".py") else run_program
    return run(given, settings)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # who read it, `head` say, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
