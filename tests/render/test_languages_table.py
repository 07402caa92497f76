"""One job in several languages: a row each, by architecture, with lines, figures and times."""

from __future__ import annotations

import html
import re

import pytest
from looking import view
from synthetic import case, exhibit, measured, record, result, verified

from warpshelf.look import builds
from warpshelf.look.kept import Kept, files_of, name_of
from warpshelf.look.rivalry import Answer
from warpshelf.readings.rivals import Rival, read
from warpshelf.render import languages
from warpshelf.render.exhibit import MachineState
from warpshelf.render.fragments import fragments
from warpshelf.render.listings import Listing
from warpshelf.render.rivals import Pair, ours

ENTRY = """\
- name: A <b>language</b>
  package: a-language
  file: in_own.py
  kernel: turn
  beside: {variant: naive, kernel: transpose_naive}
  what: float32
"""
OWN = """\
import own

# --8<-- [start:kernel]
@own.kernel
def turn(out, x):
    # A comment, and a blank line.

    out[:] = x.T
# --8<-- [end:kernel]
"""
CODE = """\
// --8<-- [start:naive]
#include <a>
// A comment.
__global__ void
transpose_naive(float* out,
                const float* in) {
    body();
}
// --8<-- [end:naive]
"""


def kept(variant: str, arch: str) -> Kept:
    one = view(variant, arch)
    return Kept(name_of(one), one, files_of(one))


def rival() -> Rival:
    (one,), findings = read(ENTRY.encode(), "r.yml")
    assert findings == []
    return one.saying(OWN)


def rows(*states: MachineState) -> tuple[str, list[list[str]]]:
    views = [kept("naive", "sm_80"), kept("naive", "sm_90"), kept("tiled", "sm_90")]
    build = builds.of_view(views[0].view, views[0].files[f"{views[0].name}.sass.txt"].splitlines())
    answer = Answer("own 1.5", {"sm_90": build | {"registers": 99}, "sm_100": build})
    pair = Pair(rival(), answer, ours(views, rival()))
    code = [Listing("CUDA C++", "cuda", "transpose.cu", CODE)]
    shown = exhibit(*states, rivals=[pair], views=views, code=code)
    text = fragments(shown)["beside"]
    plain = html.unescape(re.sub(r"<(?!/?t[rhd])[^>]*>", "", text))
    found = [re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", one) for one in plain.split("</tr>")]
    return plain, [one for one in found if one]


def test_each_language_has_a_row_where_it_is_compiled() -> None:
    text, (head, *found) = rows(verified(record(0)))
    assert head[:3] == ["Language", "Lines", "Registers"]
    assert [one[0] for one in found] == [
        "sm_80", "naive",
        "sm_90", "naive", "tiled", "A <b>language</b>",
        "sm_100", "A <b>language</b>",
    ]  # fmt: skip
    assert "The same in 3 languages" in text and "own 1.5. No times" in text
    assert found[5][1:3] == ["3", "99"]
    assert [one[1] for one in found if one[0] == "naive"] == ["6", "6"]
    assert [one[1] for one in found if one[0] == "tiled"] == ["not marked"]
    assert "Public kernels" not in text


def test_times_stand_where_a_gpu_has_measured_them() -> None:
    timed = case(4096, 4096, [result("naive", 8.1e-5), result("torch", 5e-5, "peer")], timed=True)
    small = case(64, 64, [result("naive", 1e-6)], timed=True)
    text, (head, *found) = rows(measured(record(1, cases=[timed, small])))
    assert head[2].startswith("Time, ")
    times = {(arch, one[0]): one[2] for arch, one in by_arch(found)}
    assert times["sm_90", "naive"] == "81.0 µs"
    assert times["sm_90", "tiled"] == times["sm_90", "A <b>language</b>"] == "not run"
    assert times["sm_80", "naive"] == "other GPU"
    assert "Times of 4096 × 4096 on " in text and "No times" not in text


def by_arch(found: list[list[str]]) -> list[tuple[str, list[str]]]:
    arch, pairs = "", []
    for one in found:
        if len(one) == 1:
            arch = one[0]
        else:
            pairs.append((arch, one))
    return pairs


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [("transpose_naive", 6), ("transpose_naive<4>", 6), ("turn", 3), ("naive", 0), ("other", 0)],
)
def test_the_lines_are_those_of_the_section_that_defines_it(kernel: str, lines: int) -> None:
    assert languages.length([OWN, CODE], kernel) == lines


def test_without_a_language_of_its_own_there_is_no_such_table() -> None:
    assert languages.table([], [], []) == ""
