"""The engine as WebAssembly: launches of its own tests leave the same there, byte for byte.

Takes 15 s, as it runs some tests again to capture their launches, and then the launches under Node.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from papergpu import build, cuda, pack
from papergpu.launch import Memory
from ptx_launch import load_kernel, write_kernel

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
SCRIPT = build.WEBASSEMBLY.with_name("papergpu.js")


def capture_launches(folder: Path, *files: str) -> None:
    """Write the launches of tests, and what they left, into a folder."""
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "packs", "-p",
               "no:cacheprovider", *(f"tests/papergpu/{name}.py" for name in files)]  # fmt: skip
    environment = os.environ | {"PACKS": str(folder), "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def replay_launches(node: str, folder: Path, **how: str) -> dict[str, Any]:
    module = folder / "engine.wasm"
    module.write_bytes(build.load_webassembly())
    command = [node, str(SUPPORT / "replay.mjs"), str(SCRIPT), str(module), str(folder)]
    done = subprocess.run(command, env=os.environ | how, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_module_is_compiled_from_the_sources_that_are_here() -> None:
    mend = "python -c 'from papergpu.build import *; compile_webassembly()', with emscripten"
    assert build.load_webassembly().endswith(build.digest_core().encode()), mend


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs")
    capture_launches(folder, "test_register_forms", "test_memory_forms")
    return folder


def test_launches_leave_the_same_in_webassembly(node: str, captured: Path) -> None:
    said = replay_launches(node, captured)
    assert said["many"] > 150
    assert said["other"] == []


def test_stepping_through_leaves_what_running_does(node: str, captured: Path) -> None:
    assert replay_launches(node, captured, STEP="1")["other"] == []


def test_a_changed_outcome_is_told(node: str, captured: Path, tmp_path: Path) -> None:
    one = next(path for path in sorted(captured.glob("*.json")) if "steps" in path.read_text())
    outcome = json.loads(one.read_text())
    outcome["memory"][0] = outcome["memory"][0][::-1]
    (tmp_path / one.name).write_text(json.dumps(outcome))
    (tmp_path / f"{one.stem}.pack").write_bytes(one.with_suffix(".pack").read_bytes())
    (other,) = replay_launches(node, tmp_path)["other"]
    assert other["differs"][0].startswith("bytes: ")


@pytest.mark.exhaustive("more of the same tests' launches")
def test_launches_with_races_and_copies_are_the_same(node: str, tmp_path: Path) -> None:
    capture_launches(tmp_path, "test_warp_forms", "test_faults", "test_bulk_copies", "test_mma")
    said = replay_launches(node, tmp_path)
    assert said["many"] > 500
    assert said["other"] == []


def test_a_pack_has_nothing_of_this_machine() -> None:
    """Two packs of one launch are equal, though its memory lies elsewhere."""
    kernel = load_kernel(write_kernel("st.global.u32 [%rd0], %r0;\nret;"))
    made = []
    for _ in range(2):
        held = np.zeros(256, np.uint8)
        held = held[-held.ctypes.data % 64 :][:64]
        memory = [Memory(held.ctypes.data, 64, "out")]
        given = [held.ctypes.data.to_bytes(8, "little")] * len(kernel.program.parameters)
        made.append(
            pack.pack_launch(
                kernel.program, kernel.memory, "", (1, 1, 1), (32, 1, 1), given, memory
            )
        )
    assert made[0] == made[1]
    length = int.from_bytes(made[0][4:8], "little")
    head = json.loads(made[0][8 : 8 + length])
    assert [move[0] for move in head["moves"]] == [-1] * len(kernel.program.parameters)


REVERSE = """
__global__ void reverse(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def test_launches_are_written_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reverse.cu").write_text(REVERSE)
    kernels = cuda.Source(tmp_path / "reverse.cu")
    x = np.arange(64, dtype=np.float32)
    with pack.write_packs(tmp_path / "packs"):
        for _ in range(2):
            kernels.launch("reverse", 1, 64, x)
        monkeypatch.setattr(pack, "LARGEST", 100)
        kernels.launch("reverse", 1, 64, x)
    kernels.launch("reverse", 1, 64, x)
    first, second = sorted((tmp_path / "packs").iterdir())
    assert (first.name[0], second.name[0]) == ("1", "2")
    held = [gzip.decompress(one.read_bytes()) for one in (first, second)]
    assert all(np.arange(64, dtype=np.float32)[::way].tobytes() in data
               for way, data in zip((1, -1), held, strict=True))  # fmt: skip
    assert REVERSE.encode() in held[0]


@pytest.mark.exhaustive("a process of its own")
def test_a_program_writes_its_launches(tmp_path: Path) -> None:
    script = tmp_path / "reverse.py"
    script.write_text(
        "import numpy as np\nfrom papergpu.cuda import Source\n"
        f"Source({REVERSE!r}).launch('reverse', 1, 64, np.zeros(64, np.float32))\n"
    )
    command = [sys.executable, "-m", "papergpu", "run", "--pack", "packs", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = (tmp_path / "packs").iterdir()
    assert re.fullmatch(r"1-\w*reverse\w*\.pack\.gz", made.name)
