"""Figures that others state are read with their places, and each fault is said in one line.

Public kernels that stand beside ours are read with their places; faults are said in one line.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.readings import published
from warpshelf.readings.published import (
    FILE,
    PublishedFigure,
    load_published,
    read_figures,
    read_rivals,
)

GOOD = """\
# looked up
- figure: 3.01
  unit: TB/s
  what: A softmax
  device: Imaginary G9 80GB
  setting: float32, 16k rows
  reading: online-softmax
  place: Table 2
  url: https://example.org/table
  case: {m: 4096, dtype: float32, causal: false, out: [a, 1]}
  variant: one pass
- figure: 85
  unit: "%"
  what: The same
  device: Imaginary G9
  setting: half
  reading: online-softmax
  place: Abstract
  case: {m: 4096}
  share_of: torch
"""
ENTRY = {
    "figure": "2.5",
    "unit": "TB/s",
    "what": "A copy",
    "device": "G9",
    "setting": "float32",
    "reading": "a-paper",
    "place": "Table 1",
}


def format_entry(**changed: str | None) -> bytes:
    pairs = {key: value for key, value in {**ENTRY, **changed}.items() if value is not None}
    return ("- " + "\n  ".join(f"{k}: {v}" for k, v in pairs.items())).encode()


def list_findings(data: bytes) -> list[str]:
    figures, findings = read_figures(data, "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    return [str(finding) for finding in findings]


def test_a_good_file_is_read_with_the_lines_of_its_entries() -> None:
    figures, findings = read_figures(GOOD.encode(), "r.yml")
    assert findings == []
    first, second = figures
    assert (first.figure, first.unit, first.line, first.line_of("case")) == (3.01, "TB/s", 2, 10)
    assert first.case == {"m": 4096, "dtype": "float32", "causal": False, "out": ["a", 1]}
    assert (second.figure, second.share_of, second.variant) == (85, "torch", None)


@pytest.mark.parametrize(
    ("changed", "what", "mend"),
    [
        ({"figure": "0"}, "figure is 0.0", "write a number above 0"),
        ({"figure": "-2.5"}, "figure is -2.5", "write a number above 0"),
        ({"figure": '"2.5"'}, "figure is '2.5'", "write a number"),
        ({"figure": "2.5e3"}, "figure is '2.5e3'", "write a number, as in 12 or 0.5"),
        ({"figure": "2.5e+3"}, "figure: YAML reads 2.5e+3", "write it out, as in 12 or 0.5"),
        ({"figure": ".nan"}, "figure: YAML reads .nan", "write it out, as in 12 or 0.5"),
        ({"figure": "true"}, "figure is 'True'", "write a number"),
        ({"figure": None}, "'A copy' has no figure", "add `figure: …`"),
        ({"unit": "TB"}, "unit is 'TB'", "write one of PFLOP/s"),
        ({"what": None}, "'the entry' has no what", "add `what: …`"),
        ({"device": "80"}, "device is the number 80, not text", 'write "80", in quotes'),
        ({"setting": '" "'}, "setting is empty", "write it, or remove the key"),
        ({"reading": "A paper"}, "reading is 'A paper'", "write it as in online-softmax"),
        ({"url": "http:/x"}, "url", ""),
        ({"place": "x" * 301}, "place has 301 characters", "shorten it"),
        ({"case": "3"}, "case is '3'", "write keys and values"),
        ({"case": "{}"}, "case is empty", "remove the key"),
        ({"case": "{m: {n: 2}}"}, "case has no plain value at 'm'", "write it as in cases.py"),
        ({"variant": "float4"}, "variant is given without a case", "name the case"),
        ({"share_of": "torch"}, "share_of is given without a case", "name the case"),
        ({"unit": '"%"', "case": "{m: 1}"}, "a share has no share_of", "name the peer"),
        ({"case": "{m: 1}", "share_of": "torch"}, "share_of is given for a figure in TB/s", ""),
        ({"unit": '"×"', "case": "{m: 1}"}, "case is given for a figure in ×", "remove it"),
        ({"pace": "3"}, "the key 'pace' is unknown", "write place"),
    ],
)
def test_each_fault_is_one_line(changed: dict[str, str | None], what: str, mend: str) -> None:
    assert list_findings(format_entry()) == []
    [line, *more] = list_findings(format_entry(**changed))
    assert line.startswith("r.yml:") and what in line and mend in line
    assert more == [] or changed == {"what": None}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "r.yml: is empty; add an entry, or delete the file"),
        (b"figure: 3", "r.yml:1: is not a list; start each entry with `- figure: "),
        (b"- 3", "has no keys; write it as `- figure: "),
        (b"- &a {figure: 2}\n- *a", "the anchor &a is set"),
        (b"- figure: 1\n  figure: 2", "is written twice"),
        (b"\xff", "is not UTF-8"),
        (b"- {a: {b: {c: {d: 1}}}}", "is nested over 4 deep"),
    ],
)
def test_what_is_no_list_of_entries_is_said(data: bytes, what: str) -> None:
    assert what in list_findings(data)[0]


def test_a_figure_that_stands_twice_is_said() -> None:
    twice = format_entry() + b"\n" + format_entry(figure="9", place="Table 9")
    [line] = list_findings(twice)
    assert line.startswith("r.yml:8: states 'A copy' again (first on line 1); remove one")
    assert list_findings(format_entry() + b"\n" + format_entry(setting="float64")) == []


def test_a_file_that_is_not_there_states_nothing(tmp_path: Path) -> None:
    assert load_published(tmp_path, "snippets/x") == (published.Published(), [])
    (tmp_path / FILE).mkdir()
    _, [finding] = load_published(tmp_path, "snippets/x")
    assert str(finding).startswith("snippets/x/published.yml: cannot be read")


CALLS = "# It has no GPU.\nx = empty(4)\n\nfor n in 1, 2:\n    f(x, n)\n"


def write_whole(folder: Path) -> str:
    """A file with all three keys, in another order than usual; its text."""
    calls = "".join(f"  {line}".rstrip(" ") for line in CALLS.splitlines(keepends=True))
    text = f"calls: |\n{calls}\nreported:\n{GOOD}\n# Whose.\nrivals:\n{RIVAL}"
    (folder / FILE).write_text(text)
    return text


def test_a_file_has_figures_kernels_and_calls_with_their_lines(tmp_path: Path) -> None:
    lines = write_whole(tmp_path).splitlines()
    found, findings = load_published(tmp_path, "snippets/x")
    assert findings == [] and found.calls == CALLS
    assert [lines[one.line - 1] for one in found.reported] == ["- figure: 3.01", "- figure: 85"]
    assert [lines[one.line - 1] for one in found.rivals] == ["- name: A library"]
    assert lines[found.rivals[0].line_of("options") - 1] == "  options: {num_warps: 8}"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("reported:", "reportd:", 8, "the key 'reportd' is unknown; "),
        ("# Whose.", "calls: |\n  f()", 30, "'calls' is written twice (first on line 1); remove"),
        ("# Whose.\n", "other:\n", 30, "the key 'other' is unknown; write `rivals:`, `reported:`"),
        ("calls: |", "calls: [f,\n  # x\n]\nrivals: # none", 1, "calls is not a block of text;"),
        ("calls: |", "calls: 2026-13-01\nrivals: # none", 1, "calls is not a block of text;"),
        ("calls: |", "calls: |\nrivals: # none", 1, "calls is not a block of text;"),
        ("calls: |", "calls: # none\nrivals: # none", 1, "calls is empty; fill it, or remove the"),
        ("calls: |", "--- x\ncalls: |", 1, "does not start with a key; start it with `rivals:`"),
        ("calls: |", "\ufeffcalls: |", 1, "does not start with a key; start it with `rivals:`"),
        ("rivals:\n", "rivals: none\n#", 31, "is not a list; start each entry with `- name: …`"),
        ("unit: TB/s", "unit: TB", 11, "unit is 'TB'"),
        ("  absent: [bias]", "  absent: [bias", 42, "YAML cannot be read here"),
    ],
)  # fmt: skip
def test_a_fault_of_the_whole_is_said_on_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    text = write_whole(tmp_path)
    assert old in text
    (tmp_path / FILE).write_text(text.replace(old, new, 1))
    first, *_ = sorted(str(finding) for finding in load_published(tmp_path, "x")[1])
    assert first.startswith(f"x/{FILE}:{line}: ") and says in first, first


@pytest.mark.parametrize("text", ["", "# none\n"])
def test_an_empty_file_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    [finding] = load_published(tmp_path, "x")[1]
    assert str(finding).startswith(f"x/{FILE}: is empty; write `rivals:`, ")


@given(st.binary(max_size=60), st.sampled_from(["rivals:", "reported:", "calls:", "calls: |", ""]))
def test_any_bytes_below_a_key_give_values_or_findings(data: bytes, key: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / FILE).write_bytes(f"{key}\n  ".encode() + data)
        found, findings = load_published(Path(name), "x")
    assert any(found) or findings
    assert all("\n" not in str(finding) for finding in findings)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=80)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*PublishedFigure.model_fields]) | st.text(max_size=3), VALUES
        ),
        max_size=2,
    )
)
def test_any_values_give_figures_or_findings(rows: list[dict]) -> None:
    data = yaml.safe_dump(rows, allow_unicode=True).encode("utf-8", "surrogatepass")
    figures, findings = read_figures(data, "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    assert len(figures) == len(rows) or findings


@settings(max_examples=80)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_give_figures_or_findings(data: bytes) -> None:
    figures, findings = read_figures(b"- figure: 1\n  " + data, "r.yml")
    assert findings and not figures


def test_every_figure_of_this_repository_is_sound() -> None:
    root = Path(__file__).resolve().parents[2] / "snippets"
    files = sorted(root.glob(f"*/{FILE}"))
    assert files
    for path in files:
        found, findings = load_published(path.parent, path.parent.name)
        assert any(found) and findings == []


RIVAL = """\
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


