"""Pieces of source that are whole functions."""

from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look.view import source_pieces

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
