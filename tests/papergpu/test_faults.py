"""Every planted fault is found, and nothing is found in what is sound."""

from __future__ import annotations

import re
from functools import cache

import pytest
from conftest import exhaustive

pytest.importorskip("cuda.bindings.nvrtc")

from apart import outcomes
from conftest import ROOT
from faults import barriers, bounds, copies, global_memory, shared_memory
from papergpu.errors import Finding
from planted import RUNS, launcher

SOUND = {
    one.name: one
    for module in (bounds, shared_memory, global_memory, barriers, copies)
    for one in module.SOUND
}
FAULTS = [(one.name, fault) for one in SOUND.values() for fault in one.faults]
SCHEDULES = [(schedule, seed) for schedule in ("robin", "far", "random") for seed in (0, 1, 5)]
WRONG = "its result is wrong"
TARGETS = ("sm_90", "sm_80")
each_target = pytest.mark.parametrize("target", exhaustive(TARGETS, "all architectures"))
TRITON = "faulty_triton.py"


@cache
def found(name: str, fault: str) -> list[str]:
    """What is found of a fault, in each of a few runs until one says what it should."""
    sound = SOUND[name]
    planted = sound.faults[fault]
    said = []
    for schedule, seed in RUNS:
        try:
            sound.run(launcher(sound, sound.with_(planted), schedule, seed, 2_000_000))
        except Finding as finding:
            said.append(str(finding))
            if re.search(planted.says, said[-1]):
                break
        except AssertionError:
            said.append(WRONG)
    return said


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_passes_under_every_schedule(name: str) -> None:
    sound = SOUND[name]
    for schedule, seed in SCHEDULES:
        sound.run(launcher(sound, sound.source, schedule, seed))


@each_target
def test_sound_kernels_of_triton_pass(target: str) -> None:
    pytest.importorskip("triton")
    sound = {name: said for name, said in outcomes(TRITON, target).items() if name.endswith(" 0")}
    assert len(sound) >= 5 and not any(line for said in sound.values() for line in said), sound


@each_target
def test_faults_of_kernels_of_triton_are_found(target: str) -> None:
    pytest.importorskip("triton")
    faults = {
        name: said[-1] for name, said in outcomes(TRITON, target).items() if not name.endswith(" 0")
    }
    assert len(faults) >= 9
    missed = {name: line for name, line in faults.items() if line in ("", WRONG)}
    assert not missed


def test_planted_faults_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    missed = []
    for name, fault in FAULTS:
        said = found(name, fault)
        if not said or not re.search(SOUND[name].faults[fault].says, said[-1]):
            missed.append(f"{name}, {fault}: {said}")
    line = f"found {len(FAULTS) - len(missed)} of {len(FAULTS)} planted faults"
    with capsys.disabled():
        print("", line, *missed, sep="\n")
    assert len(FAULTS) >= 60 and not missed
    page = (ROOT / "docs" / "about" / "papergpu.md").read_text()
    assert f"| planted faults | {len(FAULTS)} in {len(SOUND)} sound CUDA kernels and " in page


@pytest.mark.parametrize("name", SOUND)
def test_findings_are_a_line_that_names_the_place_and_the_mend(name: str) -> None:
    for fault in SOUND[name].faults:
        for text in found(name, fault):
            if text != WRONG:
                where, _, what = text.partition("): ")
                assert (
                    re.search(r" at \S+:\d+, block \(.*\), thread \(", where) and "\n" not in text
                )
                assert ": " in what or "which has" in what or "in no " in what, text
