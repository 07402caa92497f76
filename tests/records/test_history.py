"""Earlier versions of records, read from repositories that were made for it."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import Trial
from hypothesis import given
from hypothesis import strategies as st
from records_project import NAME, SLUG, Repository, make_timed_case, run_git
from simulated_gpu import Fake, posix, smi

from warpshelf.core import files
from warpshelf.core import project as git_room
from warpshelf.core.files import dump_json
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import bundle, history, ledger, schema

OLD = "sha256:" + "1" * 64
PLACE = (NAME, SLUG)


@pytest.fixture
def versioned_repository(trial: Trial) -> Repository:
    return Repository(trial)


@pytest.fixture
def started_commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that are started from now on."""
    seen: list[str] = []
    real = subprocess.run

    def note_command(command: list[str], *args: object, **more: object) -> object:
        seen.append(" ".join(command))
        return real(command, *args, **more)

    monkeypatch.setattr(git_room.subprocess, "run", note_command)
    return seen


def read_medians(found: history.History, place: tuple[str, str] = PLACE) -> list[float]:
    return [one.record["cases"][0]["results"][0]["time"]["median"] for one in found.of[place]]


def test_versions_are_read_newest_last_by_a_few_processes(
    versioned_repository: Repository, started_commands: list[str]
) -> None:
    commits = [
        versioned_repository.commit_record(
            make_timed_case(one), date=f"2031-01-0{number}T00:00:00Z"
        )
        for number, one in enumerate((1.0, 1.1, 1.2), 1)
    ]
    versioned_repository.commit_record(
        make_timed_case(1), key="imaginary-z1", slug="imaginary-z1", device="Imaginary Z1"
    )
    started_commands.clear()
    found = history.read_history(versioned_repository.project)
    assert [one.split()[7] for one in started_commands] == ["log", "rev-parse", "cat-file"]
    assert read_medians(found) == pytest.approx([0.0001, 0.00011, 0.00012])
    assert [one.commit for one in found.of[PLACE]] == commits
    assert list(found.of) == [PLACE, (NAME, "imaginary-z1")]
    assert found.remarks == () and not found.damaged
    assert read_medians(
        history.read_history(versioned_repository.project, newest=2)
    ) == pytest.approx([0.00011, 0.00012])


def test_without_a_record_of_a_gpu_git_is_not_asked(
    versioned_repository: Repository, started_commands: list[str]
) -> None:
    versioned_repository.write_record(versioned_repository.make_record(), "cpu")
    started_commands.clear()
    assert history.read_history(versioned_repository.project).of == {}
    assert (
        history.history_fingerprint(versioned_repository.project) == "" and started_commands == []
    )


def test_what_is_not_committed_yet_is_the_newest(versioned_repository: Repository) -> None:
    versioned_repository.commit_record(make_timed_case(1))
    before = history.history_fingerprint(versioned_repository.project)
    versioned_repository.write_record(
        versioned_repository.make_record(make_timed_case(2), date="2032-01-01T00:00:00Z")
    )
    found = history.read_history(versioned_repository.project)
    assert read_medians(found) == pytest.approx([0.0001, 0.0002])
    assert found.of[PLACE][-1].commit is None
    assert (
        history.history_fingerprint(versioned_repository.project) == before
    )  # the file itself is among the sources
    versioned_repository.commit_all()
    assert history.history_fingerprint(versioned_repository.project) != before
    assert history.read_history(versioned_repository.project).of[PLACE][-1].commit is not None


