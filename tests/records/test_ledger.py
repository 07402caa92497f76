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
    book = ledger.load(project)
    assert book.entries == {}
    assert not book.passed("softmax", "cpu", NEW)
    assert book.failure("softmax", "cpu", NEW) is None
    assert book.machines("softmax") == []
    assert not project.ledger.exists()


def test_a_pass_is_of_this_very_code_on_this_machine(project: Project) -> None:
    ledger.load(project).note("softmax", "cpu", NEW, None)
    book = ledger.load(project)
    assert book.passed("softmax", "cpu", NEW)
    assert not book.passed("softmax", "cpu", OLD)
    assert not book.passed("softmax", "gpu", NEW)
    assert not book.passed("stream", "cpu", NEW)
    assert book.failure("softmax", "cpu", NEW) is None


def test_a_failure_is_of_this_very_code_on_this_machine(project: Project) -> None:
    ledger.load(project).note("softmax", "cpu", NEW, "line 3: wrong")
    book = ledger.load(project)
    assert not book.passed("softmax", "cpu", NEW)
    assert book.failure("softmax", "cpu", NEW) == "line 3: wrong"
    assert book.failure("softmax", "cpu", OLD) is None
    assert book.failure("softmax", "gpu", NEW) is None


def test_the_last_verdict_counts(project: Project) -> None:
    book = ledger.load(project)
    book.note("softmax", "cpu", NEW, "line 3: wrong")
    book.note("softmax", "gpu", NEW, None)
    book.note("softmax", "cpu", NEW, None)
    assert ledger.load(project).passed("softmax", "cpu", NEW)
    assert sorted(ledger.load(project).machines("softmax")) == ["cpu", "gpu"]
    book.note("softmax", "cpu", NEW, "line 4: wrong")
    assert not ledger.load(project).passed("softmax", "cpu", NEW)


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
    assert ledger.load(project).entries == {}


def test_a_ledger_of_other_bytes_or_a_folder_is_empty(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_bytes(b"\xff\xfe{}")
    assert ledger.load(project).entries == {}
    project.ledger.unlink()
    project.ledger.mkdir()
    assert ledger.load(project).entries == {}


def test_a_sound_file_is_read(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_text(SOUND)
    assert ledger.load(project).passed("softmax", "cpu", "d")


def test_a_damaged_file_is_replaced_by_the_next_verdict(project: Project) -> None:
    project.ledger.parent.mkdir()
    project.ledger.write_text("{")
    ledger.load(project).note("softmax", "cpu", NEW, None)
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
    book = ledger.load(project)
    for machine in [*book.machines("softmax"), "cpu"]:
        assert book.passed("softmax", machine, "d") in (True, False)
        assert isinstance(book.failure("softmax", machine, "d"), str | None)
