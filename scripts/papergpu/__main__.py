"""The command line.

`python -m papergpu run script.py ...` executes a script with its kernels on the CPU.
`python -m papergpu forms` prints the table of all that is executed, and with files of PTX behind it
what kernels are made of, and what of it is executed; `--json` says the same to programs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from papergpu.device import architecture
from papergpu.launch import SCHEDULES, Settings
from papergpu.listing import counted, of_file, rows, table
from papergpu.script import run


def forms(paths: list[str], as_json: bool) -> int:
    """Print the forms of files, or the whole table; 1 if a file is none or has others."""
    if not paths:
        print(json.dumps(rows()) if as_json else table())
        return 0
    found, status = {}, 0
    for path in paths:
        try:
            found[path] = counted(path)
        except ValueError as error:
            print(error, file=sys.stderr)
            status = 1
    if as_json:
        print(json.dumps({path: [vars(one) for one in made] for path, made in found.items()}))
    else:
        for path, made in found.items():
            print(of_file(path, made))
    return int(status or any(one.chapter is None for made in found.values() for one in made))


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="papergpu", description="A GPU made of paper.")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("forms", help="list the forms of instructions that are executed")
    listed.add_argument("--json", action="store_true", help="for programs")
    listed.add_argument("files", nargs="*", metavar="FILE", help="of PTX: list those in it")
    executed = commands.add_parser("run", help="execute a script with its kernels on the CPU")
    executed.add_argument("--target", default="sm_90", help="the GPU to compile for (sm_90)")
    executed.add_argument("--schedule", choices=SCHEDULES, default="robin", help="how warps turn")
    executed.add_argument("--seed", type=int, default=0, help="order blocks and warps by chance")
    executed.add_argument("--threads", type=int, default=0, help="how many to go over; 0: all")
    executed.add_argument("--no-checks", action="store_true", help="look for no races")
    executed.add_argument(
        "--profile", action="store_true", help="say at the end what each line of the source did"
    )
    executed.add_argument("script", metavar="SCRIPT")
    executed.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    given = parser.parse_args(arguments)
    if given.command == "forms":
        return forms(given.files, given.json)
    settings = Settings(
        checks=not given.no_checks,
        profile=given.profile,
        schedule=given.schedule,
        seed=given.seed,
        threads=given.threads,
    )
    try:
        architecture(given.target)
    except ValueError as error:
        parser.error(str(error))
    return run(given.script, given.arguments, given.target, settings)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # who read it, `head` say, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
