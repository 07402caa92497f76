"""What cases.py may say, and which architectures NEEDS names."""

from __future__ import annotations

import math
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace

import pytest
from calculator_project import ANY
from hypothesis import example, given
from hypothesis import strategies as st

from warpshelf.contract import architectures, syntax, values
from warpshelf.core.files import LARGEST_INTEGER
from warpshelf.records import claim_check

# Cases, obligations and their flaws.

FACT = {
    "name": "parameters",
    "value": 1.0,
    "expected": 1.0,
    "tolerance": 0.01,
    "unit": "",
    "source": "online-softmax",
}


def echo_inputs(*inputs: object) -> object:
    return inputs


def make_cases(**changed: object) -> SimpleNamespace:
    names: dict[str, object] = {
        "CASES": (
            {"m": 1, "dtype": "float32"},
            {"m": 37, "variants": ["one pass"], "kills": ["a"]},
        ),
        "TIMED": ({"m": 4096},),
        "VARIANTS": {"one pass": echo_inputs, "online": echo_inputs},
        "PEERS": {"torch": echo_inputs},
        "inputs": echo_inputs,
        "reference": echo_inputs,
        "TOLERANCE": {"float32": (1e-4, "sums of 1e6 addends")},
        "LIMITS": {
            "*": {"registers": 128, "spilled_bytes": 0, "matrix_instructions": True},
            "kernel": {"warps": 16, "wide_accesses": 0.5, "wavefronts_over_ideal": 1},
        },
    }
    return SimpleNamespace(**names | changed)


def list_problems(needs: dict | None = None, **changed: object) -> list[tuple[str, str, str]]:
    try:
        values.read_obligations(make_cases(**changed), "kernel", needs or {})
    except values.MalformedCases as malformed:
        return [tuple(problem) for problem in malformed.problems]
    return []


def test_a_sound_kernel_has_no_problem() -> None:
    assert list_problems() == []
    assert list_problems({"variants": {"online": {"sm": 90}, "torch": {"cpu": "no"}}}) == []
    bare = make_cases()
    del bare.TOLERANCE, bare.LIMITS
    found = values.read_obligations(bare, "kernel", {})
    assert (found.tolerance, found.limits, found.cost) == ({}, {}, None)
    assert list_problems(TIMED=()) == []


@pytest.mark.parametrize("kind", ["program", "model"])
def test_only_kernels_have_cases(kind: str) -> None:
    found = values.read_obligations(SimpleNamespace(facts=echo_inputs), kind, {})
    assert found == values.Obligations(facts=echo_inputs)


def test_what_a_case_kills_is_no_property_of_it() -> None:
    found = values.read_obligations(make_cases(), "kernel", {})
    assert found.cases == ({"m": 1, "dtype": "float32"}, {"m": 37, "variants": ["one pass"]})
    assert found.kills == ((), ("a",))
    assert [found.variants_for(case) for case in found.cases] == [
        ["one pass", "online"],
        ["one pass"],
    ]


def test_cases_to_count_are_verified_after_the_others() -> None:
    more = ({"m": 512, "variants": ["online"]}, {"m": 256, "kills": ["b", "c"]})
    found = values.read_obligations(make_cases(COUNTED=more), "kernel", {})
    assert [case["m"] for case in found.cases] == [1, 37, 512, 256]
    assert found.kills == ((), ("a",), (), ("b", "c"))
    assert found.counted == range(2, 4)
    assert found.timed == ({"m": 4096},)
    assert found.variants_for(found.cases[2]) == ["online"]
    assert "kills" not in found.cases[3]
    for none in (make_cases(), make_cases(COUNTED=())):
        assert len(values.read_obligations(none, "kernel", {}).counted) == 0


def test_forms_and_sides_of_a_case() -> None:
    case = {"m": 3, "n": 0, "scale": 2.5, "heads": 4, "b": True, "dtype": "float16", "out": "int8"}
    assert values.side_keys(case) == ["m", "n"]
    assert values.case_form(case) == (("b", "True"), ("dtype", "float16"), ("out", "int8"))
    assert values.case_form({**case, "m": 9, "variants": ["x"]}) == values.case_form(case)


