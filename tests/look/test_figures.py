"""Machine instructions by kind, and what LIMITS asks of views: a figure is kept to, or told."""

from __future__ import annotations

import copy

import pytest
from made_up_views import make_view

from warpshelf.contract.values import OF_VIEWS
from warpshelf.look.figures import (
    KINDS,
    LIMITS,
    base_kind,
    instruction_kind,
    limit_violations,
)
from warpshelf.look.view import View

FFMA = {"multiply-add": 64, "integer": 8, "load shared 16": 4, "control": 1}


def add_loop(kinds: dict[str, int]) -> View:
    found = make_view("tiled")
    found["loops"][0]["kinds"] = kinds
    return found


def widen_load() -> View:
    """The naive one, whose load moves 16 bytes a lane, and whose store moves 4."""
    found = copy.deepcopy(make_view())
    next(one for one in found["accesses"] if one["does"] == "load")["size"] = 16
    return found


# A view, a limit that it keeps to, one that it breaks, and how that is said.
FIGURES = [
    ("warps", make_view(), 64, 65, "warps = 64 is below the limit 65; use fewer registers"),
    (
        "sectors_over_ideal",
        make_view("tiled"),
        1,
        0.5,
        "= 1 exceeds the limit 0.5; let neighbouring",
    ),
    ("sectors_over_ideal", make_view(), 4.5, 4.4, "= 4.5 exceeds the limit 4.4; let neighbouring"),
    ("wavefronts_over_ideal", make_view(), 1, 0.9, "= 1 exceeds the limit 0.9; pad or swizzle"),
    ("wavefronts_over_ideal", make_view("tiled"), 16.5, 16, "= 16.5 exceeds the limit 16; pad"),
    ("wide_accesses", widen_load(), 0.8, 0.9, "= 0.8 is below the limit 0.9; let the compiler see"),
    ("wide_accesses", make_view(), 0, 0.1, "= 0 is below the limit 0.1; let the compiler see"),
    ("instructions_per_fma", add_loop(FFMA), 1.21, 1.2, "= 1.203 exceeds the limit 1.2; look at"),
]


def test_there_is_a_figure_for_every_key() -> None:
    assert LIMITS.keys() == set(OF_VIEWS) == {name for name, *_ in FIGURES}


@pytest.mark.parametrize(("name", "one", "kept", "not_kept", "said"), FIGURES)
def test_a_limit_that_is_not_kept_to_is_told(
    name: str, one: View, kept: float, not_kept: float, said: str
) -> None:
    assert limit_violations([one], {"*": {name: kept}}) == []
    (line,) = limit_violations([one], {one["kernel"]: {name: not_kept}})
    assert line.startswith(f"{one['kernel']} ({one['variant']}) on sm_90: {name} ")
    assert said in line and line.endswith(", or change LIMITS")


def test_a_figure_that_is_not_there_breaks_its_limit() -> None:
    (line,) = limit_violations([make_view()], {"*": {"instructions_per_fma": 2}})
    assert "instructions_per_fma is missing, but the limit is 2; " in line


def test_a_limit_is_for_the_kernels_that_its_key_names() -> None:
    both = [make_view(), make_view("tiled", kernel="transpose_tiled<Plain>")]
    limits = {"transpose_tiled": {"wavefronts_over_ideal": 1, "registers": 1}}
    (line,) = limit_violations(both, limits)
    assert line.startswith("transpose_tiled<Plain> (tiled)")
    assert len(limit_violations(both, {"*": {"warps": 65}})) == 2


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA", "multiply-add"),
        ("HMMA.16816.F32.BF16", "matrix"),
        ("HGMMA.64x128x16.F32.BF16", "matrix"),
        ("LDG.E", "load global 4"),
        ("LDG.E.128.CONSTANT", "load global 16"),
        ("LDG.E.U16", "load global 2"),
        ("STG.E.64", "store global 8"),
        ("LDS.U.128", "load shared 16"),
        ("LDSM.16.M88.4", "load shared 16"),
        ("LDSM.16.MT88", "load shared 4"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "copy async 16"),
        ("SHFL.BFLY", "shuffle"),
        ("MUFU.EX2", "special"),
        ("IMAD.WIDE.U32", "integer"),
        ("UIADD3", "integer"),
        ("LOP3.LUT", "integer"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("@", "other"),
        ("NONSENSE", "other"),
    ],
)
def test_the_kind_of(opcode: str, expected: str) -> None:
    assert instruction_kind(opcode) == expected
    assert base_kind(instruction_kind(opcode)) in KINDS
