"""Tables of one record: times, errors, compile figures, facts, configurations, provenance."""

from __future__ import annotations

import copy
import re
from html import unescape

import pytest
from made_up_records import (
    GPU,
    make_case,
    make_compiled,
    make_exhibit,
    make_facts,
    make_ladder,
    make_record,
    make_result,
    show_evidence,
)
from made_up_records import plain_words as words

from warpshelf.records import space
from warpshelf.records.space import COMPILED, TIMES
from warpshelf.render import claims, figures, snippet_page, tables
from warpshelf.render.snippet_page import MachineState


def read_rows(html: str) -> list[list[str]]:
    found = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in found
    ]


def row_of(html: str, name: str, nth: int = 0) -> list[str]:
    return [row for row in read_rows(html) if row[0].split(" ")[0] == name.split(" ")[0]][nth]


def make_timed(*results: dict, **more: object) -> dict:
    return make_record(cases=[make_case(4096, 4096, list(results), timed=True, **more)])


def test_what_is_no_whole_cell_gets_one() -> None:
    note = tables.add_note("x < y", "z")
    row = tables.table_row("a", [note, "b", tables.make_cell("c")])
    assert row == (
        '<tr><th scope="row">a</th> <td>x &#60; y <small>z</small></td> <td>b</td> <td>c</td></tr>'
    )
    table = tables.render_table("t", [note, tables.Cell("<th>c</th>"), "b"], [row], "k")
    head = '<th scope="col">x &#60; y <small>z</small></th> <th>c</th> <th scope="col">b</th>'
    assert f"<thead><tr>{head}</tr></thead>" in table


def test_the_summary_shows_the_worst_case_of_each_variant() -> None:
    cases = [
        make_case(1, 1, [make_result("one pass", error=1e-7, tolerance=5e-6)]),
        make_case(37, 781, [make_result("one pass", error=4e-6, tolerance=5e-6)]),
        make_case(16, 16, [make_result("one pass", error=5e-6, tolerance=1e-3)]),
    ]
    summary = figures.render_accuracy(make_record(0, cases)).split("<details")[1]
    assert row_of(summary, "one") == [
        "one pass",
        "4.00e-6",
        "5.00e-6",
        "1.25×",
        "37 × 781",
        "3 of 3",
    ]
    assert "Worst error over 3 cases" in unescape(summary)


def test_an_error_of_zero_is_exact_and_worse_than_nothing() -> None:
    cases = [make_case(1, 1, [make_result("copy", error=0.0, tolerance=0.0, max_error=0.0)])]
    html = figures.render_accuracy(make_record(0, cases))
    assert row_of(html, "copy")[1:4] == ["0", "0", "exact"]


def test_every_case_is_in_the_fold_with_its_largest_error() -> None:
    fold = figures.render_accuracy(make_record(0)).split("<details")[2]
    assert row_of(fold, "torch", 1)[-2:] == ["1.25e-9", "4.00e-9"]
    assert [row for row in read_rows(fold) if row == ["37 × 781"]]


def test_skips_and_failures_show_their_reason_and_no_error() -> None:
    skip = {"name": "bulk", "role": "variant", "verdict": "skipped", "reason": "no host execution"}
    cases = [
        make_case(1, 1, [make_result("one pass"), skip]),
        make_case(
            2, 2, [make_result("one pass") | {"verdict": "skipped", "reason": "bfloat16"}, skip]
        ),
    ]
    html = figures.render_accuracy(make_record(0, cases))
    _, summary, fold = html.split("<details")
    assert row_of(summary, "bulk") == ["bulk", "skipped: no host execution"]
    assert row_of(summary, "one")[-1] == "1 of 2 (skipped: bfloat16)"
    assert row_of(fold, "one", 1) == ["one pass", "skipped: bfloat16"]


def test_a_record_without_cases_has_no_accuracy_and_no_times() -> None:
    assert figures.render_accuracy(make_record(0, [])) == ""
    assert figures.render_timing(make_record(1, [])) == ""
    assert figures.render_timing(make_record(0)) == ""