LOOP: list[object] = []
LOOP.append(LOOP)
DEEP: object = 0
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CASES", (), "CASES is ()"),
        ("CASES", None, "CASES is None"),
        ("CASES", {"m": 1}, "CASES is {'m': 1}"),
        ("CASES", ({"m": 1}, 3), "CASES cannot be recorded: number 1 is not a dict"),
        ("CASES", ({"m": math.nan},), "CASES cannot be recorded: number 0"),
        ("CASES", ({"m": [1, math.inf]},), "CASES cannot be recorded: number 0"),
        ("CASES", ({"m": {1, 2}},), "holds a set"),
        ("CASES", ({1: 2},), "not a string"),
        ("CASES", ({"m": 10**5000},), "out of range"),
        ("CASES", ({"m": LOOP},), "levels deep"),
        ("CASES", ({"m": DEEP},), "levels deep"),
        ("TIMED", None, "TIMED is None"),
        ("TIMED", ({"m": object()},), "holds a object"),
        ("TIMED", [[]], "TIMED cannot be recorded: number 0 is not a dict"),
        ("COUNTED", None, "COUNTED is None"),
        ("COUNTED", {"m": 512}, "COUNTED is {'m': 512}"),
        ("COUNTED", ({"m": 512}, 512), "COUNTED cannot be recorded: number 1 is not a dict"),
        ("COUNTED", ({"m": math.nan},), "COUNTED cannot be recorded: number 0"),
        ("COUNTED", ({"variants": ["torch"]},), "COUNTED[0]['variants'] is ['torch']"),
        ("COUNTED", ({"kills": "a"},), "COUNTED[0]['kills'] is 'a'"),
        ("VARIANTS", {}, "VARIANTS is {}"),
        ("VARIANTS", [echo_inputs], "VARIANTS is ["),
        (
            "VARIANTS",
            {"one pass": 3, "online": echo_inputs},
            "VARIANTS names 'one pass', which is not a function",
        ),
        ("VARIANTS", {1: echo_inputs}, "VARIANTS names 1, which is not a function"),
        ("PEERS", {}, "PEERS is {}"),
        ("PEERS", None, "PEERS is None"),
        ("PEERS", {"torch": "torch.softmax"}, "PEERS names 'torch', which is not a function"),
        ("PEERS", {"online": echo_inputs}, "'online' is also a variant"),
        ("CASES", ({"variants": "one pass"},), "CASES[0]['variants'] is 'one pass'"),
        ("CASES", ({"variants": ["torch"]},), "CASES[0]['variants']"),
        ("TIMED", ({"variants": [["online"]]},), "TIMED[0]['variants']"),
        ("TIMED", ({"variants": [{}]},), "TIMED[0]['variants']"),
        ("CASES", ({"kills": "a"},), "CASES[0]['kills'] is 'a'"),
        ("CASES", ({"kills": [3]},), "CASES[0]['kills'] is [3]"),
        ("TIMED", ({"kills": ["a"]},), "TIMED[0] has kills"),
        ("TOLERANCE", 1e-4, "TOLERANCE is not an object"),
        ("TOLERANCE", {"float32": 1e-4}, "TOLERANCE.float32 is 0.0001"),
        ("TOLERANCE", {"float32": (1e-4,)}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (1e-4, "")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (1e-4, " ")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": ("1e-4", "why")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (-1e-4, "why")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (math.nan, "why")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (math.inf, "why")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (10**400, "why")}, "TOLERANCE.float32 is "),
        ("TOLERANCE", {"float32": (True, "why")}, "TOLERANCE.float32 is "),
        ("LIMITS", [], "LIMITS is not an object"),
        ("LIMITS", {"*": 128}, "LIMITS.* is not an object"),
        ("LIMITS", {"*": {"register": 128}}, "LIMITS.*"),
        ("LIMITS", {"*": {"registers": "128"}}, "LIMITS.*"),
        ("LIMITS", {"*": {"registers": 127.5}}, "LIMITS.*"),
        ("LIMITS", {"*": {"registers": -1}}, "LIMITS.*"),
        ("LIMITS", {"*": {"registers": True}}, "LIMITS.*"),
        ("LIMITS", {"*": {"matrix_instructions": 1}}, "LIMITS.*"),
        ("LIMITS", {"*": {"wide_accesses": "1"}}, "LIMITS.*"),
        ("LIMITS", {"*": {"warps": True}}, "LIMITS.*"),
        ("LIMITS", {"*": {"sectors_over_ideal": -1}}, "LIMITS.*"),
        ("LIMITS", {"*": {"instructions_per_fma": math.nan}}, "LIMITS.*"),
    ],
)
def test_each_malformed_value_gets_one_row(name: str, value: object, says: str) -> None:
    [(attribute, what, mend)] = list_problems(**{name: value})
    assert attribute == name
    assert says in what
    assert len(what) < 300
    assert mend


