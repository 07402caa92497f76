"""On a borrowed GPU machine there is little more than torch: the runner must do with that."""

from __future__ import annotations

import json
import subprocess
import sys

from conftest import ROOT, Trial, sound_snippet

# What the tooling uses elsewhere, and what the runner may not need. Some versions of typer bring
# pydantic along, so it is our own module that needs it which must stay out.
ABSENT = (
    "mkdocs", "material", "mkdocstrings", "pymdownx", "markdown", "rapidfuzz", "httpx",
    "watchdog", "pytest", "hypothesis", "playwright", "cuda", "warpshelf.readings.model",
)  # fmt: skip
RUN = f"""
import runpy, sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {ABSENT!r} or name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
build = {str(ROOT / "scripts" / "build.py")!r}
sys.argv = [build, *sys.argv[1:]]
runpy.run_path(build, run_name="__main__")
"""


def test_the_runner_needs_nothing_but_torch_and_the_command_line(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    words = ["run", "--out", "records.json", "--budget", "540"]
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=trial.root, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    [record] = json.loads((trial.root / "records.json").read_text())["records"]
    assert record["snippet"] == "sound"


def test_what_needs_more_says_what_to_install(trial: Trial) -> None:
    for words, absent in ((["check"], "rapidfuzz"), (["site"], "mkdocs")):
        text = RUN.replace(repr(ABSENT), repr((absent,)))
        run = subprocess.run(
            [sys.executable, "-c", text, *words], cwd=trial.root, capture_output=True, text=True
        )
        assert run.returncode == 1
        assert "Traceback" not in run.stderr
        assert run.stderr.startswith(f"{absent}: is not installed in this environment; run ")
