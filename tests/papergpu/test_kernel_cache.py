"""Decoded kernels kept on disk: read back as they were, and decoded anew where they are not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from papergpu import build, cuda, file_cache, kernel_cache
from papergpu.errors import Unsupported
from ptx_launch import launch_kernel, write_kernel

BODY = """
  .loc 1 7 3
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 20;
  .loc 1 9 1
  @%p0 add.u32 %r0, %r0, 5;
  mul.wide.u32 %rd1, %r0, 0;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.u32 %r2, [table+4];
  add.u32 %r0, %r0, %r2;
  st.global.u32 [%rd1], %r0;
  ret;
"""
PTX = '.file 1 "/somewhere/made.py"\n.global .align 4 .b32 table[2] = {3, 4};\n'


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_cache, "cache_dir", lambda: tmp_path)
    return tmp_path


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def run_kernel(kernel: kernel_cache.Kernel) -> list[int]:
    out = np.zeros(32, np.uint32)
    launch_kernel(kernel, out)
    return out.tolist()


WANTED = [at + (9 if at < 20 else 4) for at in range(32)]


def test_a_kept_kernel_is_the_one_that_was_decoded(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = write_kernel(BODY, module=PTX)
    first = kernel_cache.load_kernel(ptx, "k")
    assert len(list_files(cache_folder)) == 1

    def refuse_decode(*_: object) -> Sequence[object]:
        raise AssertionError("it is decoded again")

    monkeypatch.setattr(kernel_cache, "decode", refuse_decode)
    second = kernel_cache.load_kernel(ptx, "k")
    for one in fields(first.program):
        before, after = (getattr(kernel.program, one.name) for kernel in (first, second))
        assert type(before) is type(after), one.name
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype and before.tobytes() == after.tobytes(), one.name
        else:
            assert before == after, one.name
    assert run_kernel(first) == run_kernel(second) == WANTED
    assert first.memory is not second.memory
    assert {second.program.locate_instruction(at) for at in range(5)} >= {"made.py:7", "made.py:9"}


@pytest.mark.parametrize("spoil", ["cut", "altered", "emptied", "another", "no pickle"])
def test_a_broken_file_is_decoded_anew(
    cache_folder: Path, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = write_kernel(BODY, module=PTX)
    kernel_cache.load_kernel(ptx, "k")
    (path,) = list_files(cache_folder)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "altered": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "emptied": b"",
            "another": b"PK" + whole[2:],
            "no pickle": zlib.compress(zlib.decompress(whole)[:-9]),
        }[spoil]
    )
    assert run_kernel(kernel_cache.load_kernel(ptx, "k")) == WANTED
    assert len(list_files(cache_folder)) == 1
    monkeypatch.setattr(kernel_cache, "decode", None)
    assert run_kernel(kernel_cache.load_kernel(ptx, "k")) == WANTED, "it was not written again"


def test_what_decides_a_program_is_in_its_name(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_cache.load_kernel(write_kernel(BODY, module=PTX), "k")
    kernel_cache.load_kernel(write_kernel(BODY.replace("5;", "6;"), module=PTX), "k")
    monkeypatch.setattr(kernel_cache, "digest_sources", lambda: b"other")
    kernel_cache.load_kernel(write_kernel(BODY, module=PTX), "k")
    assert len(list_files(cache_folder)) == 3


def test_nothing_is_kept_of_what_is_refused_or_cannot_be_written(cache_folder: Path) -> None:
    with pytest.raises(Unsupported):
        kernel_cache.load_kernel(write_kernel("fence.proxy.unheard;"), "k")
    assert not list_files(cache_folder)
    (cache_folder / "decoded").write_text("a file, and no folder")
    assert run_kernel(kernel_cache.load_kernel(write_kernel(BODY, module=PTX), "k")) == WANTED


CUDA = r"""
__device__ int counter = 5;
__device__ int* where = &counter;
template <int N> __global__ void count(int* out) { *where += N; *out = counter; }
__global__ void takes(int* out) { int* p = (int*)malloc(4); *p = 7; *out = *p + counter; free(p); }
"""


def count_launches() -> list[int]:
    """What kernels of a source that is compiled twice leave in one variable."""
    source, out, seen = cuda.Source(CUDA, name="counted.cu"), np.zeros(1, np.int32), []
    for name in ("count<2>", "takes", "count<30>", "count<2>"):
        source.launch(name, 1, 1, out)
        seen.append(int(out[0]))
    return [*seen, int(source.globals("counter")[0])]


def test_cuda_is_read_and_decoded_once(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [7, 14, 37, 39, 39]
    assert count_launches() == wanted
    kept_then = {path.relative_to(cache_folder) for path in list_files(cache_folder)}
    assert max(path.stat().st_size for path in list_files(cache_folder)) < 100_000, (
        "a heap is no zeros on disk"
    )

    def refuse_read(*_: object) -> Sequence[object]:
        raise AssertionError("it is read or decoded again")

    for name in ("parse", "decode", "outline_module"):
        monkeypatch.setattr(kernel_cache, name, refuse_read)
    assert count_launches() == wanted
    assert {path.relative_to(cache_folder) for path in list_files(cache_folder)} == kept_then


def age_file(path: Path, seconds: int) -> None:
    os.utime(path, (path.stat().st_atime, time.time() - seconds))


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for number in range(5):
        file_cache.write_cached(tmp_path / f"{number}", bytes(100), 500)
        age_file(tmp_path / f"{number}", 100 - number)
    assert len(list_files(tmp_path)) == 5
    assert file_cache.read_cached(tmp_path / "0") == bytes(100)  # used now
    file_cache.write_cached(tmp_path / "fresh", bytes(150), 500)
    assert {path.name for path in list_files(tmp_path)} == {"0", "3", "4", "fresh"}
    file_cache.write_cached(tmp_path / "large", bytes(1000), 500)
    assert {path.name for path in list_files(tmp_path)} == {"large"}, "what was just written stays"


def test_kept_kernels_are_held_to_a_size(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All in one folder.
    monkeypatch.setattr(kernel_cache, "cache_key", lambda *given: f"aa{hash(given):x}")
    texts = [write_kernel(BODY.replace("5;", f"{more};"), module=PTX) for more in range(12)]
    for text in texts[:2]:
        kernel_cache.load_kernel(text, "k")
    size = max(path.stat().st_size for path in list_files(cache_folder))
    monkeypatch.setattr(kernel_cache, "LIMIT", 4 * size + size // 2)
    for text in texts:
        assert run_kernel(kernel_cache.load_kernel(text, "k"))
    assert len(list_files(cache_folder)) == 4


def test_a_folder_may_be_pruned_by_several_and_may_be_read_only(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = write_kernel(BODY, module=PTX)
    kernel_cache.load_kernel(ptx, "k")
    (path,) = list_files(cache_folder)

    def refuse_change(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "utime", refuse_change)
    monkeypatch.setattr(os, "unlink", refuse_change)
    assert run_kernel(kernel_cache.load_kernel(ptx, "k")) == WANTED
    file_cache.write_cached(path.with_name("more"), bytes(10), 0)
    assert len(list_files(cache_folder)) == 2
    monkeypatch.setattr(file_cache, "NamedTemporaryFile", refuse_change)
    file_cache.write_cached(path.with_name("another"), bytes(10), 0)
    assert (
        len(list_files(cache_folder)) == 2
        and file_cache.read_cached(path.with_name("another")) is None
    )


FAKE = """#!/bin/sh
echo "$*" >> "$0.calls"
while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done
"""


def test_the_first_build_says_what_it_does_and_a_second_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cxx = tmp_path / "g++"
    cxx.write_text(FAKE)
    cxx.chmod(0o755)
    monkeypatch.setenv("CXX", str(cxx))
    monkeypatch.setenv("PAPERGPU_CACHE", str(tmp_path / "cache"))
    library = build.compile_engine()
    first, *quarters, last = capfd.readouterr().err.splitlines()
    assert re.search(r"compiling the engine .*: \d+ files on \d+ cores?, about \d+ s$", first)
    assert len(quarters) == 3 and all("% compiled" in one for one in quarters)
    assert "is compiled, in" in last
    calls = Path(f"{cxx}.calls").read_text().splitlines()
    sources = [one.partition(" -c ")[2].split()[0] for one in calls if " -c " in one]
    assert {Path(one).name for one in sources} == {one.name for one in build.SOURCES.glob("*.cpp")}
    assert Path(sources[0]).stem in build.SECONDS  # the longest first
    assert build.compile_engine() == library and capfd.readouterr().err == ""
    assert len(Path(f"{cxx}.calls").read_text().splitlines()) == len(calls)
    # One source that has changed is compiled without a word.
    next(library.parent.glob("loads-*.o")).unlink()
    library.unlink()
    assert build.compile_engine() == library and capfd.readouterr().err == ""
    [again, linked] = Path(f"{cxx}.calls").read_text().splitlines()[len(calls) :]
    assert "loads.cpp" in again and "-shared" in linked


def test_the_best_library_of_a_wheel_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUNDLED", tmp_path)
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    level3, level4 = (" ".join(one) for one in reversed(build.LEVELS["x86_64"].values()))
    has = {"flags: sse2": None, f"flags: {level3}": "x86-64-v3.so",
           f"flags: {level3} {level4}": "x86-64-v4.so"}  # fmt: skip
    for features, _ in has.items():
        monkeypatch.setattr(build, "_read_features", lambda features=features: features)
        assert build.find_bundled() is None
    for name in ("x86-64-v3.so", "x86-64-v4.so"):
        (tmp_path / name).touch()
    for features, name in has.items():
        monkeypatch.setattr(build, "_read_features", lambda features=features: features)
        assert build.find_bundled() == (tmp_path / name if name else None)


@pytest.mark.exhaustive("a wheel, for which the engine is compiled")
def test_a_wheel_runs_with_numpy_alone(tmp_path: Path) -> None:
    shutil.copytree(build.SOURCES.parent, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    made, target = tmp_path / "wheels", tmp_path / "installed"
    quickly = {**os.environ, "PAPERGPU_CXXFLAGS": "-O0", "PAPERGPU_CACHE": str(tmp_path / "built"),
               "PAPERGPU_LEVELS": [*build.LEVELS[build.platform.machine()]][-1]}  # fmt: skip
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", made, tmp_path / "source"],
        check=True, env=quickly, capture_output=True,
    )  # fmt: skip
    [wheel] = made.iterdir()
    assert re.fullmatch(r"papergpu-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    text = (
        "import sys, numpy, papergpu; from papergpu.cuda import Source; x = numpy.ones(8, 'u4')\n"
        f"Source({write_kernel('mov.u32 %r1, %laneid; st.global.u32 [%rd0], %r1;')!r})"
        ".launch('k', 1, 1, x); print(x[0], papergpu.__file__)\n"
        "print([one for one in sys.modules if one.split('.')[0] in ('cuda', 'torch', 'triton')])"
    )
    there = {**os.environ, "PYTHONPATH": str(target), "PAPERGPU_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", text], env=there, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == f"0 {target}/papergpu/__init__.py\n[]\n" and not done.stderr
    assert not (tmp_path / "cache" / "core").exists()  # nothing was compiled


@pytest.mark.exhaustive("the engine under sanitizers, for which it is compiled")
def test_the_engine_is_sound_under_sanitizers() -> None:
    """Planted faults, random races, copies and products, each ended early or run to its end."""
    if not (compiler := shutil.which("g++")):
        pytest.skip("the sanitizers of g++ are asked for")

    def find(name: str) -> str:
        asked = [compiler, f"-print-file-name={name}"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    # Python was not compiled for that of addresses, so it comes first.
    there = {
        **os.environ,
        "PAPERGPU_CXXFLAGS": "-O0 -fsanitize=address,undefined -fno-sanitize-recover=all",
        "LD_PRELOAD": f"{find('libasan.so')} {find('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
    }  # fmt: skip
    names = ("faults", "tcgen05", "bulk_copies", "wgmma")
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in names]
    apart = "not smallest_kernel and not kind and not triton"  # processes of their own, of the same
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0",
               "-k", apart, *files]  # fmt: skip
    done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
