"""Public kernels that stand beside ours are read with their places; faults are said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.readings.rivals import load, read

GOOD = """\
- name: A library
  repository: owner/name
  commit: 0123456789012345678901234567890123456789
  file: src/ops/softmax.py
  kernel: _softmax
  beside: {variant: one pass, kernel: softmax_one_pass}
  what: bfloat16, rows of 4096
  signature: {x: "*bf16", n: i32}
  divisible: [x, n]
  constants: {BLOCK: 4096, FAST: true, SCALE: 0.5, KIND: tl.bfloat16}
  absent: [bias]
  options: {num_warps: 8}
"""


CUDA = """\
- name: A library
  repository: owner/name
  commit: 0123456789012345678901234567890123456789
  file: src/ops/softmax.cuh
  kernel: ns::softmax<ns::Load<float>, 4, true>
  beside: {variant: warps, kernel: "softmax_held<0, float, 4>"}
  what: float32, rows of 4096
  flags: [-DWIDE=1, -Isrc/include]
  shared: 1024
"""


OWN = """\
- name: A language
  package: a-language
  file: in_a_language.py
  kernel: softmax
  beside: {variant: one pass, kernel: softmax_one_pass}
  what: bfloat16, rows of 4096
"""


def said(text: str) -> list[str]:
    found, findings = read(text.encode(), "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    return [str(finding) for finding in findings]


def test_a_good_entry_is_read() -> None:
    (one,), findings = read(GOOD.encode(), "r.yml")
    assert findings == []
    assert one.url == f"https://github.com/owner/name/blob/{one.commit}/src/ops/softmax.py"
    assert one.targets == [80, 90, 100]
    assert one.build()["constants"] == {"BLOCK": 4096, "FAST": True, "SCALE": 0.5,
                                        "KIND": "tl.bfloat16"}  # fmt: skip


def test_the_digest_is_of_what_decides_the_code() -> None:
    (one,), _ = read(GOOD.encode(), "r.yml")
    for old, new, same in (
        ("A library", "Another", True),
        ("rows of 4096", "long rows", True),
        ("one pass", "online", True),
        ("BLOCK: 4096", "BLOCK: 8192", False),
        ("num_warps: 8", "num_warps: 4", False),
        ("divisible: [x, n]", "divisible: [x]", False),
        ("0123456789", "1123456789", False),
    ):
        ((other,), _) = read(GOOD.replace(old, new, 1).encode(), "r.yml")
        assert (other.digest == one.digest) is same, old


def test_one_in_cuda_is_read_and_its_flags_decide_the_code() -> None:
    (one,), findings = read(CUDA.encode(), "r.yml")
    assert findings == [] and one.is_cuda
    assert one.build()["flags"] == ["-DWIDE=1", "-Isrc/include"] and one.build()["shared"] == 1024
    for old, new in (("WIDE=1", "WIDE=0"), ("1024", "2048"), ("4, true", "8, true")):
        ((other,), _) = read(CUDA.replace(old, new, 1).encode(), "r.yml")
        assert other.digest != one.digest, old


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("-DWIDE=1", "-lineinfo", 8, "write -DNAME=VALUE, or -Isrc"),
        ("-Isrc/include", "-I../etc", 8, "write -DNAME=VALUE, or -Isrc"),
        ("shared: 1024", "shared: -1", 9, "shared"),
        ("shared: 1024", "options: {num_warps: 8}", 1, "options is for Triton, and src/ops/soft"),
        ("softmax.cuh", "softmax.py", 1, "flags is for CUDA C++, and src/ops/softmax.py is Tr"),
        ("softmax.cuh", "softmax.txt", 4, "a file of Python or CUDA C++ inside the repository"),
        ("ns::Load<float>", "f(x); g", 5, "kernel"),
    ],
)
def test_a_fault_in_one_of_cuda_is_said_too(old: str, new: str, line: int, says: str) -> None:
    assert old in CUDA
    found = said(CUDA.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


def test_a_triton_kernel_has_a_signature_and_a_name() -> None:
    text = GOOD.replace('  signature: {x: "*bf16", n: i32}\n  divisible: [x, n]\n', "")
    assert "signature is missing" in said(text)[0]
    assert "no name in Python" in said(GOOD.replace("_softmax\n", "softmax<4>\n", 1))[0]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("owner/name", "owner", 2, "repository"),
        ("0123456789012", "main", 3, "commit"),
        ("src/ops/softmax.py", "/etc/softmax.py", 4, "inside the repository"),
        ("src/ops/softmax.py", "src/../../softmax.py", 4, "inside the repository"),
        ("_softmax\n", "a.b\n", 5, "kernel"),
        ("{variant: one pass, kernel: softmax_one_pass}", "one pass", 6, "beside"),
        ("divisible: [x, n]", "divisible: [y]", 1, "y is divisible, but not in signature"),
        ("absent: [bias]", "absent: [n]", 1, "n is given twice"),
        ("  what: bfloat16, rows of 4096\n", "", 1, "what"),
        ("  options", "  option", 12, "unknown"),
    ],
)
def test_a_fault_is_said_on_its_line(old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    found = said(GOOD.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


def test_one_kernel_stands_once() -> None:
    (told,) = said(GOOD + GOOD.replace("A library", "The same"))
    assert told.startswith("r.yml:13: names _softmax again (first on line 1)")


def test_one_in_a_language_of_its_own_is_told_apart_by_its_text(tmp_path: Path) -> None:
    (tmp_path / "rivals.yml").write_text(OWN)
    path = tmp_path / "in_a_language.py"
    digests = set()
    for text in ("def softmax(): ...\n", "def softmax(): 3\n"):
        path.write_text(text)
        (one,), findings = load(tmp_path, "here")
        assert findings == [] and one.source == text
        assert one.build() == {"package": "a-language", "file": path.name, "kernel": "softmax",
                               "targets": [80, 90, 100]}  # fmt: skip
        digests.add(one.digest)
    assert len(digests) == 2
    path.write_bytes(b"\xff")
    assert "cannot be read (it is not UTF-8)" in str(load(tmp_path, "here")[1][0])
    path.unlink()
    none, (finding,) = load(tmp_path, "here")
    assert none == []
    assert str(finding).startswith("here/rivals.yml:1: file is 'in_a_language.py', which cannot")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("  package: a-language\n", "", 1, "repository is missing"),
        ("a-language", "a language", 2, "package"),
        ("in_a_language.py", "there/a.py", 1, "name a file of Python beside this one"),
        ("in_a_language.py", "a.cu", 1, "name a file of Python beside this one"),
        ("  what", "  repository: owner/name\n  what", 1, "repository is not for one with a pac"),
        ("  what", "  options: {num_warps: 8}\n  what", 1, "options is not for one with a packag"),
        ("  what", "  shared: 8\n  what", 1, "shared is not for one with a package"),
    ],
)
def test_a_fault_in_one_of_a_language_is_said(old: str, new: str, line: int, says: str) -> None:
    assert old in OWN
    found = said(OWN.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


@given(st.text(max_size=200) | st.builds(lambda text: GOOD + text, st.text(max_size=60)))
def test_no_text_breaks_the_reader(text: str) -> None:
    said(text)
