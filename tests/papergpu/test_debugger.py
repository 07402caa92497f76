"""A launch step by step on this side of the browser: the Stepper, and commands at a terminal."""

from __future__ import annotations

import ctypes
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papergpu import Finding, Settings, cuda, session
from papergpu.debugger import Stepper, Terminal, debug_launches
from papergpu.launch import Memory, aligned_zeros
from ptx_launch import load_kernel, write_kernel

SUM = """
__global__ void total(const float* x, float* out) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int w = 32; w; w /= 2) {
        if (threadIdx.x < w) held[threadIdx.x] += held[threadIdx.x + w];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = held[0];
}
"""
X = np.arange(64, dtype=np.float32)
Do = Callable[[Stepper], None]


def step_through(do: Do, source: str | Path = SUM, **options: object) -> np.ndarray:
    """What the launch leaves that `do` steps through first."""
    out = np.zeros(2, np.float32)

    def look(kernel, grid, block, parameters, touched, **more):
        more["settings"] = Settings(profile=True, **options)
        stepper = Stepper(kernel, grid, block, parameters, touched, **more)
        try:
            do(stepper)
        finally:
            stepper.close()
        assert not out.any()  # all is as it was

    with session.before_launch(look):
        cuda.Source(source).launch("total", 2, 64, X, out)
    return out


def end(stepper: Stepper) -> Iterator[float]:
    """Go on to the end, and give what stands in the result then."""
    assert stepper.step(1 << 40) == "ended"
    memory = [one for one in stepper.memory if one.size == 8]
    yield from np.ctypeslib.as_array((ctypes.c_float * 2).from_address(memory[0].at))


@pytest.mark.parametrize("schedule", ["robin", "far", "random"])
def test_stepping_to_the_end_leaves_what_a_launch_does(schedule: str) -> None:
    def do(stepper: Stepper) -> None:
        assert list(end(stepper)) == [2016, 2016]
        assert all(one.done for one in stepper.warps())

    assert list(step_through(do, schedule=schedule)) == [2016, 2016]


def test_back_is_as_it_was() -> None:
    def do(stepper: Stepper) -> None:
        seen = []
        for _ in range(61):
            seen.append([(one.pc, one.lanes, one.steps) for one in stepper.warps()])
            stepper.step()
        at = 61
        for steps in (1, 7, 20):
            stepper.back(steps)
            at -= steps
            assert [(one.pc, one.lanes, one.steps) for one in stepper.warps()] == seen[at]
        stepper.back(1000)
        assert stepper.given.steps == 0
        assert list(end(stepper)) == [2016, 2016]

    step_through(do)


def test_one_warp_goes_until_it_waits_for_others() -> None:
    def do(stepper: Stepper) -> None:
        assert stepper.step(1000, only=1) == "waits"
        here = stepper.warps()
        assert [one.steps > 0 for one in here] == [False, True, False, False]
        assert (here[1].block, here[1].number) == (0, 1)
        values = {name: value for name, kind, value in stepper.registers(here[1]) if kind == "f32"}
        assert any((value == X[32:]).all() for value in values.values())

    step_through(do)


def test_a_finding_ends_it() -> None:
    def do(stepper: Stepper) -> None:
        assert stepper.step(1 << 40) == "found"
        assert "race" in str(stepper.finding().kind)

    with pytest.raises(Finding):
        step_through(do, SUM.replace("    __syncthreads();\n    for", "    for"), fatal=True)


def say(*lines: str, source: str | Path = SUM) -> str:
    """What the terminal answers to these lines."""
    said = io.StringIO()

    def do(stepper: Stepper) -> None:
        terminal, before = Terminal(stepper), sys.stdout
        sys.stdout = terminal.stdout = said
        try:
            for line in lines:
                terminal.onecmd(line)
        finally:
            sys.stdout = before

    step_through(do, source)
    return said.getvalue()


def test_a_breakpoint_stops_before_its_line(tmp_path: Path) -> None:
    (tmp_path / "sum.cu").write_text(SUM)
    lines = ("break 7", "c", "list", "w", "warp 0 0", "c", "next", "access", "warp all", "b 7", "c",
             "memory", "m shared 0 2")  # fmt: skip
    said = say(*lines, source=tmp_path / "sum.cu")
    assert re.search(r"at a breakpoint: block 0, warp \d, lanes 0xffffffff: sum.cu:7  if ", said)
    assert "=>    7                 if (threadIdx.x < w)" in said
    assert len(re.findall(r"block   [01] warp  [01]  lanes ", said)) == 4
    assert "1 wavefronts of shared memory, at best 1; 4 bytes a lane\nbanks: 0 1 2" in said
    assert "shared: 256 bytes\n2016  1024\n" in said
    assert "ended\n" in said


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("frobnicate", "no command 'frobnicate': help lists them"),
        ("step x", "'x' is no number"),
        ("break 400", "no instruction comes from line 400"),
        ("warp 7 0", "no warp 0 of block 7 is there now: see warps"),
        ("memory y", "no memory y: `memory` lists it"),
        ("list", "source.cu is not here"),
        ("access", "the last instruction accessed no memory of threads in common"),
    ],
)
def test_what_cannot_be_is_one_line(line: str, answer: str) -> None:
    assert say(line) == answer + "\n"


WORDS = st.sampled_from([
    "step", "next", "continue", "back", "break", "warp", "list", "registers", "memory", "access",
    "all", "shared", "0", "1", "7", "-3", "f16", "b64", "sum.cu:7", ":", "help", "?", "!", "\0",
])  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=12))
def test_no_line_ends_in_a_traceback(lines: list[str]) -> None:
    say(*lines)


@pytest.mark.exhaustive("a process of its own")
def test_a_terminal_stops_at_the_launches_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import numpy as np\nfrom papergpu.cuda import Source\n"
        f"source = Source({SUM!r}, name='sum.cu')\nout = np.zeros(2, np.float32)\n"
        "for _ in range(3):\n"
        "    source.launch('total', 2, 64, np.ones(64, np.float32), out)\n    print(out[0])\n"
    )
    command = [sys.executable, "-m", "papergpu", "debug", str(script)]
    lines = "step 3\nfinish\nstep\nquit\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("total, grid (2, 1, 1)") == 2
    assert done.stdout.count("64.0\n") == 3


def test_tensors_of_one_name_are_told_apart() -> None:
    kernel = load_kernel(write_kernel("st.global.u32 [%rd0], %r0;\nret;"))
    held = [aligned_zeros(64), aligned_zeros(64)]
    memory = [Memory(one.ctypes.data, 64, "a tensor") for one in held]
    given = [held[1].ctypes.data.to_bytes(8, "little")] * len(kernel.program.parameters)
    stepper = Stepper(kernel, (1, 1, 1), (32, 1, 1), given, memory)
    assert [one.name for one in stepper.memory if one.size].count("a tensor") == 2
    stepper.close()


def test_other_kernels_run_whole() -> None:
    with debug_launches("another"):
        assert list(step_through(lambda stepper: None)) == [2016, 2016]
