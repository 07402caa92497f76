"""training_time: counts are those of whole models, runs are predicted, mistakes show."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.model_flops.model_flops import MODELS
from snippets.training_time import calculator, cases, layers
from snippets.training_time import training_time as model
from snippets.training_time.kernels import GPUS, Product
from snippets.training_time.layers import Plan
from snippets.training_time.training_time import STACKS
from warpshelf.contract import pictures as contract

HERE = Path(model.__file__).parent
LLAMA = MODELS["Llama 3.1 70B"]
BRIDGE = STACKS["Megatron Bridge, H100, fp8"]
PLAN = Plan(64, 256, 1, 8192, 4, 8, chunks=4)


def list_missed_goals() -> list[str]:
    rows = cases.predictions()
    return [goal["name"] for goal in cases.GOALS if not contract.judge_goal(goal, rows)[0]]


def test_every_fact_holds_and_has_a_name_of_its_own() -> None:
    names = [row["name"] for row in cases.facts()]
    assert len(names) == len(set(names)) >= 15
    assert broken_facts(cases.facts()) == []


def test_goals_are_reached_on_rows_that_nothing_was_fitted_on() -> None:
    rows = cases.predictions()
    assert (
        contract.predictions_problem(rows) is None
        and contract.goals_problem(cases.GOALS, rows) is None
    )
    assert list_missed_goals() == []
    judged = [row for row in rows if not row["fitted"]]
    assert len(judged) >= 55 and len(rows) - len(judged) <= 30


def test_a_constant_is_fitted_on_at_most_64_gpus_and_nothing_else() -> None:
    rows = cases.table("published.tsv")
    for row in rows:
        if row["fitted"] == "yes":
            assert int(row["gpus"]) <= 64 or row["stack"].startswith("DeepSeek"), row["id"]
    for stack in {row["stack"] for row in rows if row["fitted"] == "yes"}:
        assert cases.fitted_share(stack) == pytest.approx(STACKS[stack].share, abs=0.0006), stack
    plain, cut = (STACKS[f"torchtitan, H100 500 W, fp8{how}"] for how in ("", ", async TP"))
    assert plain.share == cut.share  # one software, told to overlap more


def test_rows_of_the_large_goals_are_of_more_than_64_gpus() -> None:
    for goal in cases.GOALS[:2]:
        for row in cases.table("published.tsv"):
            if row["set"] in goal["sets"] and row["fitted"] == "no":
                assert int(row["gpus"]) > 64, row["id"]


@pytest.mark.parametrize(
    ("name", "wrong", "seen"),
    [
        # The bubble of a pipeline that is not interleaved.
        (
            "training_time.bubble",
            lambda plan, ways, weights: (plan.pipeline - 1) * sum(ways),
            "2 chunks: bubble",
        ),
        # A stage too many, as in (m + p) / m.
        (
            "training_time.bubble",
            lambda plan, ways, weights: plan.pipeline / plan.chunks * sum(ways),
            "1 chunks: bubble",
        ),
        # Backward as one product for each of the forward pass.
        ("layers.gradients", lambda one, stack: (one, Product(1, 1, 1)), "backward over forward"),
        # The last stage as if it were any other.
        ("training_time.uneven", lambda made, plan: True, "terms of a step"),
    ],
)
def test_a_usual_mistake_is_seen(
    name: str, wrong: Any, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"snippets.training_time.{name}", wrong)
    assert any(seen in one for one in broken_facts(cases.facts()))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("layers.tensor", lambda made, plan, stack, weights: [0.0, 0.0]),
        ("layers.attention", lambda made, plan, stack: [0.0, 0.0]),
        ("training_time.bubble", lambda plan, ways, weights: 0.0),
        ("layers.memory", lambda made, plan, stack, sparse: [0.0, 0.0]),
    ],
)
def test_no_term_can_be_left_out(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a term, errors on runs of every size and layout grow."""
    before = measure_spread()
    monkeypatch.setattr(f"snippets.training_time.{name}", wrong)
    assert measure_spread() > before + 0.02


def measure_spread() -> float:
    rows = [row for row in cases.step_rows() if row["set"] in (*cases.TABLES, cases.DENSE)]
    ratios = sorted(row["predicted"] / row["published"] for row in rows)
    tables = [r["predicted"] / r["published"] for r in rows if r["set"] in cases.TABLES]
    # The spread, which no constant mends.
    return max(tables) / min(tables) - 1 + ratios[-1] / ratios[0] - 1


