"""Public kernels that stand beside ours are read with their places; faults are said in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.readings.rivals import read

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


@given(st.text(max_size=200) | st.builds(lambda text: GOOD + text, st.text(max_size=60)))
def test_no_text_breaks_the_reader(text: str) -> None:
    said(text)
