"""How the answers of the children of three targets become one record."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Trial
from cuda_snippet import CASES, MODULE, SOUND
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.bench import assemble
from warpshelf.bench.assemble import DEMO_LINES, split_output, validate_demo
from warpshelf.bench.pool import Outcome
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger, schema, validate_import
from warpshelf.records.claim_check import TARGETS, first_difference, texts_agree
from warpshelf.worker.context import Task

DEMO = "\n{token} demo 1\none\n\n{token} demo 2\none\n\n{token} end\n"
RESULT = {"name": "ours", "role": "variant", "verdict": "passed", "error": 0.0, "tolerance": 1.0}
CASE = {"m": 7}


def make_run(trial: Trial) -> assemble.SnippetRun:
    home = trial.root / "snippets" / "trial"
    home.mkdir(parents=True)
    for name, text in (("trial.py", MODULE), ("cases.py", CASES), ("trial.cu", SOUND)):
        (home / name).write_text(text)
    one = snippet.read_snippet(Project(trial.root), home)
    assert not one.findings, one.findings
    return assemble.SnippetRun(one, ledger.describe_host(), None)


def make_answer() -> dict[str, Any]:
    cases = [{"case": CASE, "timed": False, "results": [RESULT]}]
    return {"cases": cases, "skips": [], "failures": [], "due": []}


def test_one_child_lists_what_is_due(trial: Trial) -> None:
    jobs = [job for job in make_run(trial).untimed_jobs() if job.do is Task.VERIFY]
    assert {job.details["target"]: job.details["due"] for job in jobs} == {
        "sm_90": True,
        "sm_80": False,
        "sm_100": False,
    }
    trial.add_sound_snippet()
    plain = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "sound")
    assert assemble.job_details(plain, ledger.describe_host())["due"]


@pytest.mark.parametrize(
    ("sm", "targets"),
    [
        (90, ("sm_90",)),
        ([80, 90], ("sm_90", "sm_80")),
        (">=90", ("sm_90", "sm_100")),
        (100, ("sm_90", "sm_100")),  # the record rests on sm_90, also where nothing runs there
    ],
)
def test_a_snippet_is_executed_for_what_it_is_for(
    trial: Trial, sm: object, targets: tuple[str, ...]
) -> None:
    one = make_run(trial)
    assert one.targets == TARGETS
    changed = dataclasses.replace(one.snippet, needs={"sm": sm})
    assert dataclasses.replace(one, snippet=changed).targets == targets


SPACE = '\nSPACE = {"parameters": {"tile": (16, 32)}}\n'


def make_spaced_run(trial: Trial) -> assemble.SnippetRun:
    work = make_run(trial)
    cases = work.snippet.cases_path
    cases.write_text(cases.read_text() + SPACE)
    one = snippet.read_snippet(Project(trial.root), work.snippet.folder)
    return assemble.SnippetRun(one, ledger.describe_host(), None)


def make_space(target: str | None) -> dict[str, Any]:
    return {
        "parameters": [{"name": "tile", "values": [16, 32]}],
        "case": CASE,
        "timed": CASE,
        "figures": ["registers", "spilled_bytes", "shared_bytes", "warps", "cycles"],
        "rows": {target: [f"{tile}: 32 0 64 48 9.5" for tile in (16, 32)]},
    }


def finish_jobs(work: assemble.SnippetRun) -> list[Task]:
    """Have imagined children do all jobs of a run; what they were, in order."""
    jobs = work.untimed_jobs()
    for job in jobs:
        target = job.details["target"]
        found = (
            {"space": make_space(target), "failures": []} if job.do is Task.SPACE else make_answer()
        )
        work.add_outcome(Outcome(job, found, None, "", DEMO.format(token="t").encode(), "t", 1.0))
    return [job.do for job in jobs]


def test_a_space_is_surveyed_for_each_target_and_kept_while_the_code_is_the_same(
    trial: Trial,
) -> None:
    work = make_spaced_run(trial)
    assert finish_jobs(work).count(Task.SPACE) == 3
    record = work.build_record()
    assert sorted(record["space"]["rows"]) == ["sm_100", "sm_80", "sm_90"]
    assert schema.shape_problem(record) is None and schema.validation_error(record) is None

    later = assemble.SnippetRun(work.snippet, ledger.describe_host(), record)
    assert Task.SPACE not in finish_jobs(later)
    assert later.build_record()["space"] == record["space"]

    old = {**record, "digest": "sha256:" + "0" * 64}
    stale = assemble.SnippetRun(work.snippet, ledger.describe_host(), old)
    assert finish_jobs(stale).count(Task.SPACE) == 3
    forced = assemble.SnippetRun(work.snippet, ledger.describe_host(), record)
    assert [job.do for job in forced.untimed_jobs(force=True)].count(Task.SPACE) == 3


def test_a_survey_that_fails_is_a_finding(trial: Trial) -> None:
    work = make_spaced_run(trial)
    for job in work.untimed_jobs():
        if job.do is Task.SPACE:
            work.add_outcome(
                Outcome(job, None, "was killed", "in the configuration", b"", "t", 1.0)
            )
    assert len(work.findings) == 3 and "was killed" in str(work.findings[0])


@pytest.mark.parametrize(("module", "extra"), [("no_such_library", "run"), ("simpy", "events")])
def test_a_module_that_is_not_there_is_said(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    work = make_run(trial)
    assert work.cannot_run() is None
    monkeypatch.setattr(assemble, "find_spec", lambda name: None if name == module else name)
    lacking = dataclasses.replace(work.snippet, needs={"modules": ["torch", module]})
    said = dataclasses.replace(work, snippet=lacking).cannot_run()
    assert said == (f"{module} is not installed in this environment; install the extra: "
                    f"`.venv/bin/pip install -c constraints.txt -e '.[{extra}]'`")  # fmt: skip


# What demo() printed: cut out of a child's output, and checked.

TOKEN = "0123456789abcdef"
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
WORDS = st.text(st.characters(categories=["Ll", "Lu", "Po", "Zs"]), max_size=12)


def write_output(*parts: bytes) -> bytes:
    """What a child prints: something of the import, two demos, something at the end."""
    names = (b"demo 1", b"demo 2", b"end")
    marks = [b"\n" + TOKEN.encode() + b" " + name + b"\n" for name in names]
    head, first, second, tail = parts
    return head + marks[0] + first + marks[1] + second + marks[2] + tail


@given(st.tuples(*[st.binary(max_size=50)] * 4))
def test_the_two_demos_are_cut_out_of_what_a_child_prints(parts: tuple[bytes, ...]) -> None:
    assert split_output(write_output(*parts), TOKEN) == parts[1:3]


def test_a_demo_that_prints_nothing_lies_between_its_marks() -> None:
    assert split_output(write_output(b"", b"", b"", b""), TOKEN) == (b"", b"")


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"hello\n",
        write_output(b"", b"a\n", b"a\n", b"").replace(b" end\n", b""),
        write_output(b"", b"a\n", b"a\n", b"").replace(TOKEN.encode(), b"fedcba9876543210"),
        write_output(b"", write_output(b"", b"forged", b"forged", b""), b"a\n", b""),
    ],
)
def test_marks_that_are_missing_or_too_many_are_unfit(cut: bytes) -> None:
    with pytest.raises(ValueError, match="is incomplete"):
        split_output(cut, TOKEN)


def test_what_was_printed_twice_is_published() -> None:
    assert validate_demo("µ = 1.5\n".encode(), "µ = 1.5\n".encode()) == "µ = 1.5\n"
    longest = b"x\n" * DEMO_LINES
    assert validate_demo(longest, longest) == longest.decode()


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (b"", b"", "printed nothing"),
        (b" \n\t\n", b" \n\t\n", "printed nothing"),
        (
            b"x\n" * (DEMO_LINES + 1),
            b"x\n" * (DEMO_LINES + 1),
            f"{DEMO_LINES + 1} lines; the limit is {DEMO_LINES}",
        ),
        (b"x" * (200 * DEMO_LINES + 1), b"x" * (200 * DEMO_LINES + 1), "characters; the limit"),
        (b"a\xff\n", b"a\xff\n", "byte 0xff"),
        (b"a\n", b"\x80\n", "byte 0x80"),
        (b"\xed\xa0\x80", b"\xed\xa0\x80", "byte 0xed"),  # half a surrogate pair
        (b"a\n1\n", b"a\n2\n", "line 2 is '2' instead of '1'"),
        (b"a\n", b"", "line 1 is 'nothing' instead of 'a'"),
        (b"a\n", b"a", "the line endings differ"),
    ],
)
def test_what_cannot_be_published_is_unfit(first: bytes, second: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        validate_demo(first, second)


@given(st.binary(max_size=80), st.binary(max_size=80) | st.none())
def test_a_check_ends_in_text_or_in_unfit(first: bytes, second: bytes | None) -> None:
    try:
        text = validate_demo(first, first if second is None else second)
    except ValueError as unfit:
        assert str(unfit).startswith("demo() printed")
    else:
        assert text.encode() == first
        assert text.strip()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("error 3.1e-08", "error 3.1e-8"),
        ("took 1.0000", "took 1.0005"),
        ("took 1000", "took 999.5"),
        ("sum -0.0", "sum 0.0"),
        ("sum -2.5", "sum -2.501"),
        ("x 9.999 y", "x 10.001 y"),
        ("x  9.999 y", "x 10.001 y"),  # padded to a width
        (" 9.999", "10.001"),
        ("9.999  y", "10.001 y"),
        ("1e999", "1e999"),
    ],
)
def test_numbers_may_be_close(first: str, second: str) -> None:
    assert texts_agree(first, second)
    assert texts_agree(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("took 1.000", "took 1.002"),
        ("sum 1.0", "sum -1.0"),
        ("sum 0", "sum 1e-9"),
        ("passed 3", "failed 3"),
        ("3 passed", "3"),
        ("1 2", "1"),
        ("1 2", "12"),
        ("a b", "ab"),
        ("a\n1\n", "a 1\n"),
        ("1.0\n", "1.0"),
        ("nan", "1.0"),
        ("inf", "nan"),
        ("(37, 781)", "(37, 782)"),
    ],
)
def test_all_else_must_be_the_same(first: str, second: str) -> None:
    assert not texts_agree(first, second)
    assert not texts_agree(second, first)


@given(st.text())
def test_a_text_agrees_with_itself(text: str) -> None:
    assert texts_agree(text, text)


@given(st.text("a1.-+e \n5", max_size=12), st.text("a1.-+e \n5", max_size=12))
def test_agreement_goes_both_ways(first: str, second: str) -> None:
    assert texts_agree(first, second) == texts_agree(second, first)


@given(WORDS, NUMBERS, WORDS, st.integers(0, 40), st.sampled_from("xyzµ,;#"))
def test_a_changed_word_never_agrees(
    head: str, number: float, tail: str, place: int, letter: str
) -> None:
    text = f"{head} {number!r} {tail}"
    place %= len(text)
    changed = text[:place] + letter + text[place:]
    assert not texts_agree(text, changed)


@given(st.floats(1e-300, 1e300), st.floats(-9e-4, 9e-4), st.sampled_from([1, -1]))
def test_a_number_within_the_tolerance_agrees_and_one_beyond_it_does_not(
    number: float, off: float, sign: int
) -> None:
    text = f"row sums {sign * number!r}, {sign * number!r}\n"
    assert texts_agree(text, f"row sums {sign * number!r}, {sign * number * (1 + off)!r}\n")
    assert not texts_agree(text, f"row sums {sign * number!r}, {sign * number * 1.0011!r}\n")


@given(st.text("ab\n\r1", max_size=12), st.text("ab\n\r1", max_size=12))
def test_the_difference_names_a_line_that_differs(first: str, second: str) -> None:
    said = first_difference(first, second)
    old, new = first.splitlines(), second.splitlines()
    if old == new:
        assert said == "the line endings differ"
        return
    found = re.match(r"line (\d+) is ", said)
    assert found
    index = int(found[1]) - 1
    assert old[:index] == new[:index]
    assert old[index : index + 1] != new[index : index + 1]


def test_a_difference_is_one_short_line() -> None:
    said = first_difference("a" * 5000, "b\x1b[31m" * 5000)
    assert len(said) < 200
    assert said.isprintable()


def test_a_record_names_the_files_that_differ_from_its_commit(tmp_path: Path) -> None:
    def run_git(*words: str) -> None:
        own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True)

    assert assemble.checkout_commit(tmp_path) is None
    (tmp_path / "snippets" / "a" / "results").mkdir(parents=True)
    (tmp_path / "snippets" / "a" / "a.py").write_text("x = 1\n")
    run_git("init", "--quiet")
    run_git("add", ".")
    run_git("commit", "--quiet", "--message", "x")
    name = assemble.checkout_commit(tmp_path)
    assert name is not None and re.fullmatch("[0-9a-f]{12}", name)
    (tmp_path / "snippets" / "a" / "results" / "cpu.json").write_text("{}")
    (tmp_path / "README.md").write_text("Nothing depends on it.\n")
    assert assemble.checkout_commit(tmp_path) == name
    (tmp_path / "snippets" / "a" / "a.py").write_text("x = 2\n")
    (tmp_path / "snippets" / "a" / "b c.py").write_text("y = 2\n")
    assert assemble.checkout_commit(tmp_path) == f"{name}+snippets/a/a.py+snippets/a/b_c.py"
    for number in range(9):
        (tmp_path / "snippets" / f"{number}.py").write_text("")
    told = assemble.checkout_commit(tmp_path)
    assert told is not None and told.endswith("+snippets/7.py+3-more")
    assert validate_import.COMMIT.fullmatch(told)
