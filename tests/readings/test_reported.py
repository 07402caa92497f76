"""Figures that others state are read with their places, and each fault is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import steady

from warpshelf.readings import reported
from warpshelf.readings.reported import Figure, read

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


def text(**changed: str | None) -> bytes:
    pairs = {key: value for key, value in {**ENTRY, **changed}.items() if value is not None}
    return ("- " + "\n  ".join(f"{k}: {v}" for k, v in pairs.items())).encode()


def said(data: bytes) -> list[str]:
    figures, findings = read(data, "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    return [str(finding) for finding in findings]


def test_a_good_file_is_read_with_the_lines_of_its_entries() -> None:
    figures, findings = read(GOOD.encode(), "r.yml")
    assert findings == []
    first, second = figures
    assert (first.figure, first.unit, first.line, first.line_of("case")) == (3.01, "TB/s", 2, 10)
    assert first.case == {"m": 4096, "dtype": "float32", "causal": False, "out": ["a", 1]}
    assert (second.figure, second.share_of, second.variant) == (85, "torch", None)
    assert list(Figure.model_fields) == list(reported.KEYS)


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
        ({"variant": "float4"}, "variant stands without a case", "name the case"),
        ({"share_of": "torch"}, "share_of stands without a case", "name the case"),
        ({"unit": '"%"', "case": "{m: 1}"}, "a share has no share_of", "name the peer"),
        ({"case": "{m: 1}", "share_of": "torch"}, "share_of stands beside a figure in TB/s", ""),
        ({"unit": '"×"', "case": "{m: 1}"}, "case stands beside a figure in ×", "remove it"),
        ({"pace": "3"}, "the key 'pace' is unknown", "write place"),
    ],
)
def test_each_fault_is_one_line(changed: dict[str, str | None], what: str, mend: str) -> None:
    assert said(text()) == []
    [line, *more] = said(text(**changed))
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
    assert what in said(data)[0]


def test_a_figure_that_stands_twice_is_said() -> None:
    twice = text() + b"\n" + text(figure="9", place="Table 9")
    [line] = said(twice)
    assert line.startswith("r.yml:8: states 'A copy' again (first on line 1); remove one")
    assert said(text() + b"\n" + text(setting="float64")) == []


def test_a_file_that_is_not_there_states_nothing(tmp_path: Path) -> None:
    assert reported.load(tmp_path, "snippets/x") == ([], [])
    (tmp_path / reported.FILE).mkdir()
    _, [finding] = reported.load(tmp_path, "snippets/x")
    assert str(finding).startswith("snippets/x/reported.yml: cannot be read")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(steady, max_examples=80)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(reported.KEYS) | st.text(max_size=3), VALUES), max_size=2
    )
)
def test_any_values_give_figures_or_findings(rows: list[dict]) -> None:
    data = yaml.safe_dump(rows, allow_unicode=True).encode("utf-8", "surrogatepass")
    figures, findings = read(data, "r.yml")
    assert all("\n" not in str(finding) for finding in findings)
    assert len(figures) == len(rows) or findings


@settings(steady, max_examples=80)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_give_figures_or_findings(data: bytes) -> None:
    figures, findings = read(b"- figure: 1\n  " + data, "r.yml")
    assert findings and not figures


def test_every_figure_of_this_repository_is_sound() -> None:
    root = Path(__file__).resolve().parents[2] / "snippets"
    files = sorted(root.glob(f"*/{reported.FILE}"))
    assert files
    for path in files:
        figures, findings = reported.load(path.parent, path.parent.name)
        assert figures and findings == []
