"""Machines beside each other, and records over time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Trial, sound_snippet
from made_up_records import make_case, make_facts, make_honest, make_record, make_result
from records_project import NAME, SLUG, Repository, make_timed_case

from warpshelf.cli.compare import comparison_rows
from warpshelf.core.files import dump_json
from warpshelf.records import bundle, history

# `shelf history` and `shelf compare --with`, on made-up records under version control.

OLD = "sha256:" + "1" * 64
HISTORY = ("history", NAME)
COMPARE = ("compare", NAME)


@pytest.fixture
def measured_repository(trial: Trial) -> Repository:
    """Three versions on one GPU, the last slower by one variant, and a second GPU."""
    found = Repository(trial)
    dates = iter(f"2031-0{number}-01T00:00:00Z" for number in range(1, 9))
    found.commit_record(
        make_timed_case(1), date=next(dates), digest=OLD, software={"driver": "550.1"}
    )
    found.commit_record(make_timed_case(0.8), date=next(dates), software={"driver": "550.1"})
    found.commit_record(
        make_timed_case(0.8, 1.5, 2.0), date=next(dates), software={"driver": "580.2"}
    )
    found.commit_record(
        make_timed_case(0.5), key="imaginary-z1", slug="imaginary-z1", device="Imaginary Z1"
    )
    return found


# The table.


def test_nothing_timed_says_how_to(trial: Trial) -> None:
    bare = Repository(trial)
    bare.write_record(make_record(0), "cpu")
    done = trial.run_shelf(*HISTORY)
    assert done.returncode == 0 and "nothing is timed yet" in done.stdout
    assert "`shelf run sound`" in " ".join(done.stdout.split())
    assert json.loads(trial.run_shelf(*HISTORY, "--json").stdout)["machines"] == []


def test_versions_and_changes_are_shown(measured_repository: Repository) -> None:
    done = measured_repository.trial.run_shelf(*HISTORY)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert f"{SLUG}: Imaginary G9 80GB, 3 versions" in text
    assert "imaginary-z1: Imaginary Z1, one version" in text
    assert "at 2: code 11111111 →" in text and "at 3: driver 550.1 → 580.2" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["2", "80.0", "µs", "78.4", "µs", "to", "82.4", "µs", "1.68", "TB/s", "1.25×",
            "faster"] in lines  # fmt: skip
    assert sum(line[-2:] == ["1.50×", "slower"] for line in lines) == 1
    assert sum(line[-2:] == ["2.00×", "slower"] for line in lines) == 1  # the library
    assert max(map(len, text.splitlines())) <= 100


def test_one_machine_is_chosen_by_kind_or_key(measured_repository: Repository) -> None:
    measured_repository.write_record(
        measured_repository.make_record(make_timed_case(3)), f"{SLUG}.2"
    )
    shown = measured_repository.trial.run_shelf(*HISTORY, "--machine", SLUG).stdout
    assert "imaginary-z1" not in shown and f"{SLUG}.2: " in shown
    shown = measured_repository.trial.run_shelf(*HISTORY, "--machine", f"{SLUG}.2").stdout
    assert f"{SLUG}: " not in shown and f"{SLUG}.2: " in shown
    done = measured_repository.trial.run_shelf(*HISTORY, "--machine", "nobody")
    assert done.returncode == 2 and "imaginary-z1" in done.stderr


def test_a_record_that_is_gone_is_still_in_the_history(measured_repository: Repository) -> None:
    measured_repository.locate_record("imaginary-z1").unlink()
    measured_repository.locate_record().write_text("{")
    measured_repository.commit_all("Remove")
    text = measured_repository.trial.run_shelf(*HISTORY).stdout
    assert "Imaginary Z1, one version; its record has been removed" in text
    assert "is not the JSON of a record: not shown" in text


def test_as_json(measured_repository: Repository) -> None:
    found = json.loads(measured_repository.trial.run_shelf(*HISTORY, "--json").stdout)
    assert found["snippet"] == NAME and found["remarks"] == []
    first = found["machines"][0]
    assert [one["driver"] for one in first["versions"]] == ["550.1", "550.1", "580.2"]
    assert first["versions"][2]["changed"] == "driver 550.1 → 580.2"
    [online] = [one for one in first["times"] if one["name"] == "online"]
    assert [one["factor"] for one in online["points"]] == [None, None, pytest.approx(1.5)]
    assert online["unit"] == "B/s" and online["points"][0]["rate"] == pytest.approx(1.1185e12, 1e-3)


# Slower than before.


def list_slowdowns(repository: Repository) -> list[str]:
    done = repository.trial.run_shelf("check")
    return [line for line in done.stderr.splitlines() if "slower than before" in line]


def test_a_slower_record_is_a_finding_until_somebody_says_why(
    measured_repository: Repository,
) -> None:
    before = measured_repository.locate_record().read_bytes()
    [line] = list_slowdowns(measured_repository)
    assert line.startswith(f"snippets/sound/results/{SLUG}.json: is slower than before: online, ")
    assert "120 µs (118 µs to 124 µs) against 180 µs (176 µs to 185 µs)" in line
    assert "driver 550.1 → 580.2, torch 2.13.0, Triton 3.7.1, SM clock 1980 MHz" in line
    assert "temperature 55 °C" in line and "torch, 4096" not in line  # a library is not ours
    done = measured_repository.trial.run_shelf(*HISTORY, "--because", " the driver \n spills ")
    assert (done.returncode, done.stdout) == (0, "wrote snippets/sound/slower.yml\n")
    assert measured_repository.locate_record().read_bytes() == before  # which a job may have signed
    assert list_slowdowns(measured_repository) == []
    assert (
        "3 may be slower: the driver spills" in measured_repository.trial.run_shelf(*HISTORY).stdout
    )
    measured_repository.commit_all()
    assert list_slowdowns(measured_repository) == []
    # Who measures again has to say it again, if it is slower still.
    measured_repository.write_record(
        measured_repository.make_record(make_timed_case(0.8, 2.0), date="2031-09-01T00:00:00Z")
    )
    assert len(list_slowdowns(measured_repository)) == 1


def test_what_is_not_committed_is_held_against_head(measured_repository: Repository) -> None:
    measured_repository.write_record(
        measured_repository.make_record(make_timed_case(0.8), date="2031-09-01T00:00:00Z")
    )
    assert list_slowdowns(measured_repository) == []
    measured_repository.write_record(
        measured_repository.make_record(make_timed_case(1.6, 1.5), date="2031-09-01T00:00:00Z")
    )
    [line] = list_slowdowns(measured_repository)
    assert "one pass, " in line


def test_a_stale_record_is_not_held_up(measured_repository: Repository) -> None:
    measured_repository.path.write_text(measured_repository.path.read_text() + "\nCHANGED = 1\n")
    assert list_slowdowns(measured_repository) == []


def test_many_cases_are_one_line_a_function(measured_repository: Repository) -> None:
    sides = (1024, 2048, 4096)
    measured_repository.commit_record(
        *(make_timed_case(1, n=n) for n in sides), date="2031-09-01T00:00:00Z"
    )
    cases = [make_timed_case(1.2 + n / 8192, 1.4, n=n) for n in sides]
    measured_repository.write_record(
        measured_repository.make_record(*cases, date="2031-10-01T00:00:00Z")
    )
    lines = list_slowdowns(measured_repository)
    assert len(lines) == 2 and all("(and in 2 more)" in line for line in lines)
    assert any("one pass, 4096 × 4096" in line for line in lines)  # the worst


def test_a_reason_needs_something_to_explain(measured_repository: Repository) -> None:
    trial = measured_repository.trial
    before = measured_repository.locate_record().read_bytes()
    for machine, says in ((("--machine", "imaginary-z1"), "no record is slower"),):
        done = trial.run_shelf(*HISTORY, "--because", "why", *machine)
        assert done.returncode == 1 and says in done.stderr
    for reason in ("", "  ", "x" * 501, "\x1b[31mred"):
        assert trial.run_shelf(*HISTORY, "--because", reason).returncode == 2
    key = "imaginary-z1"
    measured_repository.write_record(
        measured_repository.make_record(
            make_timed_case(0.7), slug=key, device="Imaginary Z1", date="2032-01-01T00:00:00Z"
        ),
        key,
    )
    done = trial.run_shelf(*HISTORY, "--because", "why")
    assert done.returncode == 1 and f"{SLUG}, {key}" in done.stderr
    assert measured_repository.locate_record().read_bytes() == before
    done = trial.run_shelf(*HISTORY, "--because", "why", "--machine", key, "--json")
    assert json.loads(done.stdout)["written"] == "snippets/sound/slower.yml"
    [reason] = history.load_reasons(measured_repository.project, NAME).items()
    assert reason == ((key, "2032-01-01T00:00:00Z"), "why")


# Two records side by side.


def test_one_record_beside_the_newest_of_its_kind_or_of_any_gpu(
    measured_repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = measured_repository.trial.run_shelf(*COMPARE, "--with", f"{SLUG}@HEAD~2")
    assert done.returncode == 0, done.stderr
    assert f"sound: {SLUG}, then {SLUG}@" in done.stdout
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    where = lines.index("Conditions that differ")
    assert "driver 580.2 → 550.1" in lines[where:] and where < lines.index(
        "4096 × 4096 float32 scale 1"
    )
    assert any(line.startswith("online 180 µs") and line.endswith("1.50× faster") for line in lines)
    assert any(line.startswith("one pass") and line.endswith("tie") for line in lines)
    assert "…" not in done.stdout  # all of it is seen on a terminal of 80 columns
    done = measured_repository.trial.run_shelf(*COMPARE, "--with", "imaginary-z1")
    assert f"sound: {SLUG}, then imaginary-z1" in done.stdout


def test_any_two_records(measured_repository: Repository) -> None:
    file = measured_repository.root / "mine.json"
    file.write_text(
        dump_json(measured_repository.make_record(make_timed_case(2), make_timed_case(1, n=64)))
    )
    done = measured_repository.trial.run_shelf(
        *COMPARE, "--with", "imaginary-z1", "--with", "mine.json", "--json"
    )
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["records"]] == ["imaginary-z1", f"mine.json#{SLUG}"]
    assert {"name": "driver", "first": "999.1", "second": "999.1"} not in found["conditions"]
    rows = {(row["name"], row["case"]): row for row in found["rows"]}
    row = rows["one pass", "4096 × 4096 float32 scale 1"]
    assert row["ratio"] == pytest.approx(4) and row["standing"] == "4.00× slower"
    assert rows["one pass", "64 × 4096 float32 scale 1"]["standing"] == "on one only"


def test_a_record_in_a_bundle(measured_repository: Repository) -> None:
    mine = measured_repository.make_record(make_timed_case(2))
    other = measured_repository.make_record(
        make_timed_case(2), slug="imaginary-z1", device="Imaginary Z1"
    )
    cpu = make_record(0, snippet=NAME)
    foreign = make_record()
    file = measured_repository.root / "records.json"
    file.write_text(bundle.bundle_text([foreign, cpu, mine]))
    compare = (*COMPARE, "--with", "records.json")
    assert "records.json#imaginary-g9-80gb" in measured_repository.trial.run_shelf(*compare).stdout
    assert "records.json#cpu" in measured_repository.trial.run_shelf(
        *COMPARE, "--with", "records.json#cpu", "--with", SLUG
    ).stdout  # fmt: skip
    file.write_text(bundle.bundle_text([cpu, mine, other]))
    done = measured_repository.trial.run_shelf(*compare)
    assert done.returncode == 1 and "has 3 records of sound: cpu, " in done.stderr
    named = (*COMPARE, "--with", "records.json#imaginary-z1")
    assert "then records.json#imaginary-z1" in measured_repository.trial.run_shelf(*named).stdout
    file.write_text(bundle.bundle_text([foreign]))
    assert "has no record of sound" in measured_repository.trial.run_shelf(*compare).stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody", "is neither a record of sound nor a file"),
        (f"{SLUG}.2", f"({SLUG}, imaginary-z1)"),
        (f"{SLUG}@nowhere", "does not exist at nowhere"),
        (f"{SLUG}@HEAD~9", "`shelf history sound`"),
        ("docs/index.md", "is not the JSON of a record"),
        (f"{SLUG}@--help", "does not exist at --help"),
    ],
)
def test_a_name_that_means_nothing_is_one_line(
    measured_repository: Repository, name: str, says: str
) -> None:
    done = measured_repository.trial.run_shelf(*COMPARE, "--with", name)
    assert done.returncode == 1 and says in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_a_committed_record_without_a_possible_time_is_one_line(
    measured_repository: Repository,
) -> None:
    broken = measured_repository.make_record(make_timed_case(1))
    broken["cases"][0]["results"][0]["time"] |= {"median": 0.0, "p20": 0.0, "p80": 0.0}
    measured_repository.write_record(broken)
    measured_repository.commit_all()
    measured_repository.write_record(measured_repository.make_record(make_timed_case(1)))
    done = measured_repository.trial.run_shelf(*COMPARE, "--with", f"{SLUG}@HEAD", "--with", SLUG)
    says = f"{SLUG}@HEAD: cannot be read: 'one pass' has no possible time"
    assert done.returncode == 1 and done.stderr.startswith(says)
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_two_is_company(measured_repository: Repository) -> None:
    three = ("--with", SLUG) * 3
    assert measured_repository.trial.run_shelf(*COMPARE, *three).returncode == 2
    measured_repository.locate_record("imaginary-z1").unlink()
    done = measured_repository.trial.run_shelf(*COMPARE, "--with", SLUG)
    assert done.returncode == 1 and "is the only record of sound" in done.stderr


def test_errors_and_facts_where_there_are_no_times(measured_repository: Repository) -> None:
    one = make_record(0, snippet=NAME, facts=make_facts())
    other = make_record(0, snippet=NAME, facts=make_facts()[:1])
    for name, found in (("one.json", one), ("other.json", other)):
        (measured_repository.root / name).write_text(dump_json(found))
    text = measured_repository.trial.run_shelf(
        *COMPARE, "--with", "one.json", "--with", "other.json"
    ).stdout
    assert "No other condition differs" in text and "3.10e-8" in text and "FLOPs" in text


# Side by side.


def test_who_stands_beside_another_is_told(measured_repository: Repository) -> None:
    disagrees = measured_repository.make_record(make_timed_case(3), date="2031-09-01T00:00:00Z")
    measured_repository.write_record(disagrees, f"{SLUG}.2")
    line = f"snippets/sound/results/{SLUG}.2.json: stands beside {SLUG}.json: they disagree on "
    told = measured_repository.trial.run_shelf("check").stderr
    [said] = [row for row in told.splitlines() if "stands beside" in row]
    assert said.startswith(line) and "driver 580.2 → 999.1" in said
    measured_repository.write_record(
        measured_repository.make_record(make_timed_case(0.8, 1.5, 2.0)), f"{SLUG}.2"
    )
    assert (
        "they agree within the spread of both"
        in measured_repository.trial.run_shelf("check").stderr
    )


def test_import_says_why_a_record_is_put_beside_another(measured_repository: Repository) -> None:
    measured_repository.write_record(
        make_honest(measured_repository.make_cpu_record(make_timed_case(1))), "cpu"
    )
    file = measured_repository.root / "records.json"
    small = measured_repository.make_cpu_record()["cases"][0]
    file.write_text(
        bundle.bundle_text(
            [make_honest(measured_repository.make_record(small, make_timed_case(3)))]
        )
    )
    done = measured_repository.trial.run_shelf("import", "records.json", "--by", "Ada Lovelace")
    assert done.returncode == 0, done.stderr
    written, told = done.stdout.splitlines()
    assert written == f"wrote snippets/sound/results/{SLUG}.2.json"
    assert f"stands beside {SLUG}.json: they disagree on one pass" in told


# This machine beside the published ones.

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
