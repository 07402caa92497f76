"""`python -m papergpu forms FILE.ptx ...`: what a kernel is made of, and what of it is executed."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from papergpu.forms import Unknown, find
from papergpu.parse import Unreadable, parse


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
    parser = argparse.ArgumentParser(prog="papergpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("forms", help="list the forms of instructions in files of PTX")
    listed.add_argument("files", nargs="+", metavar="FILE")
    given = parser.parse_args(arguments)
    return max(forms(path) for path in given.files)


if __name__ == "__main__":
    sys.exit(main())
