"""Kernels of Triton, compiled for each target and executed on tensors of the CPU.
Takes 12 s, as Triton compiles each kernel.
"""

from __future__ import annotations

import json
from pathlib import Path

import papergpu
import pytest
from marks import exhaustive
from papergpu import build
from ptx_launch import HERE, catch_error, list_cases, read_outcomes, run_python
from ptx_launch import SCRIPTS as SOURCES

# Scripts of cases, and the targets that each is run for; the first of them stands for all.
SCRIPTS = {"front_cases.py": ["sm_90", "sm_80"], "descriptor_cases.py": ["sm_90", "sm_100"]}


def expand_targets(script: str, *targets: str) -> list[object]:
    """The cases of a script, for each target."""
    return [(script, case, target) for target in targets for case in list_cases(script)]


FIRST = [one for script, (first, _) in SCRIPTS.items() for one in expand_targets(script, first)]
LATER = [one for script, (_, *more) in SCRIPTS.items() for one in expand_targets(script, *more)]


@pytest.mark.parametrize(
    ("script", "case", "target"),
    exhaustive([*FIRST, *LATER], "all architectures", light=len(FIRST)),
)
def test_kernel(script: str, case: str, target: str) -> None:
    wrong = read_outcomes(script, target)[case]
    assert not wrong, wrong


@pytest.mark.exhaustive("all architectures: what Triton has for sm_100 alone")
@pytest.mark.parametrize("case", list_cases("blackwell_cases.py"))
def test_kernel_for_blackwell(case: str) -> None:
    wrong = read_outcomes("blackwell_cases.py")[case]
    assert not wrong, wrong


SCRIPT = """
import sys
import torch
from front_kernels import unmasked

x = torch.arange(100)
out = torch.empty(100, dtype=torch.int64)
for block in sys.argv[1].split(","):
    unmasked[(1,)](x, out, 100, BLOCK=int(block), num_warps=1)
    print(__name__, sys.argv[1:], torch.equal(x[:32], out[:32]), torch.cuda.get_device_capability())
"""


@pytest.mark.exhaustive("a process that imports torch, as the next test has")
def test_a_script_is_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = ["-m", "papergpu", "run", "--target", "sm_80", "--schedule", "random", "--seed", "5"]
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "1"}
    # The first launch is sound, the second has a fault.
    done = run_python(*run, str(script), "32,128", "--more", **caches)
    assert done.returncode == 1
    assert done.stdout.strip() == "__main__ ['32,128', '--more'] True (8, 0)"
    line, summary = done.stderr.splitlines()
    text = (HERE / "front_kernels.py").read_text(encoding="utf-8")
    at = text[: text.index("the finding must name this line")].count("\n") + 1
    assert f"front_kernels.py:{at}: error: reads 16 bytes at byte 800 " in line
    told = "x_ptr, which has 800: mask it, or mend the offset [unmasked, block (0, 0, 0), thread ("
    assert told in line and summary.endswith("M warp-instructions, 1 finding")


ON_CUDA = """
import torch
from front_kernels import add

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
x = torch.randn(100, device=device)
y = torch.ones(100, requires_grad=True).cuda()
n = torch.nn.Linear(100, 100).to(device).weight.numel()
started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
    started.record()
    before, same = x.cpu(), x.to(device)
    add[(1,)](x, y, x, 100, BLOCK=128)
    ended.record()
torch.cuda.synchronize()
assert x.is_cuda and (x + y).device == y.device and x.device.type == "cuda" and n == 10_000
assert same is x and torch.equal(x.cpu(), before + 1) and started.elapsed_time(ended) > 0
y.sum().backward()
with torch.device("cuda"):
    print(torch.zeros(2).get_device(), torch.empty(1, device="cuda:0", pin_memory=True).is_cpu)
"""


def test_a_script_that_asks_for_cuda_is_run_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ON_CUDA)
    done = run_python("-m", "papergpu", "run", str(script))
    assert (done.stdout.strip(), done.returncode) == ("0 False", 0), done.stderr


RACY = """
import torch
from front_kernels import doubled_in_place

x, total = torch.arange(32.0), torch.zeros(128)
for _ in range(2):
    doubled_in_place[(1,)](x, total, N=32, SUM=True, num_warps=4)
print(x[1].item())
"""


@pytest.mark.exhaustive("scripts once more")
def test_a_script_goes_on_behind_a_race(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RACY)
    found = tmp_path / "found.json"
    done = run_python("-m", "papergpu", "run", "--report", str(found), str(script))
    assert (done.stdout, done.returncode) == ("4.0\n", 1)
    [said, summary] = done.stderr.splitlines()  # once for both launches
    assert "error: reads byte 0 of x_ptr" in said and "them [doubled_in_place, block" in said
    assert summary.startswith("papergpu: 2 launches")
    [one] = json.loads(found.read_text())["findings"]
    assert one["kernel"] == "doubled_in_place" and one["file"].endswith("front_kernels.py")
    done = run_python("-m", "papergpu", "run", "--fatal", str(script))
    assert (done.stdout, done.returncode) == ("", 1)
    done = run_python("-m", "papergpu", "run", "--kernel", "add", str(script))
    assert (done.stdout, done.returncode, done.stderr) == ("4.0\n", 0, "")


MARKED = """
import pytest, torch
from front_kernels import add, unmasked

@pytest.fixture
def x():
    return torch.ones(100, device="cuda")

@pytest.mark.papergpu("sm_80", seed=3)
def test_right(x):
    add[(1,)](x, x, x, 100, BLOCK=128)
    assert x.is_cuda and x.sum() == 200 and torch.cuda.get_device_capability() == (8, 0)

@pytest.mark.papergpu
def test_wrong(x):
    unmasked[(1,)](x, x, 100, BLOCK=128)

def test_unmarked():
    assert not torch.ones(1).is_cuda
"""