def test_needs_may_name_what_there_is_only() -> None:
    [(attribute, what, _)] = list_problems({"variants": {"onlin": {"sm": 90}, "online": {}}})
    assert attribute == "NEEDS"
    assert "'onlin'" in what
    assert len(list_problems({"variants": {"x": {}, 1: {}}})) == 2


def test_everything_wrong_is_said_at_once() -> None:
    found = list_problems(CASES=(), TIMED=None, VARIANTS={}, PEERS={})
    assert [row[0] for row in found] == ["CASES", "TIMED", "VARIANTS", "PEERS"]
    assert [row[0] for row in list_problems(COUNTED=[3], CASES=())] == ["CASES", "COUNTED"]


@given(
    st.sampled_from(["CASES", "TIMED", "COUNTED", "VARIANTS", "PEERS", "TOLERANCE", "LIMITS"]), ANY
)
def test_no_value_breaks_the_check(name: str, value: object) -> None:
    for row in list_problems(**{name: value}):
        assert all(isinstance(text, str) and text for text in row)


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (None, "cost() is not an object"),
        ({"flop": 1}, "cost() has the unknown key 'flop'"),
        ({"bytes": 1.0, "flops": 1, "unit": "fp32"}, "cost().bytes is 1.0, not a whole number"),
        ({"bytes": True, "flops": 1, "unit": "fp32"}, "cost().bytes is True"),
        ({"bytes": 1, "flops": -1, "unit": "fp32"}, "cost().flops is -1"),
        ({"bytes": 1, "flops": math.nan, "unit": "fp32"}, "cost().flops is nan"),
        ({"bytes": LARGEST_INTEGER, "flops": 1, "unit": "fp32"}, "cost().bytes is 1000"),
        ({"bytes": 1, "flops": 1, "unit": "float32"}, "cost().unit is 'float32', not one of fp64"),
        ({"bytes": 1, "flops": 1, "unit": ["fp32"]}, "cost().unit is ['fp32']"),
        ({"bytes": 1, "flops": 1, "unit": None}, "cost().unit is None"),
    ],
)
def test_a_malformed_cost_is_named(cost: object, says: str) -> None:
    assert says in (values.cost_problem(cost) or "")


@pytest.mark.parametrize("unit", values.UNITS)
def test_a_sound_cost_has_no_problem(unit: str) -> None:
    assert values.cost_problem({"bytes": 0, "flops": 2**70, "unit": unit}) is None
    assert values.cost_problem({"unit": unit}) is None
    assert values.cost_problem({}) is None


