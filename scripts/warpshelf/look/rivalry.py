"""What became of public kernels that stand beside a snippet's: its rivals.json, written by machine.

An answer belongs to an entry of rivals.yml by the digest of what it was compiled from. One of
another entry, or of an entry since changed, is as good as none.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.core import shapes
from warpshelf.core.files import flaw, write_atomically
from warpshelf.core.findings import Finding
from warpshelf.look.builds import BUILD, Build
from warpshelf.look.view import ARCH

FILE = "rivals.json"
SCHEMA = 1
LARGEST = 2**20  # bytes of the file; a real one holds a few kibibytes
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ANSWER = {"digest": DIGEST, "compiler": str, "builds": {"*": BUILD}}
SHAPE = {"schema": int, "rivals": [ANSWER]}


class Answer(NamedTuple):
    """What one kernel was compiled to: by whom, and its figures by architecture."""

    compiler: str
    builds: dict[str, Build]


def problem(value: object) -> str | None:
    """The first thing in an answer of the compiler's that is not as it should be, in words."""
    if wrong := shapes.problem(value, {k: v for k, v in ANSWER.items() if k != "digest"}, "it"):
        return wrong
    builds: dict[str, Any] = value["builds"] if isinstance(value, dict) else {}
    return next(
        (f"{name!r} is no architecture" for name in builds if not ARCH.fullmatch(name)), None
    )


def write(folder: Path, answers: dict[str, Answer]) -> bool:
    """Keep these answers, by digest, in a snippet's folder; whether anything has changed."""
    rows = ",\n".join(  # a line a kernel, so that a difference shows as one
        json.dumps({"digest": digest, **one._asdict()}, sort_keys=True, ensure_ascii=False)
        for digest, one in answers.items()
    )
    return write_atomically(folder / FILE, f'{{"schema": {SCHEMA}, "rivals": [\n{rows}\n]}}\n')


def load(folder: Path, shown: str) -> tuple[dict[str, Answer], list[Finding]]:
    """The answers in a snippet's folder, called `shown`, by digest; none without a file."""
    path = folder / FILE
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"is larger than {LARGEST} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
        if wrong := flaw(value) or shapes.problem(value, SHAPE, "it"):
            raise ValueError(wrong)
        if value["schema"] != SCHEMA:
            raise ValueError(f"is of schema {value['schema']}, not {SCHEMA}")
        for row in value["rivals"]:
            if wrong := problem({key: row[key] for key in ("compiler", "builds")}):
                raise ValueError(wrong)
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        mend = "make it again with `shelf rivals`, or remove it"
        return {}, [Finding(f"{shown}/{FILE}", None, what, mend)]
    rows = value["rivals"]
    return {row["digest"]: Answer(row["compiler"], row["builds"]) for row in rows}, []