def test_times_give_rate_shares_and_speed() -> None:
    # 8 * 4096 * 4096 bytes in 50 µs are 2.684 TB/s.
    html = figures.render_timing(
        make_timed(make_result("one pass", 50e-6), make_result("torch", 100e-6, "peer"))
    )
    assert row_of(html, "one") == [
        "one pass fastest", "50.0 µs", "49.0 µs to 51.5 µs", "120", "2.68 TB/s", "80.1 %", "89.5 %",
        "2.00×",
    ]  # fmt: skip
    assert row_of(html, "torch")[-1] == "the yardstick"
    assert "Speed against torch" in unescape(html)


def test_overlapping_intervals_are_ties_in_words() -> None:
    html = figures.render_timing(
        make_timed(
            make_result("one pass", 50e-6),
            make_result("online", 51e-6),
            make_result("torch", 51e-6, "peer"),
        )
    )
    assert row_of(html, "one")[0] == "one pass tied for fastest"
    assert row_of(html, "online")[0] == "online tied for fastest"
    assert row_of(html, "one")[-1] == row_of(html, "online")[-1] == "tie"


def test_what_slowed_the_gpu_down_is_said_beside_the_times() -> None:
    plain = make_record()
    assert "throttled" not in figures.render_timing(
        plain
    )  # a power cap is where large products run
    hot = make_record()
    hot["conditions"]["slowed_by"] = ["software power cap", "hardware thermal slowdown"]
    said = unescape(figures.render_timing(hot))
    assert "the GPU was throttled meanwhile: hardware thermal slowdown" in said
    assert "power cap" not in said


def test_void_samples_are_counted_beside_those_that_hold() -> None:
    found = make_record()
    found["cases"][2]["results"][0]["time"]["void"] = 3
    assert "120 (3 void)" in unescape(figures.render_timing(found))
    assert figures.render_timing(make_record()).count("void") == 0


def test_a_yardstick_without_time_is_called_untimed() -> None:
    found = make_record()
    peer = found["cases"][2]["results"][3]
    del peer["time"]
    peer["untimed"] = "the GPU may have waited for the host in 15 of 15 samples"
    said = unescape(figures.render_timing(found))
    assert "torch untimed" in said and "waited for the host in 15 of 15" in said


def test_a_single_time_is_not_called_fastest() -> None:
    assert row_of(figures.render_timing(make_timed(make_result("copy", 1e-5))), "copy")[0] == "copy"
    assert (
        row_of(figures.render_timing(make_timed(make_result("copy", 1e-5))), "copy")[-1]
        == "no peer"
    )


def test_a_failed_peer_shows_no_time_even_if_it_has_one() -> None:
    bad = make_result("torch", 1e-6, "peer", verdict="failed", reason="error 3e-2 over 5e-3")
    html = figures.render_timing(make_timed(make_result("one pass", 50e-6), bad))
    assert row_of(html, "torch") == ["torch peer", "failed: error 3e-2 over 5e-3"]
    assert row_of(html, "one")[0] == "one pass"
    assert row_of(html, "one")[-1] == "torch failed"


def test_a_variant_without_time_says_so() -> None:
    html = figures.render_timing(make_timed(make_result("one pass"), make_result("online", 5e-5)))
    assert row_of(html, "one") == ["one pass", "passed, but was not timed"]


@pytest.mark.parametrize(
    ("size", "flops", "unit", "expected"),
    [
        (1000, 0, "fp32", "B/s"),
        (0, 1000, "bf16", "FLOP/s"),
        (1000, 10_000, "bf16", "B/s"),
        (1000, 10_000_000, "bf16", "FLOP/s"),
        (1000, 5_000, "unheard of", "B/s"),
        (1000, 50_000, "unheard of", "FLOP/s"),
    ],
)
def test_a_case_is_bound_by_what_takes_longer(
    size: int, flops: int, unit: str, expected: str
) -> None:
    found = tables.case_bound(
        make_record(), make_case(1, 1, [], bytes=size, flops=flops, unit=unit)
    )
    assert found is not None
    assert found.unit == expected


def test_a_case_without_cost_has_no_rate() -> None:
    assert tables.case_bound(make_record(), make_case(1, 1, [], bytes=0, flops=0)) is None
    html = figures.render_timing(make_timed(make_result("one pass", 5e-5), bytes=0, flops=0))
    assert row_of(html, "one")[4:7] == ["cost not stated", "unknown", "unknown"]


