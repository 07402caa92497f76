"""Builds the site: renders what changed, then runs MkDocs or Zensical in strict mode.

Fragments are rendered for MkDocs, which leaves links in HTML alone and resolves Markdown links from
the root of docs/. Zensical resolves every relative link from the page's source and leaves links
from the root alone. So it builds a copy of the project in which includes are expanded and both
kinds of link are rewritten to the same target.
"""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.markup import remove_marks
from warpshelf.core.places import page_address
from warpshelf.core.project import Project
from warpshelf.live import runtime
from warpshelf.site import finishing, freshness

BUILDERS = {"mkdocs": "make pages", "zensical": "make test"}  # and what installs each


class RenderResult(NamedTuple):
    """What a rendering found wrong, and how many files it changed."""

    findings: list[Finding]
    changed: int


def update_fragments(project: Project) -> RenderResult:
    """Bring every fragment up to date and return what is wrong; skipped if nothing changed."""
    if missing := runtime.prepare_runtime(project):
        sys.stderr.write(f"calculators are not live in this build: {missing}\n")
    inputs = freshness.source_digest(project)
    known = freshness.read_note(project, "rendered", inputs)
    if known and known["outputs"] == freshness.output_digest(project):
        return RenderResult([Finding(**finding) for finding in known["findings"]], 0)
    from warpshelf.site import rendering  # brings in the schema of readings and all that draws

    findings, changed = rendering.render_project(project)
    outputs = freshness.output_digest(project)
    freshness.write_note(project, "rendered", inputs, outputs=outputs, findings=findings)
    return RenderResult(findings, changed)


def report_fragments(project: Project) -> list[Finding]:
    """Bring every fragment up to date and write what is wrong to standard error."""
    findings = update_fragments(project).findings
    sys.stderr.write("".join(f"{finding}\n" for finding in findings))
    return findings


def build_site(project: Project, site_dir: Path | None = None, builder: str = "mkdocs") -> int:
    """Render and build in strict mode; 0 if nothing was wrong.

    A snippet or reading with a fault is left off its page; the rest is built as usual.
    """
    if builder not in BUILDERS:
        what, mend = f"is {builder!r}", f"write one of {', '.join(BUILDERS)}"
        raise ShelfError(Finding("--builder", None, what, mend))
    require_builder(builder)
    findings = report_fragments(project)
    target = (site_dir or project.root / "site").resolve()
    inputs = freshness.builder_digest(builder, project)
    known = freshness.read_note(project, "built", inputs)
    if known and (known["site"], known["outputs"]) == (str(target), freshness.hash_folder(target)):
        print(f"{target.name}/ is up to date: nothing that it shows has changed")
    else:
        if (run_mkdocs if builder == "mkdocs" else _run_zensical)(project, target):
            return 1
        outputs = freshness.hash_folder(target)
        freshness.write_note(project, "built", inputs, site=str(target), outputs=outputs)
    return 1 if findings else 0


def require_builder(name: str) -> None:
    """Raise ShelfError if a builder is not installed."""
    if find_spec(name) is None:
        mend = f"run `{BUILDERS[name]}`, which installs it"
        raise ShelfError(Finding(name, None, "is not installed in this environment", mend))


def run_mkdocs(project: Project, target: Path) -> int:
    """Build the rendered project into `target`; returns MkDocs' exit status."""
    words = [sys.executable, "-m", "warpshelf.site.parallel"]
    words += ["build", "--strict", "--site-dir", str(target)]
    # mkdocstrings asks Git three times a module for a link to its source. No page shows one, and
    # without a repository it asks once.
    around = {**child_environment(), "GIT_DIR": os.devnull}
    status = subprocess.run(words, cwd=project.root, env=around, check=False).returncode
    if status == 0:  # pages in English load no search for other languages, and no source maps
        shutil.rmtree(target / "assets" / "javascripts" / "lunr", ignore_errors=True)
        for path in (target / "assets").rglob("*.map"):
            path.unlink()
        index = target / "search" / "search_index.json"
        index.write_text(shorten_index(index.read_text("utf-8")), encoding="utf-8")
    return status


