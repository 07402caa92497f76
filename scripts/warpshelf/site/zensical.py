"""The same pages for Zensical: a copy of the project in which links read as Zensical reads them.

MkDocs passes a link in HTML on as it is and resolves Markdown's links from the root of docs/, which
is how lists and pieces are rendered. Zensical takes every relative link, one in HTML too, to start
at the page's source, and passes links from the root on. So the copy has its includes written out
and both kinds of link turned into what leads to the same place.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.places import address
from warpshelf.core.project import Project

COPIED = ("docs", "snippets", "scripts", "build/fragments")
INCLUDE = re.compile(r'(?P<indent> *)--8<-- "(?P<name>[^":]+\.md)"')
FENCE = re.compile(r" *(?P<mark>`{3,}|~{3,})")
FROM_ROOT = re.compile(r"(?<=\]\()/(?!/)(?P<path>[^\s)#?]*)")
IN_HTML = re.compile(r'(?P<name>\s(?:href|src)=")(?P<link>[^"]+)"', re.IGNORECASE)
STANDS = re.compile(r"[a-z][a-z0-9+.-]*:|[/#?]", re.IGNORECASE)  # an address that is not relative


def needed() -> None:
    """Raises ShelfError where Zensical is not installed."""
    if find_spec("zensical") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("zensical", None, what, "run `make test`, which installs it"))


def build(project: Project, target: Path) -> int:
    """Build the rendered project into `target`, strictly; the status that Zensical ends with.

    It writes below the folder of its settings alone, so the pages are copied from there.

    Raises:
        ShelfError: `target` holds sources.
    """
    for source in (project.docs, project.snippets):
        if source.is_relative_to(target) or target.is_relative_to(source):
            what = f"holds sources of the project, or lies in {project.relative(source)}/"
            raise ShelfError(Finding(str(target), None, what, "name another folder"))
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    (project.root / "build").mkdir(exist_ok=True)
    # A folder of its own, since two may build at once.
    with TemporaryDirectory(prefix="zensical-", dir=project.root / "build") as folder:
        copy = Path(folder)
        prepare(project, copy)
        # A reference page is read below the working directory, so that is the copy.
        status = subprocess.run(words, cwd=copy, env=dict(os.environ), check=False).returncode
        if status == 0:
            target.mkdir(parents=True, exist_ok=True)
            for old in (old for old in target.iterdir() if not old.name.startswith(".")):
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            shutil.copytree(copy / "site", target, dirs_exist_ok=True)
    return status


def prepare(project: Project, copy: Path) -> None:
    """Write the project as Zensical reads it into `copy`, which holds nothing yet."""
    for name in COPIED:
        if (project.root / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project.root / name, copy / name, ignore=skip)
    shutil.copy(project.root / "mkdocs.yml", copy)
    for path in (copy / "docs").rglob("*.md"):
        page = path.relative_to(copy / "docs").as_posix()
        text = path.read_text(encoding="utf-8")
        path.write_text(ported(text, page, project.fragments), encoding="utf-8", newline="\n")


def ported(text: str, page: str, fragments: Path) -> str:
    """The text of `page`, such as `kernels/softmax.md`, with its Markdown includes and links."""
    lines, fence = [], ""
    for line in _expanded(text, fragments):
        mark = FENCE.match(line)
        if mark and (not fence or mark["mark"] == fence):
            fence = "" if fence else mark["mark"]
        lines.append(line if fence else relinked(line, page))
    return "".join(f"{line}\n" for line in lines)


def _expanded(text: str, fragments: Path) -> list[str]:
    """The lines with each rendered piece in the place of its include; it includes none itself."""
    lines = []
    for line in text.split("\n"):
        found = INCLUDE.fullmatch(line)
        path = fragments / found["name"] if found else None
        if found and path and path.is_file():
            inner = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
            lines += [found["indent"] + row if row else row for row in inner]
        else:
            lines.append(line)
    return lines[:-1] if lines[-1:] == [""] else lines


def relinked(line: str, page: str) -> str:
    """The line with links that lead from the source of `page` to where they led before."""
    folder = f"/{posixpath.dirname(page)}"
    here = f"/{address(page)}"

    def from_root(link: re.Match[str]) -> str:
        return posixpath.relpath(f"/{link['path']}", folder)

    def in_html(found: re.Match[str]) -> str:
        link = html.unescape(found["link"])
        if STANDS.match(link):
            return found[0]
        path = re.split("[?#]", link)[0]
        way = posixpath.relpath(posixpath.join(here, path), folder)
        closed = "/" if posixpath.basename(path) in ("", ".", "..") else ""
        return f'{found["name"]}{html.escape(way + closed + link[len(path) :])}"'

    return IN_HTML.sub(in_html, FROM_ROOT.sub(from_root, line))