@pytest.mark.exhaustive("a script once more, by pytest")
def test_a_marked_test_runs_its_kernels_here(tmp_path: Path) -> None:
    script = tmp_path / "test_kernels.py"
    script.write_text(MARKED)
    plain = ["--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    done = run_python("-m", "pytest", "-q", *plain, "-p", "papergpu.pytest_plugin", str(script))
    assert "1 failed, 2 passed" in done.stdout and "mask it, or mend the offset" in done.stdout


COMPILED = """
import torch
import papergpu

@torch.compile
def before(x):
    return x + 1

papergpu.activate("sm_80")
names = []
papergpu.on_launch(lambda launched: names.append(launched.name))

@torch.compile
def both(x, y):
    return torch.nn.functional.gelu(x @ y).sum(1) + torch.sin(x[:, 0])

x, y = torch.randn(64, 32), torch.randn(32, 48)
found = both(x, y)
torch.testing.assert_close(found, torch.nn.functional.gelu(x @ y).sum(1) + torch.sin(x[:, 0]))
print(len(names), all(name.startswith("triton_") for name in names))
papergpu.deactivate()
assert torch._inductor.config.cpu_backend == "cpp"
"""


@pytest.mark.exhaustive("torch's compiler, which takes seconds to load")
def test_what_torch_compiles_is_executed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(COMPILED)
    done = run_python(str(script), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))
    assert (done.stdout, done.returncode) == ("1 True\n", 0), done.stderr


@pytest.mark.exhaustive("a script once more, counted")
def test_a_script_is_counted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    run = ["-m", "papergpu", "run", "--profile", "--no-checks", str(script), "32"]
    done = run_python(*run, **caches)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__ ['32'] True")  # the counts go elsewhere
    head, *lines = done.stderr.splitlines()
    assert head.split()[:5] == ["instr", "lanes", "requests", "sectors", "/ideal"]
    assert head.endswith("front_kernels.py")
    (load,) = [one for one in lines if one.endswith("# the finding must name this line")]
    # A warp loads 32 numbers of 8 bytes: 8 sectors, and there could not be fewer.
    assert "  8    1.00  " in load
    assert lines[-1].endswith("total")


def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    gone = run_python("-m", "papergpu", "run", str(tmp_path / "gone.py"))
    assert gone.returncode == 2 and "gone.py: no such script" in gone.stderr
    old = run_python("-m", "papergpu", "run", "--target", "sm_70", str(tmp_path / "gone.py"))
    assert old.returncode == 2 and "'sm_70' is not a supported target" in old.stderr


# Processes apart, in which the kernels above are run.


def test_the_package_is_never_the_folder_of_its_tests() -> None:
    own = (SOURCES / "papergpu" / "__init__.py").resolve()
    assert Path(papergpu.__file__ or "").resolve() == own
    done = run_python("-c", "import papergpu; print(papergpu.__file__)")
    assert Path(done.stdout.strip()).resolve() == own, done.stderr
    assert not (HERE / "__init__.py").exists()


APART = """
import json, os, sys
from ptx_launch import catch_error, list_cases

def case_right(word): pass
def case_wrong(word): raise ValueError(word)
def helper(): pass

if sys.argv[1] == "fail":
    sys.exit("it cannot go on")
print("something else")
print(json.dumps({name: catch_error(globals()[name], sys.argv[1])
                  for name in list_cases(__file__)}))
"""


def test_what_is_wrong_comes_back_by_case(tmp_path: Path) -> None:
    path = tmp_path / "some_cases.py"
    path.write_text(APART)
    assert list_cases(str(path)) == ["case_right", "case_wrong"]
    found = read_outcomes(str(path), "mend it")
    assert found["case_right"] == "" and found["case_wrong"].endswith("ValueError: mend it\n")
    with pytest.raises(AssertionError, match="it cannot go on"):
        read_outcomes(str(path), "fail")


def test_an_interrupt_is_no_outcome() -> None:
    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catch_error(raise_interrupt)


LINKED = """
import torch, triton, triton.language as tl
from papergpu import file_cache, triton as paper
from triton.language.extra import libdevice

@triton.jit
def turned(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, libdevice.sin(tl.load(x + at)) + libdevice.tanh(tl.load(x + at)))

triton.knobs.compilation.always_compile = True
made, linking, x = [], paper._wrap_linker, torch.rand(64)
for linking in (lambda link: link, linking, linking):
    paper._wrap_linker = linking
    turned.device_caches.clear()
    with paper.active("sm_90"):
        y = torch.empty(64)
        made.append(turned[1,](x, y, 64).asm["ptx"])
    assert torch.allclose(y, x.sin() + x.tanh(), atol=1e-6)
assert made[0] == made[1] == made[2]
(kept,) = (file_cache.cache_dir() / "libraries").iterdir()
text = kept.read_text()
assert "@__nv_sinf" in text and "@__nv_tanhf" in text and "@turned" not in text
"""


@pytest.mark.exhaustive("compiles with and without what is kept")
def test_of_a_library_only_what_is_asked_for_is_kept_and_links_the_same(tmp_path: Path) -> None:
    script = tmp_path / "linked.py"
    script.write_text(LINKED)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "core").symlink_to(build.compile_engine().parent)
    caches = {"TRITON_CACHE_DIR": str(tmp_path), "PAPERGPU_CACHE": str(tmp_path / "kept")}
    done = run_python(str(script), **caches)
    assert done.returncode == 0, done.stderr
