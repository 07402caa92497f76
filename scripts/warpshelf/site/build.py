"""A build: what has changed is rendered, then MkDocs or Zensical makes the pages, strictly.

Both are called as the programs that they are. Zensical gets a copy of the project: MkDocs passes a
link in HTML on as it is and resolves Markdown's links from the root of docs/, which is how lists
and pieces are rendered; Zensical takes every relative link, one in HTML too, to start at the page's
source, and passes links from the root on. So the copy has its includes written out and both kinds
of link turned into what leads to the same place.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.markup import remove_marks
from warpshelf.core.places import page_address
from warpshelf.core.project import Project
from warpshelf.live import runtime
from warpshelf.site import freshness

BUILDERS = ("mkdocs", "zensical")
# A page is a tree of many small objects; looking for garbage among them took a tenth of a build.
MKDOCS = """
import gc
gc.set_threshold(200_000, 50, 100)
from mkdocs.__main__ import cli
cli(prog_name="mkdocs")
"""


@dataclass(frozen=True)
class RenderResult:
    """What a rendering found wrong, and how many files it changed."""

    findings: list[Finding]
    changed: int


def update_fragments(project: Project) -> RenderResult:
    """Bring every fragment up to date; nothing is read twice that has not changed since.

    Raises:
        OSError: a file that must be there cannot be read.
    """
    if missing := runtime.prepare_runtime(project):
        sys.stderr.write(f"calculators are not live in this build: {missing}\n")
    inputs = freshness.source_digest(project)
    known = freshness.recall_findings(project, inputs)
    if known is not None:
        return RenderResult(known, 0)
    from warpshelf.site import rendering  # brings in the schema of readings and all that draws

    findings, changed = rendering.render_project(project)
    freshness.remember_findings(project, inputs, findings)
    return RenderResult(findings, changed)


def build_site(project: Project, site_dir: Path | None = None, builder: str = "mkdocs") -> int:
    """Render and build, strictly; 0 where nothing at all was wrong.

    A snippet or reading with a fault loses its place on the page, and the rest is built as usual.

    Raises:
        ShelfError: the builder is not installed, or there is none of that name.
    """
    if builder not in BUILDERS:
        what, mend = f"is {builder!r}", f"write one of {', '.join(BUILDERS)}"
        raise ShelfError(Finding("--builder", None, what, mend))
    (_require_mkdocs if builder == "mkdocs" else _require_zensical)()
    rendered = update_fragments(project)
    for finding in rendered.findings:
        sys.stderr.write(f"{finding}\n")
    target = (site_dir or project.root / "site").resolve()
    inputs = freshness.builder_digest(builder, project)
    if freshness.is_built(project, target, inputs):
        print(f"{target.name}/ is as it was built: nothing that it shows has changed")
        return 1 if rendered.findings else 0
    made = _run_mkdocs if builder == "mkdocs" else _run_zensical
    if made(project, target):
        return 1
    freshness.remember_built(project, target, inputs)
    return 1 if rendered.findings else 0


def _require_mkdocs() -> None:
    """Raises ShelfError where MkDocs is not installed."""
    if find_spec("mkdocs") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("mkdocs", None, what, "run `make pages`, which installs it"))


def _run_mkdocs(project: Project, target: Path) -> int:
    """Build the rendered project into `target`, strictly; the status that MkDocs ends with.

    Of the theme, what no page in English asks for is left out: maps to its own sources, and how
    other languages are searched.
    """
    words = [sys.executable, "-c", MKDOCS, "build", "--strict", "--site-dir", str(target)]
    # What reads the reference asks Git three times a module where its source may lie on the web;
    # no page shows that, and where it finds no repository it asks once.
    around = {**child_environment(), "GIT_DIR": os.devnull}
    status = subprocess.run(words, cwd=project.root, env=around, check=False).returncode
    if status == 0:
        shutil.rmtree(target / "assets" / "javascripts" / "lunr", ignore_errors=True)
        for path in (target / "assets").rglob("*.map"):
            path.unlink()
    return status


def child_environment() -> dict[str, str]:
    """This process's environment, in which a child finds the tooling as well."""
    ours = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}


