from __future__ import annotations

from synthetic import GPU, record

from warpshelf.render import provenance

JOB = "https://github.com/warpshelf/warpshelf/actions/runs/17"


def test_the_line_names_machine_day_commit_and_who_made_it() -> None:
    known = f"{GPU}, 6 May 2031, commit abc1234"
    assert provenance.line(record(origin={"who": "Ada Lovelace"})) == (
        f"{known}, handed in by Ada Lovelace"
    )
    assert provenance.line(record(origin={"job": JOB})) == f"{known}, by a job of this project"
    assert provenance.line(record()) == f"{known}, handed in by nobody who is named"
    assert provenance.line(record(0, commit=None)) == "CPU, 6 May 2031"
    assert provenance.line(record(4)).startswith(f"4 × {GPU}")


def test_the_pairs_hold_the_full_provenance() -> None:
    found = dict(provenance.pairs(record()))
    assert found["Machine"] == f"{GPU}, 80 GiB, SM 90, 128 SMs"
    assert found["Driver"] == "999.1" and found["CUDA"] == "99.0"
    assert found["PyTorch"] == "2.13.0" and found["Triton"] == "3.7.1"
    assert found["Python"] == "3.11.7" and found["System"] == "Linux x86_64"
    load = "1980 MHz SM, 2619 MHz memory, 55 °C at the highest, 320 W"
    assert found["Under load"] == load
    assert found["Clocks lowered by"] == "software power cap"
    assert found["Measured limits"] == "3.00 TB/s, bf16 790 TFLOP/s, fp32 55.0 TFLOP/s"
    assert found["Peaks"] == "3.35 TB/s, bf16 1.07 PFLOP/s, fp32 67.0 TFLOP/s"
    assert found["Date"] == "6 May 2031, 07:08 UTC" and found["Commit"] == "abc1234"
    assert found["Command"] == "shelf run softmax" and found["Method"] == "1"
    assert found["Digest"] == "sha256:" + "5a" * 6


def test_the_pairs_say_who_made_it() -> None:
    by = dict(provenance.pairs(record(origin={"who": "Ada <b>"})))
    assert by["Handed in by"] == "Ada <b>" and "Measured by" not in by
    job = dict(provenance.pairs(record(origin={"job": JOB})))
    assert job["Measured by"] == f"a job of this project, {JOB}" and "Handed in by" not in job
    assert dict(provenance.pairs(record()))["Handed in by"] == "nobody who is named"
    assert not {"Handed in by", "Measured by"} & dict(provenance.pairs(record(0))).keys()


def test_what_is_not_known_is_left_out() -> None:
    names = [name for name, _ in provenance.pairs(record(0, commit=None))]
    assert names == [
        "Machine", "PyTorch", "Triton", "Python", "System", "Date", "Command", "Method", "Digest"
    ]  # fmt: skip


def test_unknown_conditions_come_last_under_their_own_name() -> None:
    found = dict(provenance.pairs(record(conditions={"load": {"fan": 3, "watts": 9, "x": None}})))
    assert found["Under load"] == "9 W, 3 fan"