def test_compile_figures_stand_by_architecture() -> None:
    found = [
        make_compiled("sm_100", registers=40),
        make_compiled("sm_90"),
        make_compiled("sm_90", registers=64),
    ]
    found.append(make_compiled("sm_90", "other", spilled_bytes=8, matrix_instructions=True))
    html = figures.render_compiled(make_record(0, compiled=found))
    assert read_rows(html)[0] == ["Kernel", "sm_90", "sm_100"]
    assert row_of(html, "registers", 1) == ["registers", "32, 64", "40"]
    assert row_of(html, "spilled", 0) == ["spilled", "8 B", "not compiled"]
    assert row_of(html, "shared", 0) == ["shared memory", "48 KiB", "not compiled"]
    assert row_of(html, "matrix", 0) == ["matrix instructions", "yes", "not compiled"]
    assert "Triton 3.7.1" in unescape(html)
    assert figures.render_compiled(make_record(compiled=[])) == ""


def test_facts_show_differences_and_keep_large_integers_exact() -> None:
    html = claims.render_facts(make_record(0, facts=make_facts()), {"online-softmax": "The title"})
    thin = "\u202f"
    large = f"6{thin}738{thin}415{thin}616"
    assert row_of(html, "parameters") == ["parameters", large, large, "none", "exact", "The title"]
    assert row_of(html, "FLOPs")[3:5] == ["0.0500 %", "1.00 %"]
    off = make_facts()[:1]
    off[0] |= {"value": 2**60 + 1, "expected": 2**60}
    assert row_of(claims.render_facts(make_record(0, facts=off)), "parameters")[3] == "8.67e-17 %"
    off[0] |= {"value": 3, "expected": 0}
    assert row_of(claims.render_facts(make_record(0, facts=off)), "parameters")[3] == "3"
    assert claims.render_facts(make_record(0, facts=[])) == ""


def test_tables_have_captions_scopes_and_a_box_to_scroll_in() -> None:
    for html in (
        figures.render_accuracy(make_record()),
        figures.render_timing(make_record()),
        figures.render_compiled(make_record()),
        claims.render_facts(make_record(0, facts=make_facts())),
    ):
        assert html.count("<caption>") == html.count('<div class="ws-scroll"') > 0
        assert html.count('tabindex="0"') == html.count("<table ")
        assert not re.findall(r"<th(?! scope=\"(?:col|row|rowgroup)\")[^e]", html)
        assert "\n\n" not in html
    assert f"{GPU}, 6 May 2031, commit abc1234" in unescape(figures.render_timing(make_record()))


def test_names_cannot_act() -> None:
    bad = '<script>alert(1)</script> | **b** "x'
    cases = make_ladder()
    for item in cases:
        item["case"]["dtype"] = bad
        for entry in item["results"]:
            entry["name"] += bad
            entry["reason"] = bad
    found = [make_compiled(bad, bad, variant=bad, language=bad, compiler=bad)]
    made = make_record(cases=cases, compiled=found, commit=bad, device=bad)
    text = (
        figures.render_accuracy(made) + figures.render_timing(made) + figures.render_compiled(made)
    )
    assert "<script" not in text and "**" not in text and "|" not in text
    assert bad in unescape(text)


def test_many_facts_are_folded() -> None:
    many = [{**make_facts()[0], "name": f"fact {index}"} for index in range(claims.MOST + 1)]
    assert claims.render_facts(make_record(0, facts=many[:-1])).startswith("<div")
    html = claims.render_facts(make_record(0, facts=many))
    assert f"<summary>All {len(many)} facts, each within its tolerance</summary>" in html
    assert html.count("<tr>") == len(many) + 1


def test_a_tolerance_about_zero_is_absolute() -> None:
    fact = {**make_facts()[0], "value": 1e-15, "expected": 0, "tolerance": 1e-12}
    assert row_of(claims.render_facts(make_record(0, facts=[fact])), fact["name"])[4] == "1.00e-12"


