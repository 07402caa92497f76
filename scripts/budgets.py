"""What this repository may weigh and take, measured from a fresh clone, beside its limits.

`python scripts/budgets.py` clones HEAD into a temporary folder and measures there with cold caches:
a home, and caches of kernels and of the engine, of its own. pip keeps its cache, which may be warm,
and a browser its place. `--only NAME ...` measures some, `--list` names all. Times are seconds, and
beside them how often a fixed piece of work fits in. The exit status is 1 if a limit breaks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = 4  # every fourth snippet stands for all where each is edited and run
MEGABYTE = 1_000_000


def reference() -> float:
    """Seconds of a fixed piece of work: Python's own loops, and zlib."""
    began = time.perf_counter()
    text = b"".join(b"%d" % (n * n % 7919) for n in range(2_000_000))
    for _ in range(8):
        zlib.compress(text, 6)
    return time.perf_counter() - began


class Broken(Exception):
    """A command failed, so that there is nothing to measure."""


@dataclass
class Clone:
    """A clone of HEAD with its own home; what a measure needs is made when it is asked for."""

    folder: Path
    made: set[str] = field(default_factory=set)
    log: Path = Path()

    def __post_init__(self) -> None:
        self.root = self.folder / "warpshelf"
        self.log = self.folder / "log"
        clone(ROOT, self.root)

    @property
    def environment(self) -> dict[str, str]:
        """This one, with a home and caches of the clone's own."""
        home, real = self.folder / "home", Path.home()
        home.mkdir(exist_ok=True)
        dropped = ("PAPERGPU_CACHE", "TRITON_CACHE_DIR", "TRITON_HOME", "VIRTUAL_ENV", "PYTHON")
        foreign = (*dropped, "MAKE", "GIT_", "PYTEST_")
        found = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        found |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        found.setdefault("PIP_CACHE_DIR", str(real / ".cache" / "pip"))
        found.setdefault("PLAYWRIGHT_BROWSERS_PATH", str(real / ".cache" / "ms-playwright"))
        for config in (real / ".config" / "pip" / "pip.conf", real / ".pip" / "pip.conf"):
            if config.is_file():
                found.setdefault("PIP_CONFIG_FILE", str(config))
        return found

    def run(self, *words: str, **more: str) -> float:
        """Seconds that a command takes in the clone.

        Raises:
            Broken: it fails.
        """
        began = time.perf_counter()
        with self.log.open("wb") as log:
            done = subprocess.run(words, cwd=self.root, env=self.environment | more, stdout=log,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)  # fmt: skip
        if done.returncode:
            last = self.log.read_text(errors="replace").strip().splitlines()[-12:]
            raise Broken("\n    ".join([f"`{' '.join(words)}` fails:", *last]))
        return time.perf_counter() - began

    def make(self, target: str) -> float:
        """Seconds of `make`, with the Python that runs this."""
        return self.run("make", target, f"PYTHON={sys.executable}")

    def shelf(self, *words: str) -> float:
        """Seconds of `shelf`."""
        return self.run(".venv/bin/shelf", *words)

    def once(self, target: str) -> Clone:
        """The clone, with a target made that a measure begins from."""
        if target not in self.made:
            self.make(target)
            self.made.add(target)
        return self

    def tracked(self, *which: str) -> list[Path]:
        """The files that version control has."""
        words = ["git", "ls-files", "-z", *which]
        said = subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=True)
        return [self.root / name for name in said.stdout.split("\0") if name]


def clone(source: Path, target: Path, *options: str) -> None:
    """Clone HEAD of a checkout, as from another machine."""
    words = ["git", "clone", "--quiet", *options, source.as_uri(), str(target)]
    subprocess.run(words, check=True)


def megabytes(files: list[Path]) -> float:
    return sum(path.lstat().st_size for path in files) / MEGABYTE


def below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# Each measure gives what it found; the table below has its limit.


def record(one: Clone) -> float:
    """Lines of the longest record that has cases, as if it had ten of them."""
    found = [0.0]
    for path in one.tracked("snippets/*/results/cpu.json"):
        text = path.read_text(encoding="utf-8")
        if cases := json.loads(text).get("cases"):
            found.append(len(text.splitlines()) * 10 / max(10, len(cases)))
    return max(found)