COPIED = ("docs", "snippets", "scripts", "build/fragments")
INCLUDE = re.compile(r'(?P<indent> *)--8<-- "(?P<name>[^":]+\.md)"')
FENCE = re.compile(r" *(?P<mark>`{3,}|~{3,})")
FROM_ROOT = re.compile(r"(?<=\]\()/(?!/)(?P<path>[^\s)#?]*)")
IN_HTML = re.compile(r'(?P<name>\s(?:href|src)=")(?P<link>[^"]+)"', re.IGNORECASE)
STANDS = re.compile(r"[a-z][a-z0-9+.-]*:|[/#?]", re.IGNORECASE)  # an address that is not relative


def _require_zensical() -> None:
    """Raises ShelfError where Zensical is not installed."""
    if find_spec("zensical") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("zensical", None, what, "run `make test`, which installs it"))


def _run_zensical(project: Project, target: Path) -> int:
    """Build the rendered project into `target`, strictly; the status that Zensical ends with.

    It writes below the folder of its settings alone, so the pages are copied from there.

    Raises:
        ShelfError: `target` holds sources.
    """
    for source in (project.docs, project.snippets):
        if source.is_relative_to(target) or target.is_relative_to(source):
            what = f"holds sources of the project, or lies in {project.relative_path(source)}/"
            raise ShelfError(Finding(str(target), None, what, "name another folder"))
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    (project.root / "build").mkdir(exist_ok=True)
    # A folder of its own, since two may build at once.
    with TemporaryDirectory(prefix="zensical-", dir=project.root / "build") as folder:
        copy = Path(folder)
        copy_project(project, copy)
        # A reference page is read below the working directory, so that is the copy.
        status = subprocess.run(words, cwd=copy, env=dict(os.environ), check=False).returncode
        if status == 0:
            target.mkdir(parents=True, exist_ok=True)
            for old in (old for old in target.iterdir() if not old.name.startswith(".")):
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            shutil.copytree(copy / "site", target, dirs_exist_ok=True)
    return status


def copy_project(project: Project, copy: Path) -> None:
    """Write the project as Zensical reads it into `copy`, which holds nothing yet."""
    for name in COPIED:
        if (project.root / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project.root / name, copy / name, ignore=skip)
    shutil.copy(project.root / "mkdocs.yml", copy)
    for path in (copy / "docs").rglob("*.md"):
        page = path.relative_to(copy / "docs").as_posix()
        text = path.read_text(encoding="utf-8")
        path.write_text(port_page(text, page, project.fragments), encoding="utf-8", newline="\n")


def port_page(text: str, page: str, fragments: Path) -> str:
    """The text of `page`, such as `kernels/softmax.md`, with its Markdown includes and links."""
    lines, fence = [], ""
    for line in _expand_includes(text, fragments):
        mark = FENCE.match(line)
        if mark and (not fence or mark["mark"] == fence):
            fence = "" if fence else mark["mark"]
        lines.append(line if fence else relink_line(line, page))
    return "".join(f"{line}\n" for line in lines)


def _expand_includes(text: str, fragments: Path) -> list[str]:
    """The lines with each rendered piece in the place of its include; it includes none itself."""
    lines = []
    for line in text.split("\n"):
        found = INCLUDE.fullmatch(line)
        path = fragments / found["name"] if found else None
        if found and path and path.is_file():
            inner = remove_marks(path.read_text(encoding="utf-8")).rstrip("\n").split("\n")
            lines += [found["indent"] + row if row else row for row in inner]
        else:
            lines.append(line)
    return lines[:-1] if lines[-1:] == [""] else lines


def relink_line(line: str, page: str) -> str:
    """The line with links that lead from the source of `page` to where they led before."""
    folder = f"/{posixpath.dirname(page)}"
    here = f"/{page_address(page)}"

    def relative_link(link: re.Match[str]) -> str:
        return posixpath.relpath(f"/{link['path']}", folder)

    def relink_html(found: re.Match[str]) -> str:
        link = html.unescape(found["link"])
        if STANDS.match(link):
            return found[0]
        path = re.split("[?#]", link)[0]
        way = posixpath.relpath(posixpath.join(here, path), folder)
        closed = "/" if posixpath.basename(path) in ("", ".", "..") else ""
        return f'{found["name"]}{html.escape(way + closed + link[len(path) :])}"'

    return IN_HTML.sub(relink_html, FROM_ROOT.sub(relative_link, line))