def read_folds(html: str) -> list[tuple[bool, str]]:
    """Of each fold: whether it stands open, and what its line says."""
    found = re.findall(r"<details([^>]*)><summary>(.*?)</summary>", html)
    return [("open" in attributes, unescape(said)) for attributes, said in found]


def test_the_line_above_the_errors_gives_the_answer() -> None:
    html = figures.render_accuracy(make_record(0, make_ladder(False)))
    said = "2 cases, 2 variants: all within tolerance; largest error 3.10e-8 of 5.00e-6"
    assert read_folds(html) == [
        (True, f"{said}; the peer fancy is wrong in one case"),
        (False, "All cases"),
    ]
    worse = make_result("online", error=4e-6)
    html = figures.render_accuracy(
        make_record(0, [make_case(1, 1, [make_result("one pass"), worse])])
    )
    assert read_folds(html)[0] == (
        True,
        "one case, 2 variants: all within tolerance; largest error 4.00e-6 of 5.00e-6",
    )


def test_the_line_above_the_errors_claims_no_more_than_ran() -> None:
    skip = {"name": "bulk", "role": "variant", "verdict": "skipped", "reason": "no host execution"}
    html = figures.render_accuracy(
        make_record(0, [make_case(1, 1, [make_result("one pass"), skip])])
    )
    assert read_folds(html)[0][1].startswith("one case, one variant: all within tolerance;")
    assert read_folds(html)[0][1].endswith("; bulk did not run here")
    only = figures.render_accuracy(
        make_record(0, [make_case(1, 1, [skip, make_result("torch", role="peer")])])
    )
    assert read_folds(only)[0][1] == "one case, 0 variants; bulk did not run here"
    failed = skip | {"verdict": "failed"}
    html = figures.render_accuracy(
        make_record(0, [make_case(1, 1, [make_result("one pass"), failed])])
    )
    assert "within tolerance" not in read_folds(html)[0][1] and "one check failed" in html


def test_a_table_of_more_than_a_few_rows_is_folded() -> None:
    few = [make_case(1, 1, [make_result(f"rung {i}") for i in range(4)])]
    many = [make_case(1, 1, [make_result(f"rung {i}") for i in range(5)])]
    assert read_folds(figures.render_accuracy(make_record(0, few)))[0][0]
    assert not read_folds(figures.render_accuracy(make_record(0, many)))[0][0]
    assert read_folds(figures.render_compiled(make_record(0)))[0][0]
    two = [make_compiled("sm_90"), make_compiled("sm_90", "softmax_online")]
    assert not read_folds(figures.render_compiled(make_record(0, compiled=two)))[0][0]


def test_the_line_above_the_compile_figures_gives_the_answer() -> None:
    [(_, said)] = read_folds(figures.render_compiled(make_record(0)))
    assert said == (
        "Compiled for sm_80, sm_90, sm_100: one kernel, at most 32 registers, no spills"
    )
    spilt = [
        make_compiled("sm_80", registers=255, spilled_bytes=1536),
        make_compiled("sm_90", "other", spilled_bytes=8),
    ]
    [(_, said)] = read_folds(figures.render_compiled(make_record(0, compiled=spilt)))
    worst = "at most 1.50 KiB spilled, by softmax_one_pass on sm_80"
    assert said == f"Compiled for sm_80, sm_90: 2 kernels, at most 255 registers, {worst}"


BEST = 9.25e5


def make_survey(measured: bool) -> dict:
    """Thirty configurations, of which three come within 2 % of the best."""
    figures = TIMES if measured else COMPILED
    rows = []
    for place in range(30):
        cost = BEST * (1 + 0.009 * place)
        found = (cost * 1e-9, cost * 0.9e-9, cost * 1.1e-9, 15) if measured else (
            90 + place, 4 * (place == 29), 16_640, 16, cost,
        )  # fmt: skip
        rows.append(space.format_row((place, place % 2), found))
    rows = rows[15:] + rows[:15]  # in the order of the parameters, not of the cost
    return {
        "parameters": [
            {"name": "tile", "values": [*range(30)]},
            {"name": "order", "values": [0, 1]},
        ],
        "case": {"m": 37},
        "timed": {"m": 4096, "n": 4096},
        "figures": list(figures),
        "rows": {target: rows for target in (("sm_90",) if measured else ("sm_100", "sm_90"))},
    }