@st.composite
def training_plans(draw) -> Plan:
    tensor, pipeline = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2, 4, 8)))
    data, count = draw(st.sampled_from((1, 2, 8))), draw(st.integers(1, 6))
    context = draw(st.sampled_from((1, 2)))
    chunks = draw(st.sampled_from((1, 2, 5))) if pipeline > 1 else 1
    gpus = tensor * pipeline * data * context
    batch = data * count * pipeline
    recompute = draw(st.sampled_from(layers.WORDS["recompute"]))
    zero = draw(st.sampled_from((0, 1, 3)))
    return Plan(
        gpus, batch, 1, 4096, tensor, pipeline, context,
        chunks=chunks, recompute=recompute, zero=zero,
    )  # fmt: skip


@given(training_plans(), st.sampled_from(sorted(STACKS)))
def test_terms_are_no_less_than_nothing_and_sum_up(plan: Plan, name: str) -> None:
    made = model.step(LLAMA, plan, STACKS[name])
    parts = cases.terms(made)
    assert all(seconds >= 0 for seconds in parts.values())
    assert made.total == pytest.approx(sum(parts.values()))
    assert 0 < model.mfu(LLAMA, plan, STACKS[name], made.total) < 2  # fp8 against bf16's peak


@given(training_plans(), st.floats(0.1, 0.9))
def test_a_larger_share_is_never_slower(plan: Plan, share: float) -> None:
    slow, fast = (cases.replace_share(BRIDGE, one) for one in (share, share * 1.1))
    assert model.step(LLAMA, plan, fast).total < model.step(LLAMA, plan, slow).total


@given(training_plans())
def test_recomputing_more_takes_longer(plan: Plan) -> None:
    ways = [replace(plan, recompute=way) for way in ("none", "half", "full")]
    times = [model.step(LLAMA, way, BRIDGE).recomputed for way in ways]
    assert times[0] == 0 < times[1] < times[2]


@given(st.integers(1, 8192), st.integers(1, 8192), st.integers(1, 8192))
def test_a_product_never_beats_its_peak(m: int, n: int, k: int) -> None:
    for gpu in GPUS.values():
        assert 2 * m * n * k / Product(m, n, k).seconds(gpu) < gpu.peak


def test_products_of_a_last_thin_wave_cost_a_full_one() -> None:
    gpu = GPUS["A100"]
    full, more = (Product(128 * rows, 9 * 128, 8192).seconds(gpu) for rows in (12, 13))
    assert 1.7 < more / full < 2.1


def test_a_schedule_that_is_run_decides_the_bubble() -> None:
    plan = replace(PLAN, chunks=1)
    waits = {
        name: model.step(LLAMA, replace(plan, schedule=name), BRIDGE).bubble
        for name in layers.WORDS["schedule"]
    }
    assert waits["ZB-H1"] < waits["1F1B"] and waits["DualPipe"] < waits["1F1B"]


def test_a_plan_that_overlaps_more_is_faster() -> None:
    base = STACKS["Megatron-LM 2021, A100"]
    for flag in ("backward", "tensor", "data"):
        better = replace(base, **{flag: True})
        assert model.step(LLAMA, PLAN, better).total < model.step(LLAMA, PLAN, base).total


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 60}, "gpus = 60 cannot be; use a multiple of 32"),
        ({"batch": 255}, "batch = 255 cannot be; use a multiple of 2"),
        ({"sequence": 8190}, "sequence = 8190 cannot be; use a multiple of 4"),
        ({"tensor": 0}, "tensor = 0 cannot be; use 1 or more"),
        ({"expert": 3}, "expert = 3 cannot be; use a divisor of 8"),
        ({"recompute": "some"}, "recompute = 'some' cannot be; use none, selective"),
        ({"schedule": "GPipe"}, "schedule = 'GPipe' cannot be; use 1F1B"),
        ({"zero": 4}, "zero = 4 cannot be"),
        ({"chunks": 11}, "80 layers for 88 chunks; use another plan"),
        ({"schedule": "ZB-H1"}, "ZB-H1 has no chunks = 5; use another plan"),
        ({"heads": 6}, "tensor = 4 does not divide 6 heads"),
        ({"stack": "none"}, "no stack 'none'; use Megatron"),
        ({"share": -1.0}, "share = -1.0 is below 0"),
        ({"stack": "Megatron-LM 2021, A100", "chunks": 2, "pipeline": 1}, "chunks = 2 need"),
    ],
)
def test_what_cannot_be_is_one_clear_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^training_time: {message}") as caught:
        calculator.calculate(**change)
    assert "\n" not in str(caught.value)