@given(ANY, ANY, ANY)
def test_no_cost_breaks_the_check(size: object, flops: object, unit: object) -> None:
    values.cost_problem({"bytes": size, "flops": flops, "unit": unit})
    values.cost_problem(size)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("value", "1"),
        ("value", None),
        ("value", True),
        ("value", LARGEST_INTEGER),
        ("value", 10**400),
        ("expected", math.nan),
        ("expected", math.inf),
        ("expected", 10**400),
        ("expected", [1]),
        ("tolerance", math.nan),
        ("tolerance", math.inf),
        ("tolerance", -0.1),
        ("tolerance", None),
        ("name", 3),
        ("name", "x\ny" * 5000),
        ("unit", None),
        ("source", None),
        ("source", ""),
        ("source", "  "),
    ],
)
def test_a_malformed_fact_is_named(key: str, value: object) -> None:
    changed = FACT | {key: value}
    if key == "name" and isinstance(value, str):
        changed["tolerance"] = None  # a long name is cut in what is said of the fact
    said = values.fact_problem(changed)
    assert said
    assert key == "name" or key in said
    assert len(said) < 300
    assert "\n" not in said


@pytest.mark.parametrize(
    ("fact", "says"),
    [(None, "is not an object"), ([], "is not an object"), ({}, "lacks 'name'"),
     (FACT | {"verdict": "passed"}, "has the unknown key 'verdict'"),
     ({k: FACT[k] for k in list(FACT)[1:]}, "lacks 'name'")],
)  # fmt: skip
def test_a_fact_has_these_keys_and_no_other(fact: object, says: str) -> None:
    assert says in (values.fact_problem(fact) or "")


def test_a_sound_fact_has_no_problem() -> None:
    assert values.fact_problem(FACT) is None
    assert values.fact_problem(FACT | {"value": 2**70, "expected": -3, "tolerance": 0}) is None
    # A value that is not finite is well formed; it does not hold.
    assert values.fact_problem(FACT | {"value": math.nan}) is None
    assert values.fact_problem(FACT | {"value": HTTPStatus.OK}) is None  # an int of its own class


def check_fact(value: float, expected: float, tolerance: float) -> bool:
    return values.fact_holds(FACT | dict(value=value, expected=expected, tolerance=tolerance))


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "held"),
    [
        (1.0, 1.0, 0, True),
        (1.0, 1, 0, True),
        (1.01, 1.0, 0.02, True),
        (1.01, 1.0, 0.009, False),
        (0.99, 1.0, 0.009, False),
        (-1.01, -1.0, 0.02, True),
        (1.0, -1.0, 0.5, False),
        (0.005, 0, 0.01, True),  # nothing is relative to zero
        (0.02, 0, 0.01, False),
        (2**53 + 1, 2**53, 0, False),
        (2**53 + 1, 2**53 + 1, 0, True),
        (2**53 + 1, float(2**53), 0, False),
        (2**60 + 1, 2**60, 1e-20, False),
        (2**60 + 1, 2**60, 1e-10, True),
        (math.nan, 1.0, 1e30, False),
        (math.nan, 1.0, 0, False),
        (math.inf, 1.0, 1e308, False),
        (math.inf, 1e10, 1e308, False),  # though what is allowed is endless, too
        (-math.inf, 0.0, 1e308, False),
        (1.7e308, -1.7e308, 0.5, False),
    ],
)
def test_a_fact_holds_within_its_tolerance(
    value: float, expected: float, tolerance: float, held: bool
) -> None:
    assert check_fact(value, expected, tolerance) is held


@given(st.integers(-(10**29), 10**29), st.integers(-3, 3))
def test_whole_numbers_are_compared_exactly(value: int, off: int) -> None:
    assert check_fact(value + off, value, 0) is (off == 0)


@given(ANY, ANY, ANY)
@example(10**29, 1e300, 5e-324)
@example(10**400, 1, 0)
def test_what_is_well_formed_can_be_judged(
    value: object, expected: object, tolerance: object
) -> None:
    fact = FACT | {"value": value, "expected": expected, "tolerance": tolerance}
    if values.fact_problem(fact) is None:
        assert values.fact_holds(fact) in (True, False)
        assert math.isfinite(fact["value"]) or not values.fact_holds(fact)


# SPACE: what is asked of it, and which configurations it has.


