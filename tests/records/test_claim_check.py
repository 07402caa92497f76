"""Forged records of every sort, against what the record of the CPU says is due."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import made_up_records
import pytest
from conftest import Trial, sound_snippet
from made_up_records import remove_at, set_at

from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.records import bundle, claim_check, schema, store
from warpshelf.records.claim_check import COST
from warpshelf.records.schema import Record

SMALL, TIMED = 1, 2  # cases of made_up_records.make_ladder()


def make_snippet(root: Path = Path("."), **more: object) -> Snippet:
    return Snippet(Project(root), "softmax", root / "snippets" / "softmax", **more)


def make_honest_record(gpus: int = 1, **more: object) -> Record:
    return made_up_records.make_honest(made_up_records.make_record(gpus, **more))


def list_claim_errors(claim: Record, truth: Record | None = None, **more: object) -> list[str]:
    for one in (claim, truth or make_honest_record(0)):
        assert schema.shape_problem(one) is None and schema.validation_error(one) is None
    return claim_check.claim_errors(claim, truth or make_honest_record(0), make_snippet(**more))


def test_an_honest_record_has_no_fault() -> None:
    assert list_claim_errors(make_honest_record()) == []
    assert list_claim_errors(make_honest_record(0)) == []


def more_results(*made: dict) -> Callable[[list], list]:
    return lambda old: [*old, *made]


ROW = "cases.1"  # the second case of made_up_records.make_ladder(); the third is timed
OUT = "out of memory in variant 'online'"
SKIPPED = {"name": "online", "role": "variant", "verdict": "skipped", "reason": "needs SM 100"}


def case_added(claim: Record) -> None:
    claim["cases"].append(copy.deepcopy(claim["cases"][0]) | {"case": {"m": 2}})


def case_twice(claim: Record) -> None:
    claim["cases"].append(copy.deepcopy(claim["cases"][0]))


def small_case_out_of_memory(claim: Record) -> None:
    case = claim["cases"].pop(SMALL)["case"]
    claim["skips"] = [{"what": f"case {case}", "reason": "out of memory"}]


def skip_of_another_case(claim: Record) -> None:
    del claim["cases"][TIMED]
    claim["skips"] = [{"what": "case {'m': 1}", "reason": OUT}]


FORGED: dict[str, tuple[Callable[[Record], None], str]] = {
    "looser": (
        set_at(f"{ROW}.results.0.tolerance", 1.0),
        "allows the variant 'one pass' an error of 1.0 on the case .*, not 5e-06",
    ),
    "looser where timed": (
        set_at("cases.2.results.1.tolerance", 5e-3),
        "allows the variant 'one pass' an error of 0.005 on the timed case",
    ),
    "peer looser": (
        set_at(f"{ROW}.results.2.tolerance", 1.0),
        "allows the peer 'torch' an error of 1.0",
    ),
    "no case": (
        set_at("cases", []),
        'leaves out the case .*"m": 1,.*leaves out the case.*leaves out the timed case',
    ),
    "no cases at all": (
        remove_at("cases"),
        "leaves out the case .*leaves out the case.*leaves out the timed case",
    ),
    "case left out": (remove_at(ROW), 'leaves out the case .*"m": 37'),
    "timed case left out": (remove_at("cases.2"), 'leaves out the timed case .*"m": 4096'),
    "case changed": (
        set_at(f"{ROW}.case.n", 780),
        'a case that is not expected: .*"n": 780.*leaves out the case .*"n": 781',
    ),
    "case added": (case_added, 'has a case that is not expected: the case {"m": 2}'),
    "case twice": (case_twice, "has a case that is not expected"),
    "variant left out": (
        remove_at(f"{ROW}.results.1"),
        "leaves out the variant 'online' on the case",
    ),
    "variant left out where timed": (
        remove_at("cases.2.results.0"),
        "leaves out the variant 'three passes' on the timed case",
    ),
    "variant added": (
        set_at(f"{ROW}.results", more_results(made_up_records.make_result("better"))),
        "has the variant 'better', which is not expected on the case",
    ),
    "variant twice": (
        set_at(f"{ROW}.results", more_results(made_up_records.make_result("online"))),
        "has the variant 'online', which is not expected on the case",
    ),
    "variant as peer": (
        set_at(f"{ROW}.results.1.role", "peer"),
        "the peer 'online', which is not expected.*leaves out the variant 'online'",
    ),
    "peer left out": (
        remove_at("cases.2.results.3"),
        "leaves out the peer 'torch' on the timed case",
    ),
    "variant skipped": (
        set_at(f"{ROW}.results.1", SKIPPED),
        "skips the variant 'online' on .*, for which NEEDS gives no reason",
    ),
    "variant untimed": (
        remove_at("cases.2.results.1.time"),
        "has neither a time of the variant 'one pass' on the timed case",
    ),
    "small case out of memory": (small_case_out_of_memory, 'leaves out the case .*"m": 37'),
    "skip of another case": (skip_of_another_case, 'leaves out the timed case .*"m": 4096'),
    "cheaper": (
        set_at("cases.2.bytes", 2**26),
        "states 67108864 bytes on the timed case .*, not 134217728",
    ),
    "of another unit": (
        set_at("cases.2.unit", "bf16"),
        "states bf16 unit on the timed case .*, not fp32",
    ),
}


@pytest.mark.parametrize(("forge", "says"), FORGED.values(), ids=FORGED)
def test_a_forged_record_is_found_out(forge: Callable[[Record], None], says: str) -> None:
    claim = make_honest_record()
    forge(claim)
    found = list_claim_errors(claim)
    assert re.search(says, " ".join(found)), found


def test_a_loosened_measure_of_the_cpu_is_found_out_by_a_fresh_one() -> None:
    loose = make_honest_record(0)
    loose["due"][0]["tolerance"] = 1.0
    assert list_claim_errors(loose) == ["expects other results than the source"]
    del loose["due"]
    assert list_claim_errors(loose) == ["expects other results than the source"]
    assert list_claim_errors(make_honest_record(), loose) == [
        "cannot be checked: the CPU record does not say what to expect"
    ]


def test_a_variant_may_be_skipped_for_the_reason_that_needs_gives() -> None:
    claim, truth = make_honest_record(), make_honest_record(0)
    why = "needs SM 100; this GPU is SM 90"
    skipped = {"name": "online", "role": "variant", "verdict": "skipped", "reason": why}
    for row in claim["cases"]:
        row["results"] = [skipped if r["name"] == "online" else r for r in row["results"]]
    assert list_claim_errors(claim, truth, needs={"variants": {"online": {"sm": 100}}}) == []
    elsewhere = list_claim_errors(claim, truth, needs={"variants": {"online": {"sm": 90}}})
    assert len(elsewhere) == 3 and all("NEEDS gives no reason" in line for line in elsewhere)


def test_a_case_to_time_may_be_too_large_for_a_gpu() -> None:
    claim = make_honest_record()
    case = claim["cases"].pop(TIMED)["case"]
    claim["skips"] = [{"what": f"case {case}", "reason": "out of memory in variant 'online'"}]
    assert list_claim_errors(claim) == []


def test_no_machine_may_leave_out_a_case_for_its_dtype() -> None:
    rows = made_up_records.make_ladder()
    rows[0]["case"]["dtype"] = "bfloat16"
    truth = make_honest_record(0, cases=rows[1:2]) | {"due": made_up_records.list_due(rows)}
    assert "leaves out the case" in list_claim_errors(truth, truth, uses_triton=True)[0]
    claim = make_honest_record(cases=rows[1:])
    assert "bfloat16" in list_claim_errors(claim, truth, uses_triton=True)[0]


def test_what_only_compiles_there_has_no_results() -> None:
    why = {"what": "everything", "reason": "needs SM 100; this GPU is SM 90"}
    compiled = make_honest_record(cases=[]) | {"demo": "", "skips": [why]}
    needs = {"sm": 100}
    assert list_claim_errors(compiled, needs=needs) == []
    assert (
        "though the snippet does not run there"
        in list_claim_errors(make_honest_record(), needs=needs)[0]
    )


def test_predictions_and_goals_are_those_of_the_cpu() -> None:
    stated = {
        "predictions": made_up_records.make_predictions(),
        "goals": made_up_records.make_goals(),
    }
    truth = make_honest_record(
        0, cases=[], kind="model", facts=made_up_records.make_facts(), **stated
    )
    claim = copy.deepcopy(truth)
    claim["predictions"][0]["predicted"] = 101.01
    assert list_claim_errors(claim, truth, kind="model") == []
    claim["predictions"][0]["predicted"] = 102.0
    assert list_claim_errors(claim, truth, kind="model") == ["predicts 102.0 of 'small', not 101.0"]
    claim["predictions"][0]["predicted"] = 101.0
    claim["predictions"][1]["published"] = 96.0
    del claim["predictions"][3], claim["goals"][1]
    assert list_claim_errors(claim, truth, kind="model") == [
        "leaves out the prediction 'a <b> node', or has it with another published figure",
        "leaves out the prediction 'middle', or has it with another published figure",
        "has the prediction 'middle', which is not expected like this",
        "has other goals for its predictions",
    ]


def test_facts_are_those_of_the_cpu() -> None:
    truth = make_honest_record(0, cases=[], facts=made_up_records.make_facts(), kind="program")
    claim = make_honest_record(cases=[], facts=made_up_records.make_facts(), kind="program")
    assert list_claim_errors(claim, truth, kind="program") == []
    claim["facts"][1]["tolerance"] = 0.5
    assert len(list_claim_errors(claim, truth, kind="program")) == 2
    del claim["facts"][1]
    assert list_claim_errors(claim, truth, kind="program") == [
        "leaves out the fact 'FLOPs', or has it with another tolerance, unit or source"
    ]
    nowhere = make_honest_record(0, cases=[], kind="program")  # the CPU cannot run it
    assert list_claim_errors(claim, nowhere, kind="program", needs={"cpu": "needs two GPUs"}) == []
    assert len(list_claim_errors(claim, nowhere, kind="program")) == 1


# Whoever takes a record in asks.


@pytest.fixture
def recorded_trial(trial: Trial) -> Trial:
    """A project whose snippet has its records, of this CPU and of a GPU that was not there."""
    trial.add_snippet("sound", sound_snippet())
    trial.add_page("all.md", '# All\n\n--8<-- "sound/whole.md"\n')
    assert trial.run_shelf("run").returncode == 0
    return trial


def of_gpu(trial: Trial) -> Record:
    """An honest record of a GPU."""
    cpu = store.load_record(Project(trial.root), trial.root / "snippets/sound/results/cpu.json")
    checked = {str(row["case"]): row for row in cpu["cases"]}
    rows = [
        {
            "case": row["case"],
            "timed": row["timed"],
            "results": [
                *(
                    made_up_records.make_result(name, 1e-3 if row["timed"] else None)
                    for name in row["variants"]
                ),
                *(
                    made_up_records.make_result(name, 1e-3 if row["timed"] else None, "peer")
                    for name in row["peers"]
                ),
            ],
            **{key: (row if row["timed"] else checked[str(row["case"])])[key] for key in COST},
        }
        for row in cpu["due"]
    ]
    made = made_up_records.make_record(snippet="sound", digest=cpu["digest"], cases=rows)
    return made_up_records.make_honest(made, compiled=cpu.get("compiled", []), demo=cpu["demo"])


def test_a_forged_record_is_not_imported(recorded_trial: Trial) -> None:
    path = recorded_trial.root / "bundle.json"
    place = recorded_trial.root / "snippets/sound/results/imaginary-g9-80gb.json"
    forged = of_gpu(recorded_trial)
    del forged["cases"][2]
    path.write_text(bundle.bundle_text([forged]))
    refused = recorded_trial.run_shelf("import", "bundle.json")
    assert refused.returncode == 1 and not place.exists()
    assert 'sound on imaginary-g9-80gb: leaves out the case {"k": 18' in refused.stderr
    path.write_text(bundle.bundle_text([of_gpu(recorded_trial)]))
    assert recorded_trial.run_shelf("import", "bundle.json").returncode == 0 and place.exists()


def test_a_forged_record_does_not_pass_a_check(recorded_trial: Trial) -> None:
    place = recorded_trial.root / "snippets/sound/results/imaginary-g9-80gb.json"
    place.write_text(dump_json(of_gpu(recorded_trial)))
    assert "imaginary" not in recorded_trial.run_shelf("check").stderr
    forged = of_gpu(recorded_trial)
    forged["cases"][0]["results"][0]["tolerance"] = 1.0
    place.write_text(dump_json(forged))
    [line] = [
        one for one in recorded_trial.run_shelf("check").stderr.splitlines() if "imaginary" in one
    ]
    assert line.startswith("snippets/sound/results/imaginary-g9-80gb.json: allows the variant")
    assert line.endswith("make it again with `shelf run sound`")


def test_a_loosened_record_of_the_cpu_fails_the_next_run_of_all_in_a_fresh_checkout(
    recorded_trial: Trial,
) -> None:
    place = recorded_trial.root / "snippets/sound/results/cpu.json"
    honest = place.read_text()
    place.write_text(honest.replace("5e-06", "1.0"))
    assert place.read_text() != honest
    (recorded_trial.root / ".shelf" / "ledger.json").unlink()
    run = recorded_trial.run_shelf("run", "--all")
    assert run.returncode == 1
    assert "cpu.json: expects other results than the source" in run.stderr
    assert "cpu.json: allows the variant 'product' an error of 1.0" in run.stderr
    assert recorded_trial.run_shelf("run", "--force").returncode == 0
    assert recorded_trial.run_shelf("run").returncode == 0
    assert "5e-06" in place.read_text()
