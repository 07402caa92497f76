"""What a checkout has tried, and a run that repeats it and was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core.project import Project
from warpshelf.records import ledger

NEW, OLD = "sha256:" + "11" * 32, "sha256:" + "22" * 32
SOUND = '{"softmax": {"cpu": {"digest": "d"}}}'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_without_a_file_nothing_is_known(project: Project) -> None:
    book = ledger.load_ledger(project)
    assert book.entries == {}
    assert not book.has_passed("softmax", "cpu", NEW)
    assert book.failure_line("softmax", "cpu", NEW) is None
    assert book.tried_machines("softmax") == []
    assert not project.ledger.exists()


def test_a_pass_is_of_this_very_code_on_this_machine(project: Project) -> None:
    ledger.load_ledger(project).save_verdict("softmax", "cpu", NEW, None)
    book = ledger.load_ledger(project)
    assert book.has_passed("softmax", "cpu", NEW)
    assert not book.has_passed("softmax", "cpu", OLD)
    assert not book.has_passed("softmax", "gpu", NEW)
    assert not book.has_passed("stream", "cpu", NEW)
    assert book.failure_line("softmax", "cpu", NEW) is None


def test_a_failure_is_of_this_very_code_on_this_machine(project: Project) -> None:
    ledger.load_ledger(project).save_verdict("softmax", "cpu", NEW, "line 3: wrong")
    book = ledger.load_ledger(project)
    assert not book.has_passed("softmax", "cpu", NEW)
    assert book.failure_line("softmax", "cpu", NEW) == "line 3: wrong"
    assert book.failure_line("softmax", "cpu", OLD) is None
    assert book.failure_line("softmax", "gpu", NEW) is None


def test_the_last_verdict_counts(project: Project) -> None:
    book = ledger.load_ledger(project)
    book.save_verdict("softmax", "cpu", NEW, "line 3: wrong")
    book.save_verdict("softmax", "gpu", NEW, None)
    book.save_verdict("softmax", "cpu", NEW, None)
    assert ledger.load_ledger(project).has_passed("softmax", "cpu", NEW)
    assert sorted(ledger.load_ledger(project).tried_machines("softmax")) == ["cpu", "gpu"]
    book.save_verdict("softmax", "cpu", NEW, "line 4: wrong")
    assert not ledger.load_ledger(project).has_passed("softmax", "cpu", NEW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        SOUND[:-1],
        "[]",
        "3",
        "null",
        '{"softmax": 3}',
        '{"softmax": {"cpu": []}}',
        '{"softmax": {"cpu": [["digest", "d"]]}}',
        '{"softmax": {"cpu": {}}}',
        '{"softmax": {"cpu": {"digest": 3}}}',
        '{"softmax": {"cpu": {"digest": "d", "failure": 3}}}',
        '{"softmax": {"cpu": {"digest": "d"}}, "stream": null}',
        "[" * 100_000,
        "{" + '"a":{' * 100_000,
    ],
)
def test_a_damaged_file_is_an_empty_ledger(project: Project, text: str) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_text(text)
    assert ledger.load_ledger(project).entries == {}


def test_a_ledger_of_other_bytes_or_a_folder_is_empty(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_bytes(b"\xff\xfe{}")
    assert ledger.load_ledger(project).entries == {}
    project.ledger.unlink()
    project.ledger.mkdir()
    assert ledger.load_ledger(project).entries == {}


def test_a_sound_file_is_read(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_text(SOUND)
    assert ledger.load_ledger(project).has_passed("softmax", "cpu", "d")


def test_a_damaged_file_is_replaced_by_the_next_verdict(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_text("{")
    ledger.load_ledger(project).save_verdict("softmax", "cpu", NEW, None)
    assert json.loads(project.ledger.read_text()) == {"softmax": {"cpu": {"digest": NEW}}}


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["softmax", "cpu", "digest", "failure"]), inner)
        ),
    )
)
def test_whatever_was_read_can_be_asked(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    project = Project(tmp_path_factory.getbasetemp())
    project.ledger.parent.mkdir(exist_ok=True)
    project.ledger.write_text(json.dumps(value))
    book = ledger.load_ledger(project)
    for machine in [*book.tried_machines("softmax"), "cpu"]:
        assert book.has_passed("softmax", machine, "d") in (True, False)
        assert isinstance(book.failure_line("softmax", machine, "d"), str | None)


def test_a_verdict_on_the_demo_alone_is_told_apart(project: Project) -> None:
    book = ledger.load_ledger(project)
    for failure in (None, "line 3: wrong"):
        book.save_verdict("softmax", "cpu", NEW, failure, demo_alone=True)
        book = ledger.load_ledger(project)
        assert book.demo_alone("softmax", "cpu", NEW)
        assert not book.demo_alone("softmax", "cpu", OLD)
        assert book.has_passed("softmax", "cpu", NEW) == (failure is None)
    book.save_verdict("softmax", "cpu", NEW, None)
    assert book.has_passed("softmax", "cpu", NEW) and not book.demo_alone("softmax", "cpu", NEW)


NAMES = ["b", "a"]


@pytest.fixture
def begun_project(project: Project) -> Project:
    resume_run(project, now=1000.0).add_passed("a", "cpu", "sha256:1")
    return project


def resume_run(
    project: Project, names: list[str] = NAMES, now: float = 1000.0, what: str = "all"
) -> ledger.RepeatProgress:
    return ledger.resume_repeat(project, what, names, now)


def test_what_repeats_goes_on_over_the_same_snippets(begun_project: Project) -> None:
    again = resume_run(begun_project, ["a", "b"], 5000.0)
    assert again.has_passed("a", "cpu", "sha256:1")
    for other in (("b", "cpu", "sha256:1"), ("a", "gpu", "sha256:1"), ("a", "cpu", "sha256:2")):
        assert not again.has_passed(*other)
    again.add_passed("b", "cpu", "sha256:3")
    third = resume_run(begun_project, NAMES, 5000.0)
    assert (third.began, len(third.done)) == (1000.0, 2)


@pytest.mark.parametrize(
    ("names", "now"), [(["a"], 1000), (["a", "b", "c"], 1000), (NAMES, 90_000), (NAMES, 999)]
)
def test_over_others_or_a_day_later_it_begins_anew(
    begun_project: Project, names: list[str], now: float
) -> None:
    assert not resume_run(begun_project, names, now).done


def test_for_another_purpose_it_begins_anew(begun_project: Project) -> None:
    assert not resume_run(begun_project, what="force").done


def test_after_its_end_it_begins_anew(begun_project: Project) -> None:
    resume_run(begun_project).finish()
    assert not begun_project.repeated.exists()
    assert not resume_run(begun_project).done
    resume_run(begun_project).finish()  # there is none: well too


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 10_000, '{"snippets": ["a", "b"], "began": "now", "done": []}']
)
def test_a_damaged_list_is_none(begun_project: Project, text: str) -> None:
    begun_project.repeated.write_text(text)
    assert not resume_run(begun_project).done