def declare_space(**more: object) -> dict:
    return {
        "parameters": {"tile": (16, 32, 64), "order": ("rows", "columns")},
        "allowed": lambda tile, order: tile > 16 or order == "rows",
        "run": lambda x, **configuration: x,
        "case": {"m": 3},
        "counted": lambda **configuration: {"m": 4},
        "scaled": lambda cycles, **configuration: cycles,
        "timed": {"m": 4096},
        **more,
    }


def test_a_space_has_every_allowed_configuration_in_order() -> None:
    assert list_problems(SPACE=declare_space()) == []
    assert list(values.Space(**declare_space()).configurations()) == [
        {"tile": 16, "order": "rows"},
        {"tile": 32, "order": "rows"},
        {"tile": 32, "order": "columns"},
        {"tile": 64, "order": "rows"},
        {"tile": 64, "order": "columns"},
    ]


def raise_key_error(**configuration: object) -> bool:
    raise KeyError("bm")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"extra": 1}, "SPACE has the unknown key 'extra'"),
        ({"run": 3}, "SPACE.run is 3, not a function"),
        ({"case": [1]}, "SPACE.case is [1], not a case"),
        ({"timed": {"m": float("nan")}}, "not a case"),
        ({"parameters": {}}, "SPACE.parameters is {}"),
        ({"parameters": {"a b": (1, 2)}}, "not a parameter name"),
        ({"parameters": {"tile": [1, 2], "order": (1,)}}, "not a tuple of values"),
        ({"parameters": {"tile": (), "order": (1,)}}, "not a tuple of values"),
        ({"parameters": {"tile": (None,), "order": (1,)}}, "not plain values"),
        ({"parameters": {"tile": ("a b",), "order": (1,)}}, "not plain values"),
        ({"parameters": {"tile": (1, 1), "order": (1,)}}, "with the same value twice"),
        ({"allowed": raise_key_error}, "SPACE['allowed'] raised KeyError"),
        ({"allowed": lambda tile, order: False}, "allows 0 configurations"),
        ({"parameters": {"tile": (*range(4097),), "order": (1,)},
          "allowed": lambda tile, order: True}, "allows 4097 configurations"),
    ],
)  # fmt: skip
def test_a_malformed_space_is_refused(more: dict, says: str) -> None:
    [(name, what, _)] = list_problems(SPACE=declare_space(**more))
    assert name == "SPACE" and says in what


def test_a_space_that_is_no_dict_is_refused() -> None:
    assert [what for _, what, _ in list_problems(SPACE=[1])] == ["SPACE is not an object"]


# The architectures that NEEDS names, and what a language asks of a GPU by itself.

KNOWN = (75, 80, 86, 89, 90, 100, 103, 120)


@pytest.mark.parametrize(
    ("value", "covered", "said"),
    [
        (90, {90}, "SM 90"),
        ([90], {90}, "SM 90"),
        ([100, 90], {90, 100}, "SM 90 or 100"),
        ((80, 90, 90), {80, 90}, "SM 80 or 90"),
        (">=89", {89, 90, 100, 103, 120}, "SM 89 or above"),
        (">= 100", {100, 103, 120}, "SM 100 or above"),
        ("80-90", {80, 86, 89, 90}, "SM 80 to 90"),
        ("90 - 90", {90}, "SM 90 to 90"),
    ],
)
def test_a_form_covers_what_it_says(value: object, covered: set[int], said: str) -> None:
    found = architectures.parse_architectures(value)
    assert {sm for sm in KNOWN if found.covers(sm)} == covered
    assert str(found) == said
    assert found.refusal_reason(75) == f"needs {said}; this GPU is SM 75"
    assert all(found.refusal_reason(sm) is None for sm in covered)


def test_the_known_architectures_have_cards() -> None:
    assert architectures.KNOWN == KNOWN
    assert all(architectures.CARDS[sm] for sm in KNOWN)


