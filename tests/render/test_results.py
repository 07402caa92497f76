"""The tables of all results: every snippet, every machine, every architecture."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import (
    make_case,
    make_exhibit,
    make_facts,
    make_measured,
    make_record,
    make_result,
    make_verified,
)
from made_up_records import plain_words as words
from made_up_records import table_rows as rows

from warpshelf.contract import architectures
from warpshelf.render import results
from warpshelf.render.snippet_page import STATES, MachineState, SnippetPage

LINKS = {"softmax": "/kernels/softmax.md#snippet-softmax"}
G7 = {"slug": "imaginary-g7", "device": "Imaginary G7"}


def make_model_page() -> SnippetPage:
    found = make_record(0, [], facts=make_facts(), compiled=[], skips=[], kind="model")
    return make_exhibit(make_verified(found), id="arithmetic", kind="model")


def make_state(state: str, **more: object) -> MachineState:
    return MachineState(make_record(**more), state, "imaginary-g9-80gb", "why")


def make_timed(median: float, name: str = "one pass", **more: object) -> dict:
    """A record of one large case, with a peer that takes twice as long."""
    both = [make_result(name, median), make_result("torch", 2 * median, "peer")]
    return make_record(cases=[make_case(4096, 4096, both, timed=True)], **more)


def test_without_a_gpu_the_page_says_so_in_words() -> None:
    shown = [make_exhibit(make_verified()), make_model_page()]
    found = results.count_snippets(shown)
    assert (
        found.snippets == 2 and not found.gpus and list(found.said.values()) == [0, 2, 0, 0, 0, 0]
    )
    said = words(results.render_counts(shown))
    assert said.startswith("No snippet has been measured on a GPU yet: this site has no times")
    assert "0 measured on a GPU 2 checked with no GPU 0 compiled only" in said
    table = results.results_table(shown, {})
    assert "One without a row of a GPU was not measured on any" in words(table)
    assert "Models and programs: 1" in words(table) and "Of its limit" not in words(table)
    assert "softmax none not measured" in words(results.results_table([make_exhibit()], {}))
    side = words(results.side_by_side(shown))
    assert "No machine has times yet" in side and "shelf run" in side
    assert 'note "No GPU has been measured yet"' in results.gpu_texts(shown)["results/note.md"]


def test_each_snippet_counts_once_by_the_most_that_is_claimed_of_it() -> None:
    compiled = MachineState(make_record(0, []), "compiled", "cpu", "no host")
    shown = [
        make_exhibit(make_measured(), make_verified()),
        make_exhibit(make_state("stale"), make_verified()),
        make_exhibit(compiled),
        make_exhibit(make_state("failed")),
        make_exhibit(),
    ]
    found = results.count_snippets(shown)
    assert list(found.said.values()) == [1, 1, 1, 2, 1, 1]
    assert found.gpus == ("Imaginary G9 80GB",)
    said = words(results.render_counts(shown))
    assert said.startswith("1 of 5 snippets is measured on a GPU: Imaginary G9 80GB.")
    assert "measured on a GPU: Imaginary G9 80GB" in words(
        results.gpu_texts(shown)["results/note.md"]
    )
    assert "No GPU" not in results.gpu_texts(shown)["results/note.md"]


def test_a_measured_row_has_its_best_time_its_share_and_the_record() -> None:
    # 134 MB in 60 µs are 2.24 TB/s, 74.6 % of the 3 TB/s that a copy reached.
    made = make_exhibit(make_measured(make_timed(6e-5)), make_verified())
    html = results.results_table([made], LINKS)
    head, gpu, cpu = rows(html)
    assert head[5:8] == ["Fastest of ours", "Of its limit", "Against the peer"]
    assert gpu[:4] == ["softmax", "Imaginary G9 80GB", "measured", "1"]
    assert gpu[4] == "3.10e-8 of 5.00e-6"
    assert gpu[5].startswith("2.24 TB/s one pass, 4096 × 4096")
    assert gpu[6:] == ["74.6 %", "2.00× torch", "6 May 2031"]
    assert cpu[1:4] == ["CPU", "checked", "4"] and cpu[5:8] == ["no time", "", ""]
    assert 'href="../kernels/softmax/#snippet-softmax"' in html
    assert 'href="../records/softmax/imaginary-g9-80gb.json"' in html


def test_the_best_time_is_the_one_closest_to_its_limit() -> None:
    slow = make_case(4096, 4096, [make_result("slow", 1e-4)], timed=True)
    fast = make_case(2048, 4096, [make_result("fast", 3e-5)], timed=True)
    peer = make_case(1024, 4096, [make_result("torch", 1.2e-5, "peer")], timed=True)
    html = results.results_table(
        [make_exhibit(make_measured(make_record(cases=[slow, fast, peer])))], {}
    )
    assert rows(html)[1][5].split("/s ")[1].startswith("fast, ") and rows(html)[1][7] == "no peer"


def test_a_measured_row_without_a_time_says_so() -> None:
    bare = make_measured(make_record(cases=[]))
    html = results.results_table(
        [make_exhibit(make_measured(make_timed(6e-5))), make_exhibit(bare)], {}
    )
    assert [row[2] for row in rows(html)[1:]] == ["measured", "measured"]
    assert [row[5:8] for row in rows(html)[1:]][1] == ["no time", "", ""]


@pytest.mark.parametrize("state", ["stale", "failed"])
def test_numbers_that_are_withheld_are_not_here_either(state: str) -> None:
    found = make_timed(7.654321e-5)
    shown = [make_exhibit(MachineState(found, state, "imaginary-g9-80gb"), make_verified())]
    html = (
        results.results_table(shown, LINKS)
        + results.side_by_side(shown)
        + results.render_counts(shown)
    )
    assert not re.search(r"1[.]75|76[.]?5|imaginary-g9-80gb[.]json", unescape(html))
    assert "withheld, of 6 May 2031" in words(html) and state in words(html)


def test_every_cell_says_what_it_is_sorted_by() -> None:
    html = results.results_table(
        [make_exhibit(make_measured(make_timed(6e-5)), make_verified()), make_model_page()], LINKS
    )
    keys = [re.findall(r'data-sort="([^"]*)"', row) for row in html.split("<tr>")[2:]]
    gpu, cpu, _, model_row = (list(map(unescape, row)) for row in keys)
    assert model_row[:4] == ["arithmetic", "CPU", "verified", "2"]
    assert gpu[0] == "softmax" and float(gpu[5]) * 1e40 == pytest.approx(2.24e12, rel=1e-2)
    assert float(gpu[6]) == pytest.approx(0.746, rel=1e-2)
    assert cpu[-1] == "2031-05-06T07:08:09Z"


def make_two_machine_page(first: float = 6e-5, second: float = 3e-5) -> list[SnippetPage]:
    return [make_exhibit(make_measured(make_timed(first)), make_measured(make_timed(second, **G7)))]


def test_two_machines_stand_side_by_side() -> None:
    html = results.side_by_side(make_two_machine_page())
    table = rows(html)
    assert table[0] == ["Function", "Imaginary G7", "Imaginary G9 80GB", "Second against first"]
    shares = ["4.47 TB/s 149 % of its limit", "2.24 TB/s 74.6 % of its limit"]
    assert table[2] == ["one pass", *shares, "0.500×"]
    assert table[3][0] == "torch peer" and table[3][3] == "0.500×"
    assert "of 2 times, Imaginary G9 80GB is faster in 0, slower in 2, tied in 0" in words(html)
    assert 'data-median="6e-05"' in html and " hidden" not in html


def test_times_that_overlap_are_a_tie() -> None:
    html = results.side_by_side(make_two_machine_page(6e-5, 6.1e-5))
    assert [row[-1] for row in rows(html)[2:]] == ["tie", "tie"]
    assert "faster in 0, slower in 0, tied in 2" in words(html)


def test_a_third_machine_is_there_and_hidden() -> None:
    third = make_measured(make_timed(1e-5, slug="z9", device="Imaginary Z9"))
    html = results.side_by_side([make_exhibit(*make_two_machine_page()[0].states, third)])
    assert len(re.findall(r'data-machine="z9"(?: data-name="[^"]+")? hidden', html)) == 3
    assert rows(html)[0][3] == "Imaginary Z9" and rows(html)[2][-1] == "0.500×"


def test_the_machines_that_measured_most_are_shown_first() -> None:
    both = make_two_machine_page()
    again = make_exhibit(make_measured(), id="other")
    assert [one.slug for one in results.rank_machines([*both, again])] == [
        "imaginary-g9-80gb", "imaginary-g7"
    ]  # fmt: skip


def test_what_only_one_machine_has_is_said() -> None:
    shown = [
        make_exhibit(
            make_measured(make_timed(6e-5)), make_measured(make_timed(3e-5, "online", **G7))
        )
    ]
    found = {row[0]: row[1:] for row in rows(results.side_by_side(shown))[2:]}
    assert found["one pass"][0] == "no time" and found["one pass"][2] == "on one only"
    assert found["torch peer"][2] == "0.500×"


def test_one_machine_alone_has_its_times_and_waits_for_another() -> None:
    html = results.side_by_side([make_exhibit(make_measured(make_timed(6e-5)))])
    assert "One machine has times: Imaginary G9 80GB." in words(html)
    assert "2 times on Imaginary G9 80GB" in words(html)
    assert rows(html)[0] == ["Function", "Imaginary G9 80GB"]


def test_hostile_names_do_nothing() -> None:
    bad = '<script>alert(1)</script> "x" --8<-- "y" [a](b)'
    found = make_timed(6e-5, bad, device=bad)
    shown = [
        make_exhibit(
            make_measured(found), make_measured(make_timed(3e-5, bad, slug="g7", device=bad))
        )
    ]
    html = (
        results.results_table(shown, {})
        + results.side_by_side(shown)
        + results.render_counts(shown)
    )
    html += results.gpu_texts(shown)["results/note.md"]
    assert "<script" not in html and "--8<--" not in html and "](b)" not in html
    assert bad in unescape(html)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(STATES), max_size=3),
    st.integers(0, 2**62),
    st.floats(1e-12, 1e9),
    st.sampled_from(["kernel", "program", "model"]),
)
def test_any_records_give_sound_pieces(
    states: list[str], size: int, median: float, kind: str
) -> None:
    rows_of = [make_result("a", median), make_result("b", median, "peer")]
    made = [
        MachineState(
            make_record(cases=[make_case(1, 2, rows_of, timed=True, bytes=size)], slug=f"g{i}"),
            state,
            f"g{i}",
        )
        for i, state in enumerate(states)
    ]
    shown = [make_exhibit(*made, kind=kind)]
    html = (
        results.results_table(shown, LINKS)
        + results.side_by_side(shown)
        + results.render_counts(shown)
    )
    assert not re.search(r"(?<![\w/])(nan|inf|None)(?![\w.])", words(html))
    assert html.count("<tr") == html.count("</tr>") and "\n\n" not in html


DUE = [{"case": {"m": 1}, "timed": False, "variants": ["plain", "wide"], "peers": ["torch"],
        "tolerance": 0.0}]  # fmt: skip


def make_kernel_page(name: str, **needs: object) -> SnippetPage:
    return make_exhibit(make_verified(make_record(0, due=DUE)), id=name, needs=needs)


def read_cells(text: str, start: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


SHOWN = [
    make_kernel_page("anywhere"),
    make_kernel_page("hopper", sm=90, why="wgmma"),
    make_kernel_page(
        "part", variants={"wide": {"sm": ">=80", "why": "cp.async"}, "torch": {"sm": ">=89"}}
    ),
    make_kernel_page("none", variants={"plain": {"sm": ">=80"}, "wide": {"sm": ">=90"}}),
    make_exhibit(id="model", kind="model"),
]


def test_kernels_are_counted_whole_in_part_and_skipped() -> None:
    text = results.architecture_tables(SHOWN, {})
    assert [int(cell) for cell in read_cells(text, "SM 75")[2:]] == [1, 1, 2]
    assert [int(cell) for cell in read_cells(text, "SM 80")[2:]] == [2, 1, 1]
    assert [int(cell) for cell in read_cells(text, "SM 90")[2:]] == [4, 0, 0]
    assert [int(cell) for cell in read_cells(text, "SM 120")[2:]] == [3, 0, 1]
    assert "T4" in read_cells(text, "SM 75")[1] and "RTX 50 series" in read_cells(text, "SM 120")[1]
    assert all(f"| SM {sm} |" in text for sm in architectures.KNOWN)


def test_what_is_skipped_stands_beside_its_reason() -> None:
    text = results.architecture_tables(SHOWN, {"hopper": "/kernels/gemm.md#snippet-hopper"})
    lines = {tuple(line.strip("| ").split(" | ")) for line in text.splitlines()[11:]}
    assert lines >= {
        ("SM 90&#58; wgmma", "[`hopper`](/kernels/gemm.md#snippet-hopper)",
         "75, 80, 86, 89, 100, 103, 120"),
        ("SM 80 or above&#58; cp.async", "`part`: wide", "75"),
        ("SM 89 or above", "`part`: torch (peer)", "75, 80, 86"),
        ("SM 90 or above", "`none`: wide", "75, 80, 86, 89"),
    }  # fmt: skip
