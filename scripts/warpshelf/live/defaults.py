"""What calculators say of themselves and of their defaults, asked in a process of its own.

A calculator that raises, hangs or is malformed costs its own page its numbers, and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpshelf.core.project import Project

SECONDS = 30.0
AT_ONCE = 2


@dataclass(frozen=True)
class Described:
    """The inputs of a calculator and the result of its defaults; or what is wrong with it."""

    inputs: list[dict[str, Any]]
    result: dict[str, Any]
    faults: tuple[str, ...] = ()


def ask(project: Project, names: Iterable[str]) -> dict[str, Described]:
    """What each calculator says of itself."""
    asked = list(names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: _one(project, name), asked)
        return dict(zip(asked, found, strict=True))


def _one(project: Project, name: str) -> Described:
    tooling = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-B", "-m", "warpshelf.live.respond"]
    paths = os.pathsep.join((str(project.root), str(tooling)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            words, input=json.dumps([name]), cwd=project.root, env=environment,
            capture_output=True, text=True, encoding="utf-8", timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _failed(f"has no result of its defaults after {SECONDS:.0f} s")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return _failed(f"fails: {said[-1] if said else f'status {done.returncode}'}")
    try:
        answer = json.loads(done.stdout)[name]
    except (ValueError, KeyError, TypeError):
        return _failed("prints something of its own")
    if answer["faults"]:
        return Described([], {}, tuple(answer["faults"]))
    return Described(answer["inputs"], answer["result"])


def _failed(what: str) -> Described:
    return Described([], {}, (what,))