OPENING = 200  # characters of a section that the search keeps as they are
RARE = 6  # sections that have a word, up to which it finds each of them
WORD = re.compile(r"[A-Za-z_][\w-]{2,}")
CODE = re.compile(r"<pre.*?</pre>", re.DOTALL)
UNSAID = re.compile(r"<[^>]+>|\\\(.*?\\\)|\\\[.*?\\\]", re.DOTALL)  # tags and formulas


def shorten_index(text: str) -> str:
    """Material's index of the search, a fifth as long: each section by its opening and rare words.

    A reader's phone fetches it before the first result.
    """
    index = json.loads(text)
    sections = index["docs"]
    plain = (UNSAID.sub(" ", CODE.sub(" ", one["text"])) for one in sections)
    said = [" ".join(text.split()) for text in plain]
    known = Counter(word for words in map(_index_words, said) for word in words)
    for one, words in zip(sections, said, strict=True):
        opening, rest = words[:OPENING], words[OPENING:]
        more = _index_words(rest) - _index_words(f"{one['title']} {opening}")
        rare = sorted(word for word in more if known[word] <= RARE)
        one["text"] = f"{opening} … {' '.join(rare)}" if rare else opening
        one.pop("tags", None)
    return json.dumps(index, ensure_ascii=False, separators=(",", ":"))


def _index_words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def child_environment() -> dict[str, str]:
    """This process's environment, with the tooling on PYTHONPATH."""
    ours = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}


def _run_zensical(project: Project, target: Path) -> int:
    """Build a copy of the project with Zensical, which writes below the folder of its settings."""
    for source in (project.docs, project.snippets):
        if source.is_relative_to(target) or target.is_relative_to(source):
            what = f"holds sources of the project, or lies in {project.relative_path(source)}/"
            raise ShelfError(Finding(str(target), None, what, "name another folder"))
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    (project.root / "build").mkdir(exist_ok=True)
    # A folder of its own, since two may build at once.
    with TemporaryDirectory(prefix="zensical-", dir=project.root / "build") as folder:
        copy = Path(folder)
        for name in ("docs", "snippets", "scripts", "build/fragments"):
            if (project.root / name).is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(project.root / name, copy / name, ignore=skip)
        shutil.copy(project.root / "mkdocs.yml", copy)
        for path in (copy / "docs").rglob("*.md"):
            page = path.relative_to(copy / "docs").as_posix()
            text = port_page(path.read_text(encoding="utf-8"), page, project.fragments)
            path.write_text(text, encoding="utf-8", newline="\n")
        # mkdocstrings looks for modules below the working directory, so run in the copy.
        status = subprocess.run(words, cwd=copy, check=False).returncode
        if status == 0:
            target.mkdir(parents=True, exist_ok=True)
            for old in (old for old in target.iterdir() if not old.name.startswith(".")):
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            finishing.finish_site(copy / "site")
            shutil.copytree(copy / "site", target, dirs_exist_ok=True)
    return status


INCLUDE = re.compile(r'(?P<indent> *)--8<-- "(?P<name>[^":]+\.md)"')
FENCE = re.compile(r" *(?P<mark>`{3,}|~{3,})")
FROM_ROOT = re.compile(r"(?<=\]\()/(?!/)(?P<path>[^\s)#?]*)")
IN_HTML = re.compile(r'(?P<name>\s(?:href|src)=")(?P<link>[^"]+)"', re.IGNORECASE)
STANDS = re.compile(r"[a-z][a-z0-9+.-]*:|[/#?]", re.IGNORECASE)  # an address that is not relative


def port_page(text: str, page: str, fragments: Path) -> str:
    """The text of `page`, such as `kernels/softmax.md`, rewritten for Zensical.

    Includes are replaced by their fragments; links keep their targets.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        found = INCLUDE.fullmatch(line)
        path = fragments / found["name"] if found else None
        if found and path and path.is_file():
            inner = remove_marks(path.read_text(encoding="utf-8")).rstrip("\n").split("\n")
            lines += [found["indent"] + row if row else row for row in inner]
        else:
            lines.append(line)
    lines = lines[:-1] if lines[-1] == "" else lines
    fence = ""
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if mark and (not fence or mark["mark"] == fence):
            fence = "" if fence else mark["mark"]
        lines[number] = line if fence else relink_line(line, page)
    return "".join(f"{line}\n" for line in lines)


def relink_line(line: str, page: str) -> str:
    """The line with its links relative to the source of `page`; their targets stay the same."""
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