def test_words_about_a_measurement_are_no_other_one(versioned_repository: Repository) -> None:
    first = versioned_repository.commit_record(make_timed_case(1))
    record = versioned_repository.make_record(make_timed_case(1))
    for words in ({"origin": {"who": "Ada"}}, {"demo": "else\n"}):
        versioned_repository.write_record(record | words)
        versioned_repository.commit_all()
    history.add_reason(versioned_repository.project, *PLACE, record["date"], "hot")
    versioned_repository.commit_all()
    history.add_reason(versioned_repository.project, *PLACE, record["date"], "hotter")
    history.add_reason(
        versioned_repository.project, *PLACE, "2030-01-01T00:00:00Z", "of another measurement"
    )
    [only] = history.read_history(versioned_repository.project).of[PLACE]
    assert only.commit == first and only.slower == "hotter"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- record: [", ":1: is not YAML"),
        ("words", ": slower is not a list"),
        ("- {record: a, because: b}", ": slower[0] lacks 'date'"),
        ("- {record: a, date: yesterday, because: b}", ": slower[0].date is 'yesterday'"),
        ("- {record: a, date: 2031-05-06T07:08:09Z, because: b, more: c}", "unknown key 'more'"),
    ],
)
def test_a_file_of_reasons_that_is_none_says_so(
    versioned_repository: Repository, text: str, says: str
) -> None:
    path = versioned_repository.project.snippets / "sound" / "slower.yml"
    path.write_text(text)
    with pytest.raises(ShelfError, match=re.escape(says)) as raised:
        history.load_reasons(versioned_repository.project, "sound")
    assert str(raised.value).startswith("snippets/sound/slower.yml")
    assert "--because" in str(raised.value)
    assert path.read_text() == text
    with pytest.raises(ShelfError):  # nothing is overwritten that could not be read
        history.add_reason(versioned_repository.project, *PLACE, "2031-05-06T07:08:09Z", "hot")
    assert path.read_text() == text


def test_a_snippet_that_was_renamed_keeps_its_history(versioned_repository: Repository) -> None:
    first = versioned_repository.commit_record(make_timed_case(1), digest=OLD)
    run_git(versioned_repository.root, "mv", "snippets/sound", "snippets/louder")
    moved = versioned_repository.root / "snippets" / "louder" / "results" / f"{SLUG}.json"
    record = json.loads(moved.read_text()) | {"snippet": "louder", "date": "2032-01-01T00:00:00Z"}
    moved.write_text(dump_json(record))
    second = versioned_repository.commit_all("Rename")
    [old, new] = history.read_history(versioned_repository.project).of["louder", SLUG]
    assert (old.commit, new.commit) == (first, second)
    assert old.path == f"snippets/sound/results/{SLUG}.json" and "louder" in new.path
    # A snippet of the old name that comes later has no part in it.
    versioned_repository.trial.add_snippet(
        NAME, versioned_repository.root.joinpath("docs/index.md").read_text()
    )
    versioned_repository.commit_record(make_timed_case(3))
    found = history.read_history(versioned_repository.project)
    assert len(found.of["louder", SLUG]) == 2 and len(found.of[PLACE]) == 1


def test_a_record_that_becomes_another_machines_is_no_history(
    versioned_repository: Repository,
) -> None:
    versioned_repository.commit_record(make_timed_case(1))
    run_git(versioned_repository.root, "mv", f"snippets/sound/results/{SLUG}.json",
        "snippets/sound/results/imaginary-z1.json")  # fmt: skip
    made = versioned_repository.make_record(
        make_timed_case(1), slug="imaginary-z1", device="Imaginary Z1"
    )
    versioned_repository.write_record(made, "imaginary-z1")
    versioned_repository.commit_all()
    found = history.read_history(versioned_repository.project, [NAME])
    assert len(found.of[NAME, "imaginary-z1"]) == 1 == len(found.of[PLACE])
    assert found.here == {(NAME, "imaginary-z1")}


def test_damaged_versions_are_left_out_and_said(versioned_repository: Repository) -> None:
    versioned_repository.commit_record(make_timed_case(1))
    impossible = make_timed_case(1)
    impossible["results"][0]["time"]["p20"] = 1.0
    damaged = (
        b"{",
        b"[]",
        b"\xff",
        dump_json(versioned_repository.make_record() | {"cases": [{"timed": True}]}).encode(),
        dump_json(versioned_repository.make_record(impossible)).encode(),
    )
    for data in damaged:
        versioned_repository.locate_record().write_bytes(data)
        versioned_repository.commit_all()
    versioned_repository.commit_record(make_timed_case(1.5), date="2032-01-01T00:00:00Z")
    found = history.read_history(versioned_repository.project)
    assert read_medians(found) == pytest.approx([0.0001, 0.00015])
    assert len(found.damaged[PLACE]) == len(damaged)
    assert "no possible time" in found.damaged[PLACE][-1]


def test_other_parts_of_an_old_record_may_have_any_shape(versioned_repository: Repository) -> None:
    versioned_repository.write_record(
        versioned_repository.make_record() | {"schema": 0, "demo": ["once", "a list"], "gone": 1}
    )
    versioned_repository.commit_all()
    versioned_repository.commit_record(make_timed_case(1.5))
    assert len(history.read_history(versioned_repository.project).of[PLACE]) == 2


