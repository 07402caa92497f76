"""Public kernels that stand beside ours: taken from clones of their repositories, and compiled."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpshelf.look import rivalry
from warpshelf.look.rivalry import Answer

ENDINGS = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl")  # of code that a kernel may need
SECONDS = 600.0  # to compile one kernel for all its architectures


@dataclass(frozen=True)
class Source:
    """Where a public kernel is: `owner/name` on GitHub, a whole commit, a file in it."""

    repository: str
    commit: str
    file: str


def compiled(source: Source, build: Mapping[str, Any], checkouts: Path) -> Answer:
    """What a kernel is compiled to; `build` is what `warpshelf.worker.rival` is told of it.

    `checkouts` holds the repositories, as `owner/name`, `owner+name` or `name`, each a clone of
    whatever kind.

    Raises:
        ValueError: the commit is not there, or the kernel is not compiled.
    """
    with _checkout(checkouts, source) as root:
        if not (root / source.file).is_file():
            raise ValueError(f"{source.repository} has no {source.file} at {source.commit:.12}")
        return _answer({**build, "root": str(root)})


def compiled_here(folder: Path, build: Mapping[str, Any]) -> Answer:
    """What a kernel that lies in `folder` is compiled to, by the package that `build` names.

    Raises:
        ValueError: the package is not installed, or the kernel is not compiled.
    """
    return _answer({**build, "root": str(folder)})


def _answer(job: Mapping[str, Any]) -> Answer:
    paths = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": cache}
        environment.pop("TRITON_INTERPRET", None)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "warpshelf.worker.rival"],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"is not compiled in {SECONDS:.0f} s") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise ValueError(f"left with exit status {done.returncode}: {last}") from None
    if "error" in answer:
        raise ValueError(answer["error"])
    if wrong := rivalry.problem(answer):
        raise ValueError(f"gave no figures: {wrong}")
    return Answer(answer["compiler"], answer["builds"])


@contextmanager
def _checkout(checkouts: Path, one: Source) -> Iterator[Path]:
    """The code of a repository at a commit, in a folder that is removed afterwards."""
    repository = _repository(checkouts, one)
    listed = _git(repository, "ls-tree", "-r", "--name-only", "-z", one.commit)
    if listed.returncode:
        raise ValueError(f"{repository} has no commit {one.commit}")
    names = [name for name in listed.stdout.decode(errors="replace").split("\0")
             if name.endswith(ENDINGS)]  # fmt: skip
    top = one.file.split("/")[0] if "/" in one.file else ""  # it may need any of them
    wanted = [name for name in names if top in ("", name.split("/")[0])]
    packed = _git(repository, "archive", "--format=tar", one.commit, "--", *wanted)
    if packed.returncode or not wanted:
        raise ValueError(f"{one.repository} has no {one.file} at {one.commit:.12}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _repository(checkouts: Path, one: Source) -> Path:
    owner, name = one.repository.split("/")
    for place in (f"{owner}/{name}", f"{owner}+{name}", name):
        for folder in (checkouts / place, checkouts / place / "repo"):
            if folder.is_dir() and not _git(folder, "rev-parse", "--git-dir").returncode:
                return folder
    raise ValueError(f"{checkouts} has no clone {owner}/{name}; make one there")


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    # A ceiling, or a folder inside some other checkout would pass for a clone.
    ceiling = {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, check=False, env=os.environ | ceiling)
    except OSError:
        return subprocess.CompletedProcess(words, 1, b"", b"")
