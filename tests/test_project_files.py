"""The files at the root: what they promise each other, and what the documents promise of them."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import budgets
import conftest
import pictures
import pytest
import reading_project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pictures import DOCS, PICTURES, Picture

from warpshelf.cli import commands
from warpshelf.contract import architectures

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sysconfig.get_path("scripts"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/about/*.md"))]


def read_file(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# Dependencies.


def read_pins() -> list[Requirement]:
    lines = [line.partition("#")[0].strip() for line in read_file("constraints.txt").splitlines()]
    return [Requirement(line) for line in lines if line]


@pytest.mark.parametrize("python", ["3.11.2", "3.11.7", "3.14.0"])
def test_each_dependency_has_one_pin_that_fits(python: str) -> None:
    """On any Python that is supported, a pin for each dependency, within what it may be."""
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    wanted += [requirement for extra in EXTRAS.values() for requirement in extra]
    for requirement in wanted:
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        found = [
            pin
            for pin in read_pins()
            if canonicalize_name(pin.name) == name
            and (pin.marker is None or pin.marker.evaluate(environment))
        ]
        assert len(found) == 1, f"{name} has {len(found)} pins in constraints.txt"
        [exact] = found[0].specifier
        assert exact.operator == "=="
        assert requirement.specifier.contains(exact.version), f"{requirement} against {exact}"


def test_no_extra_has_what_another_has() -> None:
    """So `make site` installs no more than pages and runs need, and a message names one extra."""
    found: dict[str, str] = {}
    for extra, wanted in EXTRAS.items():
        for name in {canonicalize_name(requirement.name) for requirement in wanted}:
            assert name not in found, f"{name} is in {found[name]} and in {extra}"
            found[name] = extra
    assert {module: found[module] for module in architectures.EXTRAS} == architectures.EXTRAS


def test_each_module_that_a_snippet_needs_is_in_an_extra() -> None:
    named = (re.search(r'"modules": (\[.*?\])', path.read_text(encoding="utf-8"))
             for path in ROOT.glob("snippets/*/cases.py"))  # fmt: skip
    wanted = {module for found in named if found for module in json.loads(found[1])}
    assert wanted == set(architectures.EXTRAS)


# mkdocs.yml: strict about what is missing.


@pytest.mark.parametrize(
    "faults",
    [
        {'--8<-- "softmax/none.md"': "'softmax/none.md' could not be found"},
        {
            "[A page](nowhere.md)": "'nowhere.md'",
            "[A part](index.md#nowhere)": "'index.md#nowhere'",
            "[A file](/records/none.json)": "'/records/none.json'",
            "![A picture](none.svg)": "'none.svg'",
        },
    ],
    ids=["include", "links"],
)
def test_what_a_page_lacks_fails_the_build(tmp_path: Path, faults: dict[str, str]) -> None:
    """With the site's own settings, without our command line."""
    reading_project.write_shelf(tmp_path, readings=0, topics=0)
    (tmp_path / "docs" / "everything.md").unlink()
    text = "\n\n".join(["# Home", *faults])
    (tmp_path / "docs" / "index.md").write_text(f"{text}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert [said for said in faults.values() if said not in done.stderr] == [], done.stderr


# The Makefile, with stand-ins for Python and the command line.

needs_make = pytest.mark.skipif(
    os.name == "nt" or shutil.which("make") is None, reason="needs make and POSIX shell scripts"
)


@dataclass
class Checkout:
    """A folder with our Makefile, and programs in it that only note how they were called."""

    folder: Path

    def run_make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        outside = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        return subprocess.run(
            ["make", f"PYTHON={self.folder / 'python'}", *arguments],
            cwd=self.folder,
            env=outside,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def write_program(self, name: str, body: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'#!/bin/sh\necho "{path.name} $*" >> "{self.folder}/calls"\n{body}\n', encoding="utf-8"
        )
        path.chmod(0o755)

    def take_calls(self) -> list[str]:
        """The calls since the last time this was asked."""
        log = self.folder / "calls"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def makefile_checkout(tmp_path: Path) -> Checkout:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    made = Checkout(tmp_path)
    made.write_program("python")
    made.write_program(".venv/bin/python")
    made.write_program(".venv/bin/shelf")
    return made


def list_installs(calls: list[str]) -> list[str]:
    return [re.sub(r".*--editable ", "", call) for call in calls if "pip install" in call]


@needs_make
def test_make_installs_once(makefile_checkout: Checkout) -> None:
    assert makefile_checkout.run_make("pages").returncode == 0
    calls = makefile_checkout.take_calls()
    assert list_installs(calls) == [".[pages]"]
    [pip, bytecode] = [call for call in calls if "pip install" in call or "compileall" in call]
    assert "--no-compile" in pip and "-j 0 .venv" in bytecode
    assert makefile_checkout.run_make("pages").returncode == 0
    assert makefile_checkout.take_calls() == ["shelf site"]


@needs_make
def test_make_installs_again_when_the_recipe_changes(makefile_checkout: Checkout) -> None:
    makefile_checkout.run_make("pages")
    makefile_checkout.take_calls()
    for name in ("pyproject.toml", "constraints.txt"):
        os.utime(makefile_checkout.folder / name, (4_000_000_000, 4_000_000_000))
        makefile_checkout.run_make("pages")
        assert list_installs(makefile_checkout.take_calls()) == [".[pages]"], name
        os.utime(makefile_checkout.folder / name, (1_000_000_000, 1_000_000_000))


@needs_make
def test_make_pages_leaves_a_whole_environment_whole(makefile_checkout: Checkout) -> None:
    """Whatever `make test` asks for, which is every extra, serves for all others."""
    makefile_checkout.run_make("site")
    assert list_installs(makefile_checkout.take_calls()) == [".[pages,run]"]
    makefile_checkout.run_make("pages")
    assert makefile_checkout.take_calls() == ["shelf site"]
    makefile_checkout.run_make("test")
    [whole] = list_installs(makefile_checkout.take_calls())
    assert set(whole.strip(".[]").split(",")) == set(EXTRAS)
    for stamp in makefile_checkout.folder.glob(".venv/site.stamp"):
        stamp.unlink()
    for target in ("pages", "site"):
        makefile_checkout.run_make(target)
        assert list_installs(makefile_checkout.take_calls()) == [], target


@needs_make
def test_make_site_builds_although_a_snippet_fails(makefile_checkout: Checkout) -> None:
    makefile_checkout.write_program(".venv/bin/shelf", '[ "$1" != run ]')
    done = makefile_checkout.run_make("site")
    assert done.returncode != 0
    assert [call for call in makefile_checkout.take_calls() if call.startswith("shelf")] == [
        "shelf run",
        "shelf site",
    ]


@needs_make
def test_make_site_fails_if_the_build_does(makefile_checkout: Checkout) -> None:
    makefile_checkout.write_program(".venv/bin/shelf", '[ "$1" != site ]')
    assert makefile_checkout.run_make("site").returncode != 0


@needs_make
def test_make_names_a_python_that_is_too_old(makefile_checkout: Checkout) -> None:
    makefile_checkout.write_program("python", "exit 1")
    done = makefile_checkout.run_make("pages")
    assert done.returncode != 0
    assert "Python 3.11" in done.stderr
    assert "make PYTHON=" in done.stderr
    assert list_installs(makefile_checkout.take_calls()) == []


def list_targets() -> set[str]:
    [line] = re.findall(r"^\.PHONY: (.*)$", read_file("Makefile"), re.MULTILINE)
    return set(line.split())


@needs_make
def test_make_help_lists_every_target(makefile_checkout: Checkout) -> None:
    listed = set(re.findall(r"^make ([a-z-]+) ", makefile_checkout.run_make().stdout, re.MULTILINE))
    assert listed == list_targets() - {"help"}


# What the documentation tells people to type.


def find_typed(pattern: str) -> set[str]:
    """Matches in the code blocks and code spans of the documents."""
    code = re.compile(r"```\w*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
    parts = [
        "".join(match)
        for path in DOCUMENTS
        for match in code.findall(path.read_text(encoding="utf-8"))
    ]
    return {found for part in parts for found in re.findall(pattern, part)}


def test_documented_make_targets_exist() -> None:
    documented = find_typed(r"\bmake ([a-z]+(?:-[a-z]+)?)\b")
    assert documented >= {"site", "test", "pages", "serve"}
    assert documented - list_targets() == set()


def test_documented_commands_and_options_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `shelf ...` that a document shows is a command, and has the options shown with it."""
    lines = find_typed(r"(?:\bshelf|scripts/build\.py) (\w[^\n#|`]*)")
    assert lines
    shown: dict[tuple[str, ...], set[str]] = {}
    for line in lines:
        words = line.split()
        command = tuple(words[:2] if words[0] == "links" else words[:1])
        options = {word for word in words if word.startswith("--")}
        shown.setdefault(command, set()).update(options)
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    for command, options in sorted(shown.items()):
        status = commands.main([*command, "--help"])
        said = capsys.readouterr()
        assert status == 0, f"shelf {' '.join(command)}:\n{said.out}{said.err}"
        assert {option for option in options if option not in said.out} == set(), command


@pytest.mark.parametrize("path", DOCUMENTS[:2], ids=lambda path: path.name)
def test_files_that_a_document_links_exist(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_documented_files_exist() -> None:
    shown = find_typed(r"\b(?:tests|scripts|snippets)/[\w/]+(?:\.\w+)+")
    made = {path for path in shown if "softmax_online" in path}
    assert shown > made
    assert [path for path in sorted(shown - made) if not (ROOT / path).exists()] == []


POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def test_documented_tolerances_are_those_of_the_verifier() -> None:
    from warpshelf.worker import accuracy

    page = read_file("docs/about/numbers/verify.md")
    rows = re.findall(r"^\| (.+?) \| (?:(\d+) × )?10([⁻⁰-⁹¹²³]+) \|$", page, re.M)
    documented = {
        "tf32" if "TF32" in name else name: float(f"{factor or 1}e{power.translate(POWERS)}")
        for name, factor, power in rows
    }
    assert documented == accuracy.TOLERANCES
    assert accuracy.LIBRARY_MARGIN == 2
    assert "at most twice the library's" in " ".join(page.split())


# The two suites.


@needs_make
def test_each_test_is_in_one_of_two_suites(makefile_checkout: Checkout) -> None:
    suites = {}
    for target in ("test", "test-rest"):
        makefile_checkout.run_make(target)
        calls = [call for call in makefile_checkout.take_calls() if "-m pytest" in call]
        suites[target] = [call.rpartition(" -m ")[2] for call in calls]
    assert suites == {
        "test": ["not exhaustive and not alone", "not exhaustive and alone"],
        "test-rest": ["exhaustive and not alone", "exhaustive and alone"],
    }
    ran = read_file(".ci/run").splitlines()
    assert ran[-2:] == ["make test", "make test-rest"]


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/core/test_units.py::test_a_unit[a/b::c]", "tests/core/test_units.py"),
        ("tests/snippets/test_snippets.py::test_every_case[softmax-sm_80]", "softmax"),
        ("tests/snippets/test_mutants.py::test_each[zero]", "zero"),
        ("tests/snippets/test_snippets.py::test_a_case", "tests/snippets/test_snippets.py"),
    ],
)
def test_tests_of_a_file_or_a_snippet_stay_together(test: str, scope: str) -> None:
    assert conftest.scope_of(test) == scope


def test_a_test_that_waits_says_why() -> None:
    def make_item(mark: pytest.MarkDecorator) -> pytest.Item:
        made = SimpleNamespace(nodeid="tests/test_it.py::test", iter_markers=lambda _: [mark.mark])
        return cast("pytest.Item", made)

    conftest.refuse_what_waits_without_reason([make_item(pytest.mark.exhaustive("all mutants"))])
    with pytest.raises(pytest.UsageError, match="tests/test_it.py::test: exhaustive gives no reas"):
        conftest.refuse_what_waits_without_reason([make_item(pytest.mark.exhaustive)])


def test_what_tests_share_has_names_of_its_own() -> None:
    """Each is imported by its bare name, whichever folder of the path it lies in."""
    folders = tomllib.loads(read_file("pyproject.toml"))["tool"]["pytest"]["ini_options"][
        "pythonpath"
    ]
    names = [path.stem for folder in folders for path in sorted((ROOT / folder).glob("*.py"))]
    assert sorted(names) == sorted(set(names))


# The rest.


def test_style() -> None:
    """ruff finds nothing anywhere in the repository."""
    done = subprocess.run(
        [PROGRAMS / "ruff", "check", "--output-format", "concise", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs bash")
def test_ci_script_parses_and_can_be_executed() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


# Budgets: what the repository may weigh and take.


def test_each_budget_is_listed_with_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert budgets.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(budgets.BUDGETS)
    limits = [one.limit for one in budgets.BUDGETS.values() if one.limit]
    found = [float(line.rpartition("at most ")[2].split()[0]) for line in lines if "most" in line]
    assert found == limits


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks version control")
@pytest.mark.parametrize("name", ["files", "generated", "record"])
def test_what_is_tracked_is_within_its_budget(name: str) -> None:
    here = budgets.Clone.__new__(budgets.Clone)
    here.root = ROOT
    one = budgets.BUDGETS[name]
    assert one.measure(here) <= one.limit, one.what


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [(5.0, 0, "all hold"), (5.1, 1, "OVER"), (None, 1, "FAILS  `make it` fails")],
)
def test_a_budget_that_breaks_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    found: float | None, status: int, said: str,
) -> None:  # fmt: skip
    def measure_or_break(clone: object) -> float:
        if found is None:
            raise budgets.Broken("`make it` fails")
        return found

    table = {"one": budgets.Budget("seconds of it", 5, "s", measure_or_break)}
    monkeypatch.setattr(budgets, "BUDGETS", table)
    monkeypatch.setattr(budgets, "Clone", lambda folder: None)
    monkeypatch.setattr(budgets, "reference", lambda: 0.5)
    assert budgets.main([]) == status
    shown = capsys.readouterr().out
    assert said in shown
    assert found is None or f"{found / 0.5:.1f} times" in shown


def test_a_command_that_fails_has_the_end_of_its_output_told(tmp_path: Path) -> None:
    here = budgets.Clone.__new__(budgets.Clone)
    here.folder = here.root = tmp_path
    here.log = tmp_path / "log"
    assert here.run("sh", "-c", 'test "$HOME" = "$PWD/home" && ! test "$PAPERGPU_CACHE"') > 0
    with pytest.raises(budgets.Broken, match="echo why; exit 3` fails:\n    why"):
        here.run("sh", "-c", "echo why; exit 3")


def test_the_line_that_budgets_add_is_one_of_the_code() -> None:
    """To each snippet: else its verification would be one of nothing."""
    for cases in ROOT.glob("snippets/*/cases.py"):
        path = next(cases.parent.glob("*.cu"), cases.parent / f"{cases.parent.name}.py")
        before = path.read_text(encoding="utf-8")
        after = budgets.edit(before, path.suffix)
        assert after != before, path
        if path.suffix == ".py":
            assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)), path


# Rooms of the tests, side by side.


@pytest.mark.parametrize(
    ("given", "pays"),
    [
        ({"args": ["tests/site"]}, True),
        ({"args": ["tests/web", "tests/site"]}, True),
        ({"args": ["tests/web"]}, False),  # nothing in it says that it takes long
        ({"args": ["tests/site/test_serve.py"]}, False),
        ({"args": ["tests/site"], "keyword": "home"}, False),
        ({"args": ["tests/site"], "usepdb": True}, False),
        ({"args": ["tests/site"], "capture": "no"}, False),
        ({"args": ["tests/site"], "numprocesses": 0}, False),
    ],
)
def test_a_room_that_takes_long_is_run_on_all_cores(
    given: dict[str, object], pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "count_cores", lambda: 2)
    usual = {"numprocesses": None, "dist": "no", "collectonly": False, "keyword": "",
             "usepdb": False, "trace": False, "capture": "fd"}  # fmt: skip
    folders = [str(ROOT / name) for name in given["args"]]
    config = SimpleNamespace(
        option=SimpleNamespace(**usual | {**given, "args": None}), args=folders
    )
    assert conftest.pays_side_by_side(config) is pays


# The PNG pictures of the site, which are drawn from what is there now.

each_picture = pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.png)


@each_picture
def test_picture_is_current(picture: Picture) -> None:
    png = (DOCS / picture.png).read_bytes()
    again = "draw it again: python tests/pictures.py"
    assert pictures.read_digest(png) == picture.digest, again
    found = {kind: body for kind, body in pictures.read_chunks(png)}
    assert struct.unpack_from(">II", found[b"IHDR"]) == (picture.width, picture.height)
    assert len(png) < 100_000


@each_picture
def test_digest_follows_the_source(picture: Picture, tmp_path, monkeypatch) -> None:
    before = picture.digest
    path = tmp_path / picture.svg
    path.parent.mkdir(parents=True)
    path.write_bytes((DOCS / picture.svg).read_bytes() + b"<!-- -->")
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    assert picture.digest != before


def test_a_damaged_picture_is_none() -> None:
    png = (DOCS / PICTURES[1].png).read_bytes()
    # the first counts
    assert pictures.read_digest(pictures.with_note(png, "x")) == pictures.read_digest(png)
    with pytest.raises(ValueError, match="no PNG"):
        list(pictures.read_chunks(b"GIF89a"))
    spot = png.index(b"IDAT") + 8
    with pytest.raises(ValueError, match="damaged"):
        list(pictures.read_chunks(png[:spot] + bytes([png[spot] ^ 1]) + png[spot + 1 :]))