def test_a_shallow_clone_says_what_it_lacks(
    versioned_repository: Repository, tmp_path: Path
) -> None:
    for number, one in enumerate((1.0, 2.0), 1):
        versioned_repository.commit_record(
            make_timed_case(one), date=f"2031-01-0{number}T00:00:00Z"
        )
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", "--depth=1", f"file://{versioned_repository.root}", str(clone))
    found = history.read_history(Project(clone))
    assert read_medians(found) == pytest.approx([0.0002])
    assert found.remarks == (history.SHALLOW,)


def test_without_git_the_present_is_all_there_is(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(trial)
    repository.commit_record(make_timed_case(1))
    repository.write_record(repository.make_record(make_timed_case(2)))
    monkeypatch.setenv("PATH", "/nowhere")
    found = history.read_history(trial_project := repository.project)
    assert read_medians(found) == pytest.approx([0.0002])
    assert found.remarks == (history.UNVERSIONED,)
    assert history.history_fingerprint(trial_project) != ""


def test_a_branch_that_was_merged_is_one_step(versioned_repository: Repository) -> None:
    versioned_repository.commit_record(make_timed_case(1), date="2031-01-01T00:00:00Z")
    run_git(versioned_repository.root, "switch", "-q", "-c", "faster")
    for number, one in enumerate((0.9, 0.8), 2):
        versioned_repository.commit_record(
            make_timed_case(one), date=f"2031-01-0{number}T00:00:00Z"
        )
    run_git(versioned_repository.root, "switch", "-q", "main")
    (versioned_repository.root / "other").write_text("meanwhile")
    versioned_repository.commit_all("Meanwhile")
    run_git(versioned_repository.root, "merge", "-q", "--no-ff", "-m", "Merge", "faster")
    found = history.read_history(versioned_repository.project)
    assert read_medians(found) == pytest.approx([0.0001, 8e-5])
    assert found.of[PLACE][-1].commit == run_git(versioned_repository.root, "rev-parse", "HEAD")


def test_a_project_below_the_top_of_a_repository(tmp_path: Path) -> None:
    from conftest import new_trial

    (tmp_path / "inner").mkdir()
    repository = Repository(new_trial(tmp_path / "inner" / "trial"))
    run_git(tmp_path, "init", "-q")
    (tmp_path / "inner" / "trial" / ".git").rename(tmp_path / "unused")
    for number, one in enumerate((1.0, 2.0), 1):
        repository.write_record(
            repository.make_record(make_timed_case(one), date=f"2031-01-0{number}T00:00:00Z")
        )
        run_git(tmp_path, "add", "inner")
        run_git(tmp_path, "commit", "-q", "-m", "Measure")
    assert read_medians(history.read_history(repository.project)) == pytest.approx([0.0001, 0.0002])
    place = repository.project.relative_path(repository.locate_record())
    assert history.read_version(repository.project, "HEAD~1", place) is not None


def test_slower_is_ours_alone_and_beyond_both_spreads(versioned_repository: Repository) -> None:
    before, after = (
        versioned_repository.make_record(make_timed_case(1)),
        versioned_repository.make_record(make_timed_case(1.02, 1.5, 2.0)),
    )
    [found] = history.slower_results(before, after)
    assert (found.name, found.role) == ("online", "variant") and found.factor == pytest.approx(1.5)
    assert history.slower_results(after, before) == []
    two = after | {"machine": after["machine"] | {"gpus": 2}}
    assert history.slower_results(before, two) == []


@given(st.text())
def test_any_answer_of_git_is_read(text: str) -> None:
    raw = f":100644 100644 {'a' * 40} {'b' * 40} "
    for answer in (
        text,
        f"commit {text}",
        raw + text,
        f"{raw}M\t{text}",
        f"{raw}R9\t{text}\t{text}",
    ):
        for place, steps in history._parse_log(answer).items():
            assert history.record_place(f"snippets/{place[0]}/results/{place[1]}.json") == place
            assert steps


@given(st.binary())
def test_any_version_is_read_or_said_to_be_damaged(data: bytes) -> None:
    assert isinstance(history.parse_kept(data), str)
    assert all(isinstance(found, bytes) for _, found in history._parse_objects(data))


# Who made a record: a name, a job of GitHub Actions, the user of a checkout.

ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "warpshelf/warpshelf",
    "GITHUB_RUN_ID": "17",
}