def make_space_state(gpus: int, measured: bool | None = None) -> MachineState:
    spanned = make_survey(bool(gpus) if measured is None else measured)
    return MachineState(
        make_record(gpus, space=spanned),
        "measured" if gpus else "verified",
        make_record(gpus)["machine"]["slug"],
    )


def render_space(*states: MachineState) -> str:
    text = show_evidence(make_exhibit(states=list(states)))
    return "".join(re.findall(r'<details class="ws-fold ws-space".*?</details>', text, re.S))


def test_a_compiled_space_is_called_a_bound_and_no_time() -> None:
    shown = words(render_space(make_space_state(0)))
    assert "All 30 configurations compiled and counted, none timed: within 2 % of the best" in shown
    assert "are 3 on sm_90, 3 on sm_100" in shown
    assert "a bound, not a time" in shown
    assert "The best configurations on sm_90, and the last" in shown
    assert "Cycles, at least" in shown and "Median" not in shown


def test_the_table_begins_with_the_best_and_ends_with_the_last() -> None:
    rows = re.findall(
        r"<tr><th scope=\"row\">(\d+)</th> <td>(\d+)</td>", render_space(make_space_state(0))
    )
    assert [place for place, _ in rows] == [*map(str, range(1, 9)), "29"]  # one spills
    assert [tile for _, tile in rows] == [*map(str, range(8)), "28"]


def test_a_measured_space_takes_the_place_of_a_compiled_one() -> None:
    shown = words(render_space(make_space_state(0), make_space_state(1)))
    assert "All 30 configurations timed" in shown and "Median time" in shown
    assert "bound" not in shown and "sm_100" not in shown


def test_a_snippet_without_a_space_shows_none() -> None:
    assert render_space(MachineState(make_record(0), "verified", "cpu")) == ""


def test_a_stale_space_is_withheld() -> None:
    old = make_space_state(1)
    stale = MachineState(copy.deepcopy(old.record), "stale", old.machine)
    assert render_space(stale) == ""


JOB = "https://github.com/warpshelf/warpshelf/actions/runs/17"


def test_the_line_names_machine_day_commit_and_who_made_it() -> None:
    known = f"{GPU}, 6 May 2031, commit abc1234"
    assert snippet_page.origin_line(make_record(origin={"who": "Ada Lovelace"})) == (
        f"{known}, handed in by Ada Lovelace"
    )
    assert (
        snippet_page.origin_line(make_record(origin={"job": JOB}))
        == f"{known}, by a job of this project"
    )
    assert snippet_page.origin_line(make_record()) == f"{known}, handed in anonymously"
    assert snippet_page.origin_line(make_record(0, commit=None)) == "CPU, 6 May 2031"
    assert snippet_page.origin_line(make_record(4)).startswith(f"4 × {GPU}")


def test_the_pairs_hold_the_full_provenance() -> None:
    found = dict(snippet_page.origin_pairs(make_record()))
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
    by = dict(snippet_page.origin_pairs(make_record(origin={"who": "Ada <b>"})))
    assert by["Handed in by"] == "Ada <b>" and "Measured by" not in by
    job = dict(snippet_page.origin_pairs(make_record(origin={"job": JOB})))
    assert job["Measured by"] == f"a job of this project, {JOB}" and "Handed in by" not in job
    assert dict(snippet_page.origin_pairs(make_record()))["Handed in by"] == "anonymous"
    assert (
        not {"Handed in by", "Measured by"} & dict(snippet_page.origin_pairs(make_record(0))).keys()
    )


def test_what_is_not_known_is_left_out() -> None:
    names = [name for name, _ in snippet_page.origin_pairs(make_record(0, commit=None))]
    assert names == [
        "Machine", "PyTorch", "Triton", "Python", "System", "Date", "Command", "Method", "Digest"
    ]  # fmt: skip


def test_unknown_conditions_come_last_under_their_own_name() -> None:
    found = dict(
        snippet_page.origin_pairs(
            make_record(conditions={"load": {"fan": 3, "watts": 9, "x": None}})
        )
    )
    assert found["Under load"] == "9 W, 3 fan"