def said_of_rivals(text: str) -> list[str]:
    found, findings = read_rivals(text.encode(), "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    return [str(finding) for finding in findings]


def test_a_good_entry_is_read() -> None:
    (one,), findings = read_rivals(RIVAL.encode(), "r.yml")
    assert findings == []
    assert one.url == f"https://github.com/owner/name/blob/{one.commit}/src/ops/softmax.py"
    assert one.targets == [80, 90, 100]
    assert one.compile_request()["constants"] == {"BLOCK": 4096, "FAST": True, "SCALE": 0.5,
                                        "KIND": "tl.bfloat16"}  # fmt: skip


def test_the_digest_is_of_what_decides_the_code() -> None:
    (one,), _ = read_rivals(RIVAL.encode(), "r.yml")
    for old, new, same in (
        ("A library", "Another", True),
        ("rows of 4096", "long rows", True),
        ("one pass", "online", True),
        ("BLOCK: 4096", "BLOCK: 8192", False),
        ("num_warps: 8", "num_warps: 4", False),
        ("divisible: [x, n]", "divisible: [x]", False),
        ("0123456789", "1123456789", False),
    ):
        ((other,), _) = read_rivals(RIVAL.replace(old, new, 1).encode(), "r.yml")
        assert (other.digest == one.digest) is same, old


def test_one_in_cuda_is_read_and_its_flags_decide_the_code() -> None:
    (one,), findings = read_rivals(CUDA.encode(), "r.yml")
    assert findings == [] and one.is_cuda
    assert (
        one.compile_request()["flags"] == ["-DWIDE=1", "-Isrc/include"]
        and one.compile_request()["shared"] == 1024
    )
    for old, new in (("WIDE=1", "WIDE=0"), ("1024", "2048"), ("4, true", "8, true")):
        ((other,), _) = read_rivals(CUDA.replace(old, new, 1).encode(), "r.yml")
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
    found = said_of_rivals(CUDA.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


def test_a_triton_kernel_has_a_signature_and_a_name() -> None:
    text = RIVAL.replace('  signature: {x: "*bf16", n: i32}\n  divisible: [x, n]\n', "")
    assert "signature is missing" in said_of_rivals(text)[0]
    assert "not a Python name" in said_of_rivals(RIVAL.replace("_softmax\n", "softmax<4>\n", 1))[0]


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
    assert old in RIVAL
    found = said_of_rivals(RIVAL.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


def test_one_kernel_stands_once() -> None:
    (told,) = said_of_rivals(RIVAL + RIVAL.replace("A library", "The same"))
    assert told.startswith("r.yml:13: names _softmax again (first on line 1)")


def test_one_in_a_language_of_its_own_is_told_apart_by_its_text(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f"rivals:\n{OWN}")
    path = tmp_path / "in_a_language.py"
    digests = set()
    for text in ("def softmax(): ...\n", "def softmax(): 3\n"):
        path.write_text(text)
        found, findings = load_published(tmp_path, "here")
        (one,) = found.rivals
        assert findings == [] and one.source == text
        assert one.compile_request() == {"package": "a-language", "file": path.name,
                               "kernel": "softmax", "targets": [80, 90, 100]}  # fmt: skip
        digests.add(one.digest)
    assert len(digests) == 2
    path.write_bytes(b"\xff")
    assert "cannot be read (it is not UTF-8)" in str(load_published(tmp_path, "here")[1][0])
    path.unlink()
    found, (finding,) = load_published(tmp_path, "here")
    assert found.rivals == []
    assert str(finding).startswith("here/published.yml:2: file is 'in_a_language.py', which cannot")


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
    found = said_of_rivals(OWN.replace(old, new, 1))
    assert len(found) == 1 and found[0].startswith(f"r.yml:{line}: ") and says in found[0]


@given(st.text(max_size=200) | st.builds(lambda text: RIVAL + text, st.text(max_size=60)))
def test_no_text_breaks_the_reader(text: str) -> None:
    said_of_rivals(text)