def shallow(one: Clone) -> float:
    target = one.folder / "shallow"
    clone(one.root, target, "--depth", "1")
    return megabytes(below(target / ".git"))


def site_cold(one: Clone) -> float:
    shutil.rmtree(one.root / ".venv", ignore_errors=True)
    taken = one.make("site")
    one.made.add("site")
    return taken


def site_size(one: Clone) -> float:
    if not (one.root / "site").is_dir():
        one.once("pages")
    return megabytes(below(one.root / "site"))


def mkdocs(one: Clone) -> float:
    """MkDocs alone, started as `make site` starts it; the better of two, as times of it vary."""
    site_size(one)
    said = (
        "from pathlib import Path; from warpshelf.core.project import Project; "
        "from warpshelf.site.build import run_mkdocs; "
        f"exit(run_mkdocs(Project(Path.cwd()), Path({str(one.folder / 'built')!r})))"
    )
    return min(one.run(".venv/bin/python", "-c", said) for _ in range(2))


def engine(one: Clone) -> float:
    one.once(".venv/site.stamp")
    shutil.rmtree(one.folder / "engine", ignore_errors=True)
    said = "from papergpu.build import compile_engine; compile_engine()"
    return one.run(".venv/bin/python", "-c", said, PAPERGPU_CACHE=str(one.folder / "engine"))


def edit(text: str, language: str) -> str:
    """The code of a snippet with one more statement in its first kernel, or function."""
    if language == ".cu":
        head, line = r"__global__[^{]*\)\s*\{", '\n    asm volatile("");'
    elif "@triton.jit" in text:
        head, line = r"@triton\.jit.*?:\n(?=    )", "    tl.static_assert(True)\n"
    else:
        head, line = r"^def \w+\(.*?:\n(?=    )", "    assert True\n"
    return re.sub(
        head, lambda found: found[0] + line, text, count=1, flags=re.DOTALL | re.MULTILINE
    )


def edited(one: Clone) -> Iterator[str]:
    """Snippets of a sample, each while it has one more line."""
    one.once("site")
    for folder in sorted(path.parent for path in one.root.glob("snippets/*/cases.py"))[::SAMPLE]:
        path = next(folder.glob("*.cu"), folder / f"{folder.name}.py")
        path.write_text(edit(path.read_text(encoding="utf-8"), path.suffix), encoding="utf-8")
        try:
            yield folder.name
        finally:
            subprocess.run(["git", "checkout", "-q", "snippets"], cwd=one.root, check=True)


def ran(one: Clone, *options: str) -> float:
    """Seconds within which `shelf run` of an edited snippet ends, for three quarters of them."""
    times = [one.shelf("run", name, *options) for name in edited(one)]
    return statistics.quantiles(times, n=4, method="inclusive")[2]


def verify(one: Clone) -> float:
    """Minutes of all cores, as each child says; the server that forks them is no child of ours."""
    one.once(SITE).make("verify")
    ledger = json.loads((one.root / ".shelf" / "ledger.json").read_text(encoding="utf-8"))
    rows = [row["seconds"] for machines in ledger.values() for row in machines.values()]
    return sum(row.get("verify", 0) + row.get("compile", 0) for row in rows) / 60


def rooms(one: Clone) -> float:
    one.once(".venv/full.stamp")
    found = {folder.parent for folder in one.tracked("tests/*/test_*.py")}
    return max(one.run(".venv/bin/python", "-m", "pytest", "-q", str(folder)) for folder in found)


def serve(one: Clone) -> float:
    """From a sentence that is written down to the page that has it."""
    one.once("pages")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    said = re.search(r"^site_url: *\w+://[^/\s]+(\S*)", (one.root / "mkdocs.yml").read_text(), re.M)
    url = f"http://{at}{said[1] if said else '/'}about/measure/"
    words = [".venv/bin/shelf", "site", "--serve", "--address", at]
    with one.log.open("wb") as log:
        server = subprocess.Popen(words, cwd=one.root, env=one.environment, stdout=log, stderr=log,
                                  start_new_session=True)  # fmt: skip
    try:
        awaited(url, "", 300)
        time.sleep(2)  # all that a start does is done
        sentence = "This sentence was not here before."
        with (one.root / "docs" / "about" / "measure.md").open("a", encoding="utf-8") as page:
            page.write(f"\n{sentence}\n")
        return awaited(url, sentence, 120)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        subprocess.run(["git", "checkout", "-q", "docs"], cwd=one.root, check=True)


