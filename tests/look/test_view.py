"""Views: pieces of source that are whole, memory in words, and what differs between two."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_views import make_view

from warpshelf.look.builds import FigureChange, changed_figures, compare_views, pair_views
from warpshelf.look.view import describe_pattern, source_pieces

# Pieces of source that are whole functions, and how lanes address memory, in words.

PYTHON = """\
import triton

BLOCK = 128


@triton.jit
def helper(x):
    y = x + 1

    return y


# What it is for.
@triton.jit
def kernel(
    x,
):
    helper(x)
""".splitlines()
CUDA = """\
#include <cstdint>

// --8<-- [start:one]
template <int T>
__global__ void one(float* x)
{
    x[0] = T;

    x[1] = T;
}
// --8<-- [end:one]

__global__ void two() {}
""".splitlines()


def test_a_line_brings_its_function() -> None:
    (found,) = source_pieces({"k.py": PYTHON}, [("k.py", 8)])
    assert (found["from"], found["text"][0], found["text"][-1]) == (
        6,
        "@triton.jit",
        "    return y",
    )
    (found,) = source_pieces({"k.py": PYTHON}, [("k.py", 18)])
    assert (found["from"], found["text"][0]) == (13, "# What it is for.")
    (found,) = source_pieces({"k.cu": CUDA}, [("k.cu", 9)])
    assert (found["text"][0], found["text"][-1]) == ("template <int T>", "}")


def test_neighbours_are_one_piece_and_files_are_apart() -> None:
    both = source_pieces({"k.py": PYTHON, "k.cu": CUDA}, [("k.py", 8), ("k.py", 18), ("k.cu", 13)])
    assert [(one["file"], one["from"]) for one in both] == [("k.cu", 13), ("k.py", 6)]
    assert both[1]["text"][-1] == "    helper(x)"


@given(st.lists(st.sampled_from(["", "a", "  b", "}", "# c", "@d", "{", "// --8<-- [start:x]"])),
       st.sets(st.integers(-1, 12)))  # fmt: skip
def test_every_line_asked_for_is_shown_as_it_is(text: list[str], numbers: set[int]) -> None:
    found = source_pieces({"f": text}, [("f", number) for number in numbers])
    shown = {one["from"] + at: line for one in found for at, line in enumerate(one["text"])}
    assert all(text[number - 1] == line for number, line in shown.items())
    for number in numbers:
        if (
            0 < number <= len(text)
            and text[number - 1].strip()
            and "--8<--" not in text[number - 1]
        ):
            assert number in shown


LANES = range(32)


def make_access(addresses: list[int | None], size: int = 4, **more: object) -> dict[str, Any]:
    plain = {"space": "global", "passes": 4, "ideal": 4, "size": size}
    return {**plain, "addresses": addresses, **more}


@pytest.mark.parametrize(
    ("addresses", "size", "said"),
    [
        ([4 * lane for lane in LANES], 4, "side by side"),
        ([16 * lane for lane in LANES], 16, "side by side"),
        ([4096 * lane for lane in LANES], 4, "at a stride of 4,096 bytes"),
        ([64] * 32, 4, "at one address"),
        (
            [4096 * (lane // 8) + 4 * (lane % 8) for lane in LANES],
            4,
            "4 runs of 8 lanes, each side by side, 4,096 bytes apart",
        ),
        (
            [16 * (lane // 2) for lane in LANES],
            4,
            "16 runs of 2 lanes, each at one address, 16 bytes apart",
        ),
        (
            [4 * (lane % 16) for lane in LANES],
            4,
            "2 runs of 16 lanes, each side by side, all from one address",
        ),
        ([lane * lane for lane in LANES], 1, "32 addresses without one stride"),
        ([8, *[None] * 31], 4, "1 of 32 lanes, one address"),
        ([4 * lane if lane < 17 else None for lane in LANES], 4, "17 of 32 lanes, side by side"),
    ],
)
def test_steps_are_said(addresses: list[int | None], size: int, said: str) -> None:
    assert describe_pattern(make_access(addresses, size)) == said


def test_what_makes_it_worse_is_said() -> None:
    apart = [128 * lane for lane in LANES]
    shared = make_access(apart, space="shared", passes=32, ideal=1)
    assert describe_pattern(shared) == "at a stride of 128 bytes, all lanes in bank 0"
    twice = make_access([8 * lane for lane in LANES], space="shared", passes=2, ideal=1)
    assert describe_pattern(twice).endswith(
        "16 of 32 banks used, bank 0 has 2 different words to give"
    )
    naive = make_access([32 * lane for lane in LANES], passes=32, ideal=4)
    assert describe_pattern(naive).endswith("32 of the 256 words of 32 sectors used")


# What differs between two views of a kernel.


def test_a_view_does_not_differ_from_itself() -> None:
    found = compare_views(make_view(), copy.deepcopy(make_view()))
    assert (found.figures, found.lines, found.counts) == ((), (), True)


def test_figures_loops_and_lines_that_differ_are_named() -> None:
    now = make_view()
    now["registers"] += 8
    now["loops"][0]["kinds"] = {**now["loops"][0]["kinds"], "integer": 5, "shuffle": 1}
    now["loops"][0]["bytes"] *= 4
    store = next(one for one in now["lines"] if "ideal_sectors" in one)
    store["sectors"] += 100
    now["total"]["sectors"] += 100
    found = compare_views(make_view(), now)
    named = {one.figure: (one.before, one.after) for one in found.figures}
    assert named["registers"] == (24, 32)
    assert named["main loop: integer"] == (3, 5)
    assert named["main loop: shuffle"] == (0, 1)  # a kind that was not there
    assert named["main loop: bytes in flight, of a warp"] == (128, 512)
    assert {"sectors", "sectors over ideal"} <= named.keys()
    (line,) = found.lines
    assert line.at == store["at"] and line.text.startswith("out[x * n")
    assert [one.figure for one in line.changes] == ["sectors"]


def test_lines_are_told_apart_by_their_text() -> None:
    now = make_view()
    for piece in now["source"]:
        piece["from"] += 7
    for line in now["lines"]:
        file, _, number = line["at"].rpartition(":")
        line["at"] = f"{file}:{int(number) + 7}"
    assert compare_views(make_view(), now).lines == ()


def test_counts_of_another_case_are_not_compared() -> None:
    now = make_view(case={"m": 128, "n": 64, "dtype": "float32"})
    now["total"]["sectors"] += 100
    now["lines"][-1]["lanes"] += 1
    found = compare_views(make_view(), now)
    assert (found.counts, found.figures, found.lines) == (False, (), ())


def test_without_a_loop_there_is_no_figure_of_one() -> None:
    with_loop = {"main loop: instructions": 7.0, "main loop: integer": 3.0}
    assert changed_figures({}, with_loop) == (
        FigureChange("main loop: instructions", None, 7.0),
        FigureChange("main loop: integer", None, 3.0),
    )


def test_kernels_are_paired_by_name_and_what_is_left_over_by_variant() -> None:
    now, tiled = make_view(kernel="transpose_naive<64>"), make_view("tiled")
    found = pair_views([make_view(kernel="transpose_naive<32>"), tiled], [now, make_view("tiled")])
    assert [(was and was["kernel"], is_ and is_["kernel"]) for was, is_ in found] == [
        ("transpose_naive<32>", "transpose_naive<64>"),
        ("transpose_tiled", "transpose_tiled"),
    ]
    alone = pair_views([tiled], [now])
    assert alone == [(None, now), (tiled, None)]
