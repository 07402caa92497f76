"""Where a record comes from: who made it, and on which machine."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_gpu import Fake, posix, smi

from warpshelf.core import files
from warpshelf.records import bundle, ledger, schema

# Who made a record: a name, a job of GitHub Actions, the user of a checkout.

ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "warpshelf/warpshelf",
    "GITHUB_RUN_ID": "17",
}


def run_git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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


def test_a_commit_has_its_time(git_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-22T08:00:00Z")
    name = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    run_git(git_checkout, *name, "commit", "--quiet", "--allow-empty", "--message", "x")
    short = run_git(git_checkout, "rev-parse", "--short=12", "HEAD")
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