def awaited(url: str, sentence: str, limit: float) -> float:
    """Seconds until a page has a sentence."""
    began = time.perf_counter()
    while (taken := time.perf_counter() - began) < limit:
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                if sentence in page.read().decode(errors="replace"):
                    return taken
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise Broken(f"{url} did not show it within {limit:.0f} s")


@dataclass(frozen=True)
class Budget:
    what: str
    limit: float | None
    unit: str
    measure: Callable[[Clone], float]


SITE, FULL = ".venv/site.stamp", ".venv/full.stamp"
GENERATED = ":(attr:linguist-generated)"
# Cheap ones first. `site-cold` comes before all that needs an environment, so as to make it, and
# `verify` before the edit loop, which is warm.
BUDGETS = {
    # A page a step and a module an idea make more files than 1,400, and lighter ones.
    "files": Budget("tracked files", 1400, "", lambda it: len(it.tracked())),
    "tracked": Budget("tracked files together", 12, "MB", lambda it: megabytes(it.tracked())),
    "generated": Budget("of them generated", 4, "MB", lambda it: megabytes(it.tracked(GENERATED))),
    "record": Budget("longest record of ten cases", 150, "lines", record),
    "clone": Budget("git clone --depth 1", None, "MB", shallow),
    "site-cold": Budget("make site, with its install", 240, "s", site_cold),
    "site-again": Budget("make site, no change", 15, "s", lambda it: it.once("site").make("site")),
    "site-size": Budget("site/", 40, "MB", site_size),
    "mkdocs": Budget("mkdocs build", 8, "s", mkdocs),
    "check": Budget("shelf check, again", 3, "s",
                    lambda it: min(it.once(SITE).shelf("check") for _ in range(2))),
    "serve": Budget("a sentence in make serve", 3, "s", serve),
    "engine": Budget("first build of the engine", 25, "s", engine),
    "verify": Budget("make verify, all cores", 15, "min", verify),
    "quick": Budget("run ID --quick, 3/4 of a sample", 5, "s", lambda it: ran(it, "--quick")),
    "line": Budget("a line verified, 3/4 of a sample", 30, "s", ran),
    "test": Budget("make test, installed", 360, "s", lambda it: it.once(FULL).make("test")),
    "rooms": Budget("pytest of the slowest room", 60, "s", rooms),
    "test-all": Budget("make test-all", 1500, "s", lambda it: it.once(FULL).make("test-all")),
}  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=BUDGETS, metavar="NAME", help="these alone")
    parser.add_argument("--list", action="store_true", help="name all, and measure nothing")
    given = parser.parse_args(words)
    if given.list:
        for name, one in BUDGETS.items():
            print(f"{name:12}{one.what}" + (f", at most {one.limit:g} {one.unit}".rstrip()
                                            if one.limit else ""))  # fmt: skip
        return 0
    broken = 0
    work = min(reference() for _ in range(3))
    print(f"the fixed piece of work takes {work:.2f} s, on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="budgets-") as folder:
        clone_of_head = Clone(Path(folder))
        for name, one in BUDGETS.items():
            if given.only and name not in given.only:
                continue
            try:
                found = one.measure(clone_of_head)
            except Broken as fault:
                print(f"{name:12}FAILS  {fault}", flush=True)
                broken += 1
                continue
            over = one.limit is not None and found > one.limit
            broken += over
            limit = f"of {one.limit:g}" if one.limit else "no limit"
            ratio = f"{found / work:8.1f} times" if one.unit == "s" else ""
            print(f"{name:12}{found:10.1f} {one.unit:6}{limit:10}{ratio:16}{one.what}"
                  f"{'  OVER' if over else ''}", flush=True)  # fmt: skip
    print(f"{broken} broken" if broken else "all hold")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
