"""A run on sound and wrong snippets, as a user would start it.
Takes 20 s, as most tests run a command.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
from conftest import MKDOCS, ROOT, WRONG, Trial, new_trial, sound_snippet, wrong_snippet

from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.pool import AHEAD, Pool
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger

PARTS = re.split(r"^# ==== (\w+) ====\n", (WRONG / "overlays.txt").read_text("utf-8"), flags=re.M)
OVERLAYS = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))
HOSTILE = """

def demo(device):
    print("<script>document.title = 'taken'</script> & <img src=x onerror=alert(1)>")
    print("\\x1b[31mred\\x1b[0m \\x07bell")
    print("```\\n=== \\"tab\\"\\n~~~")
    print("--8<-- \\"/etc/passwd\\"\\n;--8<--\\n# heading")
    print("[x](javascript:alert(1)) **bold**")
    print("::: warpshelf.verify\\n{{ config.site_name }}\\n\\n    code")

"""


@dataclass
class Outcome:
    """One run over everything, and the site built after it."""

    trial: Trial
    run: subprocess.CompletedProcess[str]
    verdicts: dict[str, dict]
    site: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def wrong_outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    trial = new_trial(tmp_path_factory.mktemp("wrong") / "trial")
    trial.add_snippet("sound", sound_snippet())
    head, guard, tail = sound_snippet().partition('if __name__ == "__main__":')
    trial.add_snippet("hostile", f"{head}{HOSTILE}{guard}{tail}")
    for name, overlay in OVERLAYS.items():
        trial.add_snippet(name, wrong_snippet(overlay))
    latin = trial.add_snippet("latin", sound_snippet().replace("matrix", "m\u00e4trix"))
    latin.write_bytes(latin.read_text(encoding="utf-8").encode("latin-1"))
    for name in ["sound", "hostile", "latin", *OVERLAYS]:
        trial.add_page(f"{name}.md", f'# Page of {name}\n\n--8<-- "{name}/whole.md"\n')
    run = trial.run_shelf("run", "--json")
    verdicts = {verdict["snippet"]: verdict for verdict in json.loads(run.stdout)}
    return Outcome(trial, run, verdicts, trial.run_shelf("site"))


def test_a_run_with_anything_wrong_exits_with_1(wrong_outcome: Outcome) -> None:
    assert wrong_outcome.run.returncode == 1
    assert wrong_outcome.verdicts.keys() == {"sound", "hostile", "latin", *OVERLAYS}


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_is_wrong_is_said_in_one_line(wrong_outcome: Outcome, name: str) -> None:
    says = re.search(r"^# says: (.*)$", OVERLAYS[name], re.M)
    assert says is not None
    verdict = wrong_outcome.verdicts[name]
    assert verdict["state"] == "failed"
    assert len(verdict["findings"]) == 1
    [line] = verdict["findings"]
    assert re.search(says[1], line), line
    assert line.startswith((f"snippets/{name}/{name}.py:", f"snippets/{name}/cases.py:"))
    assert "; " in line.partition(": ")[2], f"no mend in {line!r}"
    assert line in wrong_outcome.run.stderr.splitlines()


def test_a_file_that_is_not_utf8_is_named(wrong_outcome: Outcome) -> None:
    [line] = wrong_outcome.verdicts["latin"]["findings"]
    assert re.fullmatch(r"snippets/latin/latin\.py: is not UTF-8 at byte \d+; save .*", line)


@pytest.mark.parametrize("name", ["latin", *OVERLAYS])
def test_what_is_wrong_publishes_nothing(wrong_outcome: Outcome, name: str) -> None:
    root = wrong_outcome.trial.root
    assert not (root / "snippets" / name / "results").exists()
    assert not (root / "docs" / "records" / name).exists()
    whole = (root / "build" / "fragments" / name / "whole.md").read_text(encoding="utf-8")
    assert "The last run here failed" in whole
    proof = (root / "docs" / "evidence" / f"{name}.html").read_text(encoding="utf-8")
    assert all("<table" not in text and "ws-output" not in text for text in (whole, proof))


def test_the_sound_ones_pass_and_the_site_is_built(wrong_outcome: Outcome) -> None:
    assert wrong_outcome.verdicts["sound"]["state"] == "passed"
    assert wrong_outcome.verdicts["hostile"]["state"] == "passed"
    # What is wrong in source fails the build's status as well, and costs no page.
    assert wrong_outcome.site.returncode == 1
    for name in ["sound", "hostile", *OVERLAYS]:
        page = wrong_outcome.trial.root / "site" / name / "index.html"
        assert f"Page of {name}" in page.read_text(encoding="utf-8")
    sound = (wrong_outcome.trial.root / "site" / "sound" / "index.html").read_text(encoding="utf-8")
    assert "[[1.0, 1.0], [1.0, 1.0]]" in unescape(sound)
    assert "evidence/sound.html" in sound


def test_hostile_output_is_shown_and_does_nothing(wrong_outcome: Outcome) -> None:
    html = (wrong_outcome.trial.root / "site" / "hostile" / "index.html").read_text(
        encoding="utf-8"
    )
    assert "document.title" in html
    assert "<script>document.title" not in html
    assert "<img src=x" not in html
    assert 'href="javascript:' not in html
    assert "\x1b" not in html and "\x07" not in html
    assert "root:x:0" not in html
    assert '"tab"</label>' not in html


def test_nothing_changed_runs_nothing(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    assert trial.run_shelf("run").returncode == 0
    record = trial.root / "snippets" / "sound" / "results" / "cpu.json"
    before = record.read_bytes(), record.stat().st_mtime_ns
    again = trial.run_shelf("run", "--json")
    assert [verdict["state"] for verdict in json.loads(again.stdout)] == ["current"]
    forced = trial.run_shelf("run", "--force", "--json")
    assert [verdict["state"] for verdict in json.loads(forced.stdout)] == ["passed"]
    assert (record.read_bytes(), record.stat().st_mtime_ns) == before


def test_a_quick_run_tells_right_from_wrong_and_records_nothing(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    trial.add_snippet("bad", sound_snippet().replace("b, out=out)", "b, out=out) + 1"))
    good = trial.run_shelf("run", "sound", "--quick")
    assert good.returncode == 0 and good.stderr == ""
    assert good.stdout.startswith("sound: right on ")
    assert "nothing is recorded; `shelf run sound` verifies all" in good.stdout
    both = trial.run_shelf("run", "--quick", "--json")
    bad, sound = json.loads(both.stdout)
    assert both.returncode == 1 and sound["findings"] == [] and sound["ran"]
    assert "variant 'product' is wrong on case" in bad["findings"][0]["what"]
    assert not list((trial.root / "snippets").glob("*/results"))
    assert not (trial.root / ".shelf" / "ledger.json").exists()
    wrong = trial.run_shelf("run", "--quick", "--force")
    assert wrong.returncode == 2 and "records nothing" in wrong.stderr


def commit_record(trial: Trial, text: str, **changes: object) -> Path:
    """The record that `text` leaves, made other by `changes`, in a checkout that ran nothing."""
    trial.add_snippet("sound", text)
    trial.run_shelf("run")
    record = trial.root / "snippets" / "sound" / "results" / "cpu.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))
    (trial.root / ".shelf" / "ledger.json").unlink()
    return record


def read_state(trial: Trial, *words: str) -> str:
    """The state of the one snippet after a run."""
    return str(json.loads(trial.run_shelf("run", "--json", *words).stdout)[0]["state"])


def test_a_fresh_checkout_trusts_the_record_and_runs_the_demo_once(trial: Trial) -> None:
    record = commit_record(
        trial, sound_snippet(), date="2026-11-20T01:02:03Z", commit="2b9b864012e4"
    )
    before = record.read_bytes()
    plan = json.loads(trial.run_shelf("run", "--plan", "--json").stdout)
    assert [(one["to_run"], one["demos"]) for one in plan["machines"]] == [(1, 1)]
    run = trial.run_shelf("run")
    assert run.stderr.splitlines()[0].startswith("CPU: 1 demo of trusted records to run; about ")
    assert "prints the same as its record of 2026-11-20, commit 2b9b864012e4" in run.stderr
    trusted = "1 record trusted (of 2026-11-20 at commit 2b9b864012e4), 0 verified here"
    assert run.stderr.splitlines()[-1] == f"1 demo run, {trusted}"
    assert trial.run_shelf("run").stderr.splitlines() == [f"0 demos run, {trusted}"]
    assert record.read_bytes() == before


def test_a_demo_of_a_trusted_record_needs_no_cases(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    cases = trial.root / "snippets" / "sound" / "cases.py"
    cases.write_text(cases.read_text() + "\nraise RuntimeError('imported')\n")
    one = snippet.read_snippet(Project(trial.root), cases.parent)
    work = SnippetRun(one, ledger.describe_host(), None, trusted=True)
    with Pool(1) as children:
        [outcome] = children.run(work.untimed_jobs())
    assert outcome.answer is not None and outcome.answer["failures"] == []
    work.add_outcome(outcome)
    assert (work.final_findings(), work.demo) == ([], "[[1.0, 1.0], [1.0, 1.0]]\n")


def test_a_demo_that_lacks_a_library_is_skipped_and_named(trial: Trial) -> None:
    record = commit_record(
        trial, sound_snippet().replace("NEEDS = {", 'NEEDS = {"modules": ["json"], ')
    )
    cases = trial.root / "snippets" / "sound" / "cases.py"
    cases.write_text(cases.read_text().replace('["json"]', '["no_such_library"]'))
    one = snippet.read_snippet(Project(trial.root), cases.parent)
    record.write_text(json.dumps({**json.loads(record.read_text()), "digest": one.digest}))
    run = trial.run_shelf("run")
    assert run.returncode == 0
    *_, counts, why = run.stderr.splitlines()
    assert counts == "1 skipped"
    assert why.startswith("  1 skipped: no_such_library is not installed in this environment; ")


def test_all_is_verified_on_demand_and_keeps_the_record(trial: Trial) -> None:
    record = commit_record(trial, sound_snippet(), date="2026-11-20T01:02:03Z")
    before = record.read_bytes()
    assert [read_state(trial, "--all"), read_state(trial), read_state(trial, "--all")] == [
        "passed",
        "current",
        "passed",
    ]
    assert record.read_bytes() == before
    assert (
        trial.run_shelf("run")
        .stderr.splitlines()[-1]
        .endswith(" 0 records trusted, 1 verified here")
    )


def test_a_demo_that_departs_from_its_record_fails_until_it_prints_that(trial: Trial) -> None:
    record = commit_record(trial, sound_snippet(), demo="[[1.0, 1.0], [1.0, 2.0]]\n")
    for _ in range(2):  # a failure is never kept for a pass
        run = trial.run_shelf("run")
        assert run.returncode == 1
        assert len(re.findall(r"demo\(\) differs from its record of .*; make", run.stderr)) == 1
        assert run.stderr.splitlines()[-1] == "1 failed"
    assert trial.run_shelf("site", "--render-only").returncode == 0
    whole = (trial.root / "build" / "fragments" / "sound" / "whole.md").read_text()
    assert "The last run here failed" in whole and "<table" not in whole
    right = {**json.loads(record.read_text()), "demo": "[[1.0, 1.0], [1.0, 1.0]]\n"}
    record.write_text(json.dumps(right))
    assert [read_state(trial), read_state(trial)] == ["trusted", "current"]
    trial.run_shelf("site", "--render-only")
    whole = (trial.root / "build" / "fragments" / "sound" / "whole.md").read_text()
    proof = (trial.root / "docs" / "evidence" / "sound.html").read_text()
    assert "run again here" in whole and "<table" in proof


def test_a_failure_is_never_cached(trial: Trial) -> None:
    trial.add_snippet("zeros", wrong_snippet(OVERLAYS["zeros"]))
    for _ in range(2):
        run = trial.run_shelf("run", "--json")
        assert run.returncode == 1
        assert json.loads(run.stdout)[0]["state"] == "failed"


def test_a_changed_helper_runs_again_what_imports_it(trial: Trial) -> None:
    helped = sound_snippet().replace(
        "import torch\n", "import torch\n\nfrom snippets import help\n"
    )
    trial.add_snippet("helped", helped.replace("a.double() @", "help.same(a).double() @"))
    trial.add_snippet("sound", sound_snippet())
    helper = trial.root / "snippets" / "help.py"
    helper.write_text("def same(x):\n    return x\n")
    assert trial.run_shelf("run").returncode == 0
    helper.write_text("def same(x):\n    return +x\n")
    states = {v["snippet"]: v["state"] for v in json.loads(trial.run_shelf("run", "--json").stdout)}
    assert states == {"helped": "passed", "sound": "current"}


def test_out_writes_one_file_that_import_puts_in_place(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    trial.add_snippet("zeros", wrong_snippet(OVERLAYS["zeros"]))
    run = trial.run_shelf("run", "--out", "records.json")
    assert run.returncode == 1
    assert not (trial.root / "snippets" / "sound" / "results").exists()
    assert trial.run_shelf("import", "records.json").returncode == 0
    record = json.loads((trial.root / "snippets" / "sound" / "results" / "cpu.json").read_text())
    assert record["snippet"] == "sound"
    assert not (trial.root / "snippets" / "zeros" / "results").exists()


@pytest.mark.exhaustive("a budget of seconds, spent by the clock")
def test_a_spent_budget_leaves_the_rest_for_the_next_run(trial: Trial) -> None:
    slow = wrong_snippet(OVERLAYS["infinite_loop"]).replace('"seconds": 2', '"seconds": 600')
    trial.add_snippet("endless", slow)
    run = trial.run_process("run", "--budget", "4", "--json")  # ends long before the snippet may
    assert run.returncode == 0
    assert json.loads(run.stdout)[0]["state"] == "left"


@pytest.mark.exhaustive("kills at many moments")
def test_a_run_killed_at_any_moment_leaves_whole_records(trial: Trial) -> None:
    names = [f"sound_{index}" for index in range(6)]
    for name in names:
        trial.add_snippet(name, sound_snippet())
    command = [sys.executable, str(ROOT / "scripts" / "build.py"), "run"]
    for delay in (1.0, 2.5, 3.0):
        process = subprocess.Popen(
            command, cwd=trial.root, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in trial.root.glob("snippets/*/results/*.json"):
            assert json.loads(path.read_text())["snippet"] == path.parents[1].name
    assert trial.run_shelf("run").returncode == 0
    assert len(list(trial.root.glob("snippets/*/results/cpu.json"))) == len(names)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.exhaustive("a run is killed, and its processes are waited for")
def test_no_process_outlives_a_killed_run(trial: Trial) -> None:
    text = wrong_snippet(OVERLAYS["infinite_loop"])
    trial.add_snippet("endless", text.replace('"seconds": 2', '"seconds": 600'))
    mark = {**os.environ, "TRIAL_MARK": str(trial.root)}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "build.py"), "run"],
        cwd=trial.root,
        env=mark,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(_find_marked(str(trial.root))) < 4 and time.monotonic() < deadline:
        time.sleep(0.2)  # parent, resource tracker, fork server, child
    assert len(_find_marked(str(trial.root))) >= 4
    process.kill()
    process.wait()
    while _find_marked(str(trial.root)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _find_marked(str(trial.root))


def _find_marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TRIAL_MARK={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_an_unknown_id_is_wrong_usage(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    run = trial.run_shelf("run", "soundd")
    assert run.returncode == 2
    assert "did you mean sound?" in " ".join(run.stderr.split())


def test_outside_a_checkout_the_own_one_serves(tmp_path: Path) -> None:
    assert "site_name" in MKDOCS
    run = Trial(tmp_path).run_process("run", "no_such_snippet")
    assert run.returncode == 2


def test_a_file_that_cannot_be_written_is_one_line(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    (trial.root / "taken").write_text("a file where a folder is wanted")
    run = trial.run_process("run", "--out", "taken/records.json")
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert any(line.startswith("taken") for line in run.stderr.splitlines()), run.stderr


def test_out_is_written_even_if_nothing_is_stale(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    assert trial.run_shelf("run").returncode == 0
    run = trial.run_shelf("run", "--out", "records.json", "--json")
    assert json.loads(run.stdout)[0]["state"] == "current"
    assert json.loads((trial.root / "records.json").read_text())["records"] == []
    imported = trial.run_shelf("import", "records.json")
    assert (imported.returncode, "nothing to write" in imported.stdout) == (0, True)


def test_a_run_cut_short_is_carried_on_in_its_file(trial: Trial) -> None:
    for name in ("first", "second"):
        trial.add_snippet(name, sound_snippet())
    assert trial.run_shelf("run", "first", "--out", "records.json").returncode == 0
    run = trial.run_shelf("run", "--out", "records.json", "--json")
    states = {verdict["snippet"]: verdict["state"] for verdict in json.loads(run.stdout)}
    assert states == {"first": "current", "second": "passed"}
    records = json.loads((trial.root / "records.json").read_text())["records"]
    assert [item["snippet"] for item in records] == ["first", "second"]


def test_what_only_compiles_here_is_current_after_one_run(trial: Trial) -> None:
    assert trial.run_shelf("new", "scale").returncode == 0
    path = trial.root / "snippets" / "scale" / "cases.py"
    text = path.read_text()
    path.write_text(text.replace("CASES = (", 'NEEDS = {"cpu": "a trial"}\nCASES = (', 1))
    ledger = trial.root / ".shelf" / "ledger.json"
    states = []
    for _ in range(2):
        ledger.unlink(missing_ok=True)
        states += [
            json.loads(trial.run_shelf("run", "--json").stdout)[0]["state"] for _ in range(2)
        ]
    assert states == ["passed", "current", "current", "current"]  # it has no demo to run
    record = json.loads((path.parent / "results" / "cpu.json").read_text())
    assert record["compiled"] and "cases" not in record
    assert record["skips"] == [{"what": "everything", "reason": "a trial"}]


def test_a_failure_is_forgotten_once_it_passes_into_a_file(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    trial.run_shelf("run")
    ledger = trial.root / ".shelf" / "ledger.json"
    noted = json.loads(ledger.read_text())
    noted["sound"]["cpu"]["failure"] = "it was slow"
    ledger.write_text(json.dumps(noted))
    assert trial.run_shelf("run", "--out", "records.json").returncode == 0
    assert "failure" not in json.loads(ledger.read_text())["sound"]["cpu"]


class Stop(Exception):
    """Ends a run where its children would begin."""


@pytest.mark.parametrize(
    ("triton", "cuda", "gpu", "expected"),
    [
        (True, False, False, AHEAD),
        (False, True, False, AHEAD),
        (False, False, False, ()),
        (True, False, True, ()),
    ],
)
def test_the_fork_server_loads_ahead_what_kernels_on_a_cpu_need(
    trial: Trial,
    monkeypatch: pytest.MonkeyPatch,
    triton: bool,
    cuda: bool,
    gpu: bool,
    expected: tuple[str, ...],
) -> None:
    from warpshelf.bench import run

    asked: list[tuple[str, ...]] = []

    def refuse_pool(workers: int, preload: tuple[str, ...] = ()) -> None:
        asked.append(preload)
        raise Stop

    monkeypatch.setattr(run, "Pool", refuse_pool)
    monkeypatch.setattr(run.ledger, "may_have_gpu", lambda: gpu)
    path = trial.add_sound_snippet()
    if cuda:
        path.with_suffix(".cu").write_text("")
    one = snippet.read_snippet(Project(trial.root), path.parent)
    with pytest.raises(Stop):
        changed = dataclasses.replace(one, uses_triton=triton)
        run.Run(Project(trial.root), run.Options()).run_stale([changed])
    assert asked == [expected]