@pytest.fixture
def git_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    run_git(tmp_path, "init", "--quiet")
    return tmp_path


def test_a_person_has_a_name() -> None:
    assert bundle.person_origin("Ada Lovelace") == {"who": "Ada Lovelace"}
    for name in ("", " Ada", "Ada\n", "<b>", "a" * 81):
        with pytest.raises(ValueError, match="is not a name"):
            bundle.person_origin(name)


def test_a_job_is_known_by_its_environment() -> None:
    found = bundle.job_origin(ACTIONS)
    assert found == {"job": "https://github.com/warpshelf/warpshelf/actions/runs/17"}
    assert bundle.format_origin(found) == f"the job {found['job']}"


@pytest.mark.parametrize(
    "more",
    [
        {"GITHUB_ACTIONS": ""},
        {"GITHUB_ACTIONS": "1"},
        {"GITHUB_RUN_ID": "17/../18"},
        {"GITHUB_RUN_ID": ""},
        {"GITHUB_REPOSITORY": "warpshelf"},
        {"GITHUB_SERVER_URL": "http://github.com"},
        {"GITHUB_SERVER_URL": "javascript:alert(1)"},
    ],
)
def test_another_environment_is_of_no_job(more: dict[str, str]) -> None:
    assert bundle.job_origin(ACTIONS | more) is None
    assert bundle.job_origin({}) is None


def test_the_user_of_a_checkout_is_known_by_git(git_checkout: Path) -> None:
    assert bundle.user_origin(git_checkout) is None
    run_git(git_checkout, "config", "user.name", "Ada Lovelace")
    assert bundle.user_origin(git_checkout) == {"who": "Ada Lovelace"}
    run_git(git_checkout, "config", "user.name", "Ada <ada@example.org>")
    assert bundle.user_origin(git_checkout) is None
    assert bundle.user_origin(git_checkout / "nowhere") is None


def ask_git(root: Path, *words: str) -> str:
    """What git answers with the environment as it is."""
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_commit_has_its_time(git_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-22T08:00:00Z")
    name = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    ask_git(git_checkout, *name, "commit", "--quiet", "--allow-empty", "--message", "x")
    short = ask_git(git_checkout, "rev-parse", "--short=12", "HEAD")
    for commit in (short, f"{short}+changes", f"{short}+snippets/a/a.py"):
        assert bundle.commit_time(git_checkout, commit) == datetime(2026, 11, 22, 8, tzinfo=UTC)
    for commit in ("0" * 12, "", "0", "--help"):
        assert bundle.commit_time(git_checkout, commit) is None


__all__ = ["smi"]


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("  Tesla  V100-SXM2 ", "tesla-v100-sxm2"),
        ("GeForce RTX™ 4090 (Laptop)", "geforce-rtx-4090-laptop"),
        ("../../x", "x"),
        ("///", "gpu"),
        ("", "gpu"),
        ("x" * 500, "x" * ledger.LONGEST_SLUG),
        ("x" * (ledger.LONGEST_SLUG - 1) + " y", "x" * (ledger.LONGEST_SLUG - 1)),
    ],
)
def test_a_slug_is_a_file_name(device: str, slug: str) -> None:
    assert ledger.device_slug(device) == slug


@given(st.text(max_size=200))
def test_every_slug_is_one_that_a_record_may_have(device: str) -> None:
    assert schema.MACHINE.fullmatch(ledger.device_slug(device))


def test_this_machine_is_described_as_a_record_has_it() -> None:
    from warpshelf.worker import gpu

    found = gpu.machine_description()
    assert files.shape_problem(found, schema.MACHINE_SHAPE, "machine") is None
    assert (found["gpus"] == 0) == (found["slug"] == "cpu")
    cpu = ledger.without_gpu(found)
    assert files.shape_problem(cpu, schema.MACHINE_SHAPE, "machine") is None
    assert (cpu["slug"], cpu["device"], cpu["gpus"], cpu["sm"]) == ("cpu", "CPU", 0, None)
    assert cpu["torch"] == found["torch"]


@posix
def test_nvidia_smi_alone_is_reason_enough_to_ask_torch(smi: Fake) -> None:
    smi.set_output("")
    assert ledger.may_have_gpu()
