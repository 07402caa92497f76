"""The command line.

`python -m papergpu run script.py ...` executes a script with its kernels on the CPU, and
`python -m papergpu forms FILE.ptx ...` says what kernels are made of, and what of it is executed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from papergpu.device import architecture
from papergpu.forms import Unknown, find
from papergpu.launch import SCHEDULES, Settings
from papergpu.parse import Unreadable, parse
from papergpu.script import run


def forms(path: str) -> int:
    """Print the forms of one file with how often each stands there; 1 if some are not executed."""
    try:
        module = parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        print(f"{path}: cannot be read ({error.strerror}); name a file of PTX", file=sys.stderr)
        return 1
    except UnicodeDecodeError:
        print(f"{path}: is no text; name a file of PTX, not a cubin", file=sys.stderr)
        return 1
    except Unreadable as error:
        print(f"{path}:{error}; give PTX as a compiler writes it", file=sys.stderr)
        return 1
    counted = Counter(one.form for one in module.instructions())
    missing = 0
    for form, count in sorted(counted.items()):
        try:
            chapter = find(form).form.chapter
        except Unknown:
            chapter, missing = "not in the table of forms", missing + 1
        print(f"{count:6}  {form:50}  {chapter}")
    total = sum(counted.values())
    print(f"{path}: {total} instructions in {len(counted)} forms, {missing} not in the table")
    return int(missing > 0)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="papergpu", description="A GPU made of paper.")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("forms", help="list the forms of instructions in files of PTX")
    listed.add_argument("files", nargs="+", metavar="FILE")
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
        return max(forms(path) for path in given.files)
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
    sys.exit(main())
