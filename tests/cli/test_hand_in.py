"""Handing in at the command line: who, what is doubtful, what is attested, what a page shows."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import made_up_records
import pytest
from conftest import LIST, TOPIC, Trial, sound_snippet
from sigstore_authority import RUN, Sigstore, make_statement

from warpshelf.cli import hand_in
from warpshelf.cli.measuring import import_records
from warpshelf.contract import snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.records import bundle, record_comparison, schema, store
from warpshelf.records.bundle import REPOSITORY, record_checksum
from warpshelf.site import rendering

KEY = "imaginary-g9-80gb"
PLACE = f"snippets/sound/results/{KEY}.json"


@pytest.fixture
def recorded_trial(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A project whose snippet has its record of the CPU, and a user without a name."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GITHUB_ACTIONS", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    trial.add_sound_snippet()
    trial.add_snippet("sound", sound_snippet().replace("Source  none", "Source  a-paper"))
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(
        f"{TOPIC}.md", f'# X\n\n--8<-- "readings/{TOPIC}.md"\n\n--8<-- "sound/whole.md"\n'
    )
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets/sound")
    found = made_up_records.make_record(0, snippet="sound", digest=one.digest)
    del found["targets"]  # it has no views
    store.save_record(one, made_up_records.make_honest(found))
    return trial


def make_sound_record(trial: Trial, **more: object) -> dict:
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets/sound")
    return (
        made_up_records.make_honest(made_up_records.make_record(snippet="sound", digest=one.digest))
        | more
    )


def write_bundle(trial: Trial, *records: dict) -> str:
    path = trial.root / "records.json"
    path.write_text(bundle.bundle_text(records))
    return str(path)


def test_a_nameless_record_asks_for_a_name(recorded_trial: Trial) -> None:
    nameless = make_sound_record(recorded_trial)
    del nameless["origin"]
    file = write_bundle(recorded_trial, nameless)
    done = recorded_trial.run_shelf("import", file)
    assert done.returncode == 1 and not (recorded_trial.root / PLACE).exists()
    [line] = done.stderr.splitlines()
    assert "does not say who made it; add `--by NAME`" in line
    done = recorded_trial.run_shelf("import", file, "--by", "Ada Lovelace")
    assert (done.returncode, done.stdout) == (0, f"wrote {PLACE}\n")
    assert done.stderr == "handed in by Ada Lovelace; --by sets another name\n"
    assert json.loads((recorded_trial.root / PLACE).read_text())["origin"] == {
        "who": "Ada Lovelace"
    }
    assert recorded_trial.run_shelf("check").returncode == 0


def test_what_was_written_is_said_before_it_is_compared(
    recorded_trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_comparison(touched: object) -> list[str]:
        raise RuntimeError("other records cannot be read")

    monkeypatch.setattr(record_comparison, "find_disagreements", fail_comparison)
    monkeypatch.chdir(recorded_trial.root)
    with pytest.raises(RuntimeError):
        import_records(
            Path(write_bundle(recorded_trial, make_sound_record(recorded_trial))),
            False,
            "Ada",
            None,
            None,
            False,
        )
    assert capsys.readouterr().out == f"wrote {PLACE}\n"


def test_what_is_placed_by_hand_without_a_name_is_a_finding(recorded_trial: Trial) -> None:
    nameless = make_sound_record(recorded_trial)
    del nameless["origin"]
    (recorded_trial.root / PLACE).write_text(dump_json(nameless))
    [line] = recorded_trial.run_shelf("check").stderr.splitlines()
    assert line.startswith(f"{PLACE}: does not say who made it; ")


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "<b>"),
        ("--by", ""),
        ("--by", "Ada", "--attestation", "a.json"),
        ("--trusted-root", "root.json"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    recorded_trial: Trial, words: tuple[str, ...]
) -> None:
    done = recorded_trial.run_shelf(
        "import", write_bundle(recorded_trial, make_sound_record(recorded_trial)), *words
    )
    assert done.returncode == 2 and not (recorded_trial.root / PLACE).exists()


def test_doubts_are_said_and_refuse_nothing(recorded_trial: Trial) -> None:
    odd = make_sound_record(recorded_trial)
    odd["conditions"]["load"]["celsius_highest"] = 91
    file = write_bundle(recorded_trial, odd)
    done = recorded_trial.run_shelf("import", file)
    line = f"doubtful: sound on {KEY}: reached 91 °C, 85 or more; measure again when the GPU is "
    assert done.returncode == 0 and (recorded_trial.root / PLACE).exists()
    assert line in done.stderr
    answer = json.loads(recorded_trial.run_shelf("import", file, "--json").stdout)
    assert answer["written"] == [] and answer["doubts"][0].startswith(line)


def test_a_job_hands_in_by_its_attestation(recorded_trial: Trial, tmp_path: Path) -> None:
    sigstore, record = Sigstore(), make_sound_record(recorded_trial) | {"origin": {"job": RUN}}
    file, root, signed = (
        write_bundle(recorded_trial, record),
        tmp_path / "root.json",
        tmp_path / "a.json",
    )
    root.write_text(sigstore.trusted_root())
    told = recorded_trial.run_shelf("checksums", file)
    assert told.stdout == f"{record_checksum(record)}  {PLACE}\n"
    digest, _, _ = told.stdout.partition(" ")
    signed.write_text(json.dumps(sigstore.sign_bundle(make_statement([digest]))))

    done = recorded_trial.run_shelf("import", file)
    assert done.returncode == 1 and "without an attestation" in done.stderr
    done = recorded_trial.run_shelf("import", file, "--attestation", str(signed))
    assert done.returncode == 1 and "does not verify" in done.stderr  # the public root knows it not
    options = ("--attestation", str(signed), "--trusted-root", str(root))
    done = recorded_trial.run_shelf("import", file, *options)
    assert done.returncode == 0 and done.stderr == f"handed in by the job {RUN}\n"

    # The very bytes that the job summed up are those that stand in the checkout.
    assert (recorded_trial.root / PLACE).read_bytes() == schema.record_text(record).encode()
    assert recorded_trial.run_shelf("check").returncode == 0
    project = Project(recorded_trial.root)
    findings, _ = rendering.render_project(project)
    assert findings == []
    page = unescape((project.published_evidence / "sound.html").read_text())
    assert f'<a href="{RUN}">run 17</a>' in page
    assert f"<code>gh attestation verify {PLACE} --repo {REPOSITORY}</code>" in page
    assert f'"../records/sound/{KEY}.sigstore.json"' in page
    published = project.published_records / "sound"
    assert json.loads((published / f"{KEY}.sigstore.json").read_text()) == json.loads(
        signed.read_text()
    )
    assert (published / f"{KEY}.json").read_bytes() == (recorded_trial.root / PLACE).read_bytes()
    text = (recorded_trial.root / PLACE).read_text()
    (recorded_trial.root / PLACE).write_text(text.replace('"watts":320', '"watts":32'))
    assert "was changed since" in recorded_trial.run_shelf("check").stderr


def test_a_run_is_of_who_is_named_else_the_job_else_the_user(
    recorded_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(recorded_trial.root)
    monkeypatch.setattr(hand_in.bundle, "user_origin", lambda root: {"who": "Grace Hopper"})
    assert hand_in.run_origin(project, "Ada", None) == {"who": "Ada"}
    assert hand_in.run_origin(project, None, None) == {"who": "Grace Hopper"}
    assert hand_in.run_origin(project, None, Path("records.json")) is None
    server, _, run = RUN.partition(f"/{REPOSITORY}/actions/runs/")
    job = {"ACTIONS": "true", "SERVER_URL": server, "REPOSITORY": REPOSITORY, "RUN_ID": run}
    for name, value in job.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    assert hand_in.run_origin(project, None, Path("records.json")) == {"job": RUN}
    assert hand_in.run_origin(project, "Ada", None) == {"who": "Ada"}
