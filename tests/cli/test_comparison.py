"""This machine beside the published ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Trial, sound_snippet
from made_up_records import make_case, make_facts, make_record, make_result

from warpshelf.cli.compare import comparison_rows
from warpshelf.core.files import dump_json

LARGE = "dtype: float32, m: 4096, n: 4096, scale: 1.0"
SMALL = "dtype: float32, m: 1, n: 1, scale: 1.0"


def tabulate_values(found: list[dict]) -> dict[tuple[str, str, str], dict[str, str]]:
    assert all(row.keys() == {"case", "name", "quantity", "values"} for row in found)
    table = {(row["case"], row["name"], row["quantity"]): row["values"] for row in found}
    assert len(table) == len(found)
    return table


def test_times_stand_beside_each_other_where_there_are_any() -> None:
    other = make_record()
    other["cases"][2]["results"][1]["time"]["median"] = 9.9e-5
    table = tabulate_values(comparison_rows(make_record(), {"older-g8": other}))
    assert {quantity for *_, quantity in table} == {"median"}
    assert table[LARGE, "one pass", "median"] == {"here": "49.1 µs", "older-g8": "99.0 µs"}
    assert (LARGE, "fancy", "median") not in table


def test_without_times_it_is_the_errors() -> None:
    table = tabulate_values(comparison_rows(make_record(0), {"cpu": make_record(0)}))
    assert {quantity for *_, quantity in table} == {"error"}
    assert table[SMALL, "online", "error"] == {"here": "3.10e-8", "cpu": "3.10e-8"}


def test_a_cpu_beside_a_gpu_shows_the_times_that_there_are() -> None:
    table = tabulate_values(comparison_rows(make_record(0), {"imaginary-g9-80gb": make_record()}))
    assert table[LARGE, "online", "median"] == {"imaginary-g9-80gb": "49.3 µs"}
    assert all("here" not in machines for machines in table.values())


def test_a_case_of_one_side_only_has_one_value() -> None:
    mine = make_record(cases=[make_case(2, 3, [make_result("new", 1e-3)], timed=True)])
    table = tabulate_values(comparison_rows(mine, {"g9": make_record()}))
    assert table["dtype: float32, m: 2, n: 3, scale: 1.0", "new", "median"] == {"here": "1.00 ms"}
    assert table[LARGE, "online", "median"] == {"g9": "49.3 µs"}


def test_facts_stand_beside_each_other() -> None:
    fresh = make_record(0, cases=[], facts=make_facts())
    other = make_record(0, cases=[], facts=[make_facts()[0] | {"unit": "B"}])
    table = tabulate_values(comparison_rows(fresh, {"cpu": other}))
    assert table["", "parameters", "value"] == {"here": "6\u202f738\u202f415\u202f616"}
    assert table["", "parameters", "B"].keys() == {"cpu"}
    assert table["", "FLOPs", "value"].keys() == {"here"}


# The command.


def write_sound_record(trial: Trial, found: dict) -> Path:
    path = trial.root / "snippets" / "sound" / "results" / f"{found['machine']['slug']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_json(found))
    return path


@pytest.fixture
def sound_trial(trial: Trial) -> Trial:
    # A label with brackets and a word in colons: both mean something to the printer of the table.
    text = sound_snippet().replace(
        '{"m": 1, "n": 1, "k": 1,', '{"m": 1, "n": 1, "k": 1, "variants": ["[red] :bug:"],'
    )
    text = text.replace('{"product": lambda', '{"[red] :bug:": lambda')
    trial.add_snippet("sound", text)
    assert trial.run_shelf("run").returncode == 0
    return trial


def test_comparing_touches_no_record(sound_trial: Trial) -> None:
    path = sound_trial.root / "snippets" / "sound" / "results" / "cpu.json"
    aged = json.loads(path.read_text())
    aged["machine"]["python"] = "3.11.0"
    path.write_text(dump_json(aged))
    before = path.read_bytes(), path.stat().st_mtime_ns
    done = sound_trial.run_shelf("compare", "sound", "--json")
    assert done.returncode == 0
    table = tabulate_values(json.loads(done.stdout))
    shown = table["k: 33, m: 17, n: 5", "[red] :bug:", "error"]
    assert shown.keys() == {"here", "cpu"} and shown["here"] == shown["cpu"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [one.name for one in path.parent.iterdir()] == ["cpu.json"]


def test_the_table_shows_names_as_they_are(
    sound_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    done = sound_trial.run_shelf("compare", "sound")
    assert done.returncode == 0
    assert "variants: [[red] :bug:]" in done.stdout
    assert done.stdout.count(" [red] :bug: ") == 4
    assert done.stdout.endswith("here: CPU\n")


def test_stale_records_are_withheld_by_name(sound_trial: Trial) -> None:
    stale = make_record(snippet="sound")
    stale["cases"][2]["results"][0]["name"] = "never to be seen"
    write_sound_record(sound_trial, stale)
    for words in ([], ["--json"]):
        done = sound_trial.run_shelf("compare", "sound", *words)
        assert done.returncode == 0
        assert "never to be seen" not in done.stdout + done.stderr
        assert "µs" not in done.stdout and "4096" not in done.stdout
        said = "imaginary-g9-80gb: not shown, the source has changed since 2031-05-06"
        assert said in done.stderr.splitlines()
        assert "imaginary-g9-80gb" not in done.stdout


def test_a_damaged_record_is_told(sound_trial: Trial) -> None:
    write_sound_record(sound_trial, make_record(snippet="sound")).write_text("{")
    done = sound_trial.run_shelf("compare", "sound", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)
    assert "snippets/sound/results/imaginary-g9-80gb.json:1: is not the JSON" in done.stderr


def test_a_failing_snippet_is_told_once(sound_trial: Trial) -> None:
    path = sound_trial.root / "snippets" / "sound" / "sound.py"
    path.write_text(path.read_text().replace("torch.matmul(a, b, out=out)", "out.zero_()"))
    done = sound_trial.run_shelf("compare", "sound", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    found = [line for line in done.stderr.splitlines() if line.startswith("snippets/sound/")]
    assert len(found) == 1 and "[red] :bug:" in found[0]


def test_what_cannot_run_here_is_told(trial: Trial) -> None:
    text = sound_snippet().replace('{"seconds": 20}', '{"cpu": "clusters need a GPU"}')
    trial.add_snippet("sound", text)
    done = trial.run_shelf("compare", "sound")
    assert (done.returncode, done.stdout) == (1, "")
    said = [line for line in done.stderr.splitlines() if line.startswith("snippets/sound/sound.py")]
    assert len(said) == 1 and "clusters need a GPU" in said[0] and "; " in said[0]


def test_an_unknown_snippet_is_wrong_usage(sound_trial: Trial) -> None:
    done = sound_trial.run_shelf("compare", "soundd")
    assert done.returncode == 2
    assert "did you mean sound?" in " ".join(done.stderr.split())