def test_the_calculator_tells_what_the_model_says() -> None:
    told = calculator.calculate()
    rows = {row["name"]: row for row in told["rows"]}
    made = model.step(LLAMA, Plan(64, 256, 1, 8192, 4, 8, chunks=5), STACKS[calculator.FIRST])
    assert rows["step"]["value"] == made.total
    assert {name: rows[name]["value"] for name in cases.terms(made)} == cases.terms(made)
    assert rows["GPU-hours"]["value"] == pytest.approx(24 * 64 * rows["days"]["value"])
    assert told["answer"].startswith(f"{made.total:.4g} s a step")
    bars, lines = told["plots"]
    assert sum(seconds for _, seconds in bars["series"][0]["points"]) == pytest.approx(made.total)
    ours, even = (series["points"] for series in lines["series"])
    assert all(one[1] <= other[1] for one, other in zip(ours, even, strict=True))


def test_every_line_of_the_calculator_names_what_holds_it() -> None:
    facts = {row["name"] for row in cases.facts()}
    sets = {row["set"] for row in cases.predictions()}
    for name in STACKS:
        told = calculator.calculate(stack=name)
        assert {row["test"] for row in told["rows"]} <= facts
        assert all(row["formula"] and row["source"] for row in told["rows"])
        assert told["band"] is None or told["band"]["set"] in sets
    names = [one["name"] for one in calculator.INPUTS]
    assert len(names) == len(set(names))
    assert set(Plan.__dataclass_fields__) <= set(names)


def test_the_calculator_reads_mixtures_and_latents() -> None:
    deepseek = MODELS["DeepSeek-V3"]
    given_ = {
        "layers": 61, "hidden": 7168, "heads": 128, "kv_heads": 128, "head_dim": 128,
        "feed_forward": 18432, "vocabulary": 129280, "routed": 256, "chosen": 8,
        "expert_size": 2048, "shared": 1, "dense_layers": 3, "query_rank": 1536,
        "kv_rank": 512, "rotary": 64,
    }  # fmt: skip
    defaults = {one["name"]: one["default"] for one in calculator.INPUTS}
    assert calculator.decoder(defaults | given_) == (deepseek, ())


CONFIG = """{"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "vocab_size": 128256, "new_field": 1}"""


def test_a_pasted_configuration_is_the_fields_and_names_what_it_does_not_know() -> None:
    pasted, filled = calculator.calculate(config=CONFIG), calculator.calculate()
    assert pasted["answer"] == filled["answer"] and pasted["rows"] == filled["rows"]
    assert any("new_field" in note for note in pasted["notes"])
    window = CONFIG.replace('"new_field"', '"use_sliding_window": true, "sliding_window"')
    told = calculator.calculate(config=window.replace("llama", "mistral"))
    assert any("Windows are left out" in note for note in told["notes"])
    with pytest.raises(ValueError, match="^model_configs: [^\n]+$"):
        calculator.calculate(config="{")


def test_the_calculator_keeps_up_with_typing() -> None:
    calculator.calculate()
    begun = time.process_time()
    for _ in range(5):
        calculator.calculate()
    assert (time.process_time() - begun) / 5 < 0.05


def test_published_rows_have_models_and_stacks() -> None:
    for row in cases.table("published.tsv"):
        assert row["stack"] in STACKS and row["model"] in cases.decoders(), row["id"]
        assert row["unit"] in ("s", "ms", "1/s", "h", "TFLOP/s")
    for name in ("models.tsv", "published.tsv", "products.tsv"):
        with (HERE / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len({row[0] for row in rows}) == len(rows)


def test_it_imports_the_standard_library_and_other_models_alone() -> None:
    for name in ("kernels", "layers", "training_time", "calculator"):
        text = (HERE / f"{name}.py").read_text(encoding="utf-8")
        found = {
            line.split()[1].split(".")[0]
            for line in text.splitlines()
            if line.startswith(("from ", "import "))
        }
        assert found <= sys.stdlib_module_names | {"snippets"}, name