def test_the_reason_is_part_of_the_refusal() -> None:
    needs = {"sm": ">=80", "why": "bf16", "variants": {"a": {"sm": 90, "why": "wgmma"}}}
    whole, own = architectures.required_architectures(needs, "a")
    assert whole.refusal_reason(75) == "needs SM 80 or above (bf16); this GPU is SM 75"
    assert own.refusal_reason(80) == "needs SM 90 (wgmma); this GPU is SM 80"


@pytest.mark.parametrize(
    "value",
    ["90", "sm_90", "<=90", ">=", "90-80", "", [], [90, "100"], [True], True, 9.0, None, 9, {}, -90,
     "\u0669\u0660-\u0669\u0660", ">=9000"],
)  # fmt: skip
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"not one of 90, \[90, 100\], "):
        architectures.parse_architectures(value)


def test_a_variant_must_suit_the_snippet_and_itself() -> None:
    needs = {"sm": ">=80", "variants": {"wgmma": {"sm": 90}, "plain": {"cpu": "no"}}}
    covered = {
        name: [sm for sm in KNOWN if architectures.is_covered(needs, name, sm)]
        for name in ("wgmma", "plain", None)
    }
    assert covered["wgmma"] == [90]
    assert covered["plain"] == covered[None] == [80, 86, 89, 90, 100, 103, 120]
    assert architectures.is_covered({}, "any", 75)


@pytest.mark.parametrize(
    ("needs", "arch"),
    [
        ({}, "native"),
        ({"sm": 90}, "sm_90a"),
        ({"sm": [100]}, "sm_100a"),
        ({"sm": [90, 100]}, "native"),
        ({"sm": ">=90"}, "native"),
        ({"variants": {"fast": {"sm": 90}}}, "native"),  # the file has others
    ],
)
def test_a_kernel_for_one_architecture_is_compiled_for_it(needs: dict, arch: str) -> None:
    assert architectures.nvcc_target(needs) == arch


def find_minimum(root: Path, text: str, **others: str) -> dict[str, str] | None:
    """That of a module beside `others` of the same snippets/."""
    folder = root / "snippets" / "one"
    folder.mkdir(parents=True)
    for name, body in {"one": text, **others}.items():
        (folder / f"{name}.py").write_text(body)
    return architectures.language_minimum(root, syntax.parse_python(folder / "one.py"))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("import triton\nz = tl.dot(x, y)\n", architectures.TILES),
        ("import triton\nz = tl.dot_scaled(x, y)\n", architectures.TILES),
        ("from triton.experimental.gluon import language as gl\n", architectures.GLUON),
        ("from triton.experimental import gluon\n", architectures.GLUON),
        ("import triton\nz = tl.sum(x)\n", None),
        ("import torch\nz = torch.dot(x, y)\n", None),
    ],
)
def test_products_of_tiles_begin_at_80(
    tmp_path: Path, text: str, asked: dict[str, str] | None
) -> None:
    assert find_minimum(tmp_path, text) == asked


def test_what_a_snippet_imports_of_another_counts(tmp_path: Path) -> None:
    text = "from snippets.one import two\n"
    two = "from snippets.one import three\nfrom snippets.one import one\n"
    assert find_minimum(tmp_path, text, two=two, three="tl.dot(x, y)\n") == architectures.TILES
    assert find_minimum(tmp_path / "b", text, two=two, three="def broken(:\n") is None


def test_it_holds_beside_what_needs_says() -> None:
    needs = {"sm": "75-90", architectures.LANGUAGE: dict(architectures.TILES)}
    assert [sm for sm in architectures.KNOWN if architectures.is_covered(needs, None, sm)] == [
        80, 86, 89, 90,
    ]  # fmt: skip
    said = [each.refusal_reason(75) for each in architectures.required_architectures(needs)]
    assert said == [
        None,
        "needs SM 80 or above (Triton multiplies tiles from there on); this GPU is SM 75",
    ]
    assert (
        claim_check.skip_reason(needs, "any", 75) == said[1]
    )  # so a record from there may skip it
    assert claim_check.skip_reason(needs, "any", 86) is None
