"""inference_roofline: counts are exact, usual mistakes break a fact, and the fit is a fit."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from itertools import combinations, product
from math import fsum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.inference_roofline import calculator, cases, fitting, machines, passes
from snippets.inference_roofline import inference_roofline as ours
from snippets.inference_roofline.machines import GROUPED, MACHINES
from snippets.inference_roofline.passes import Costs, Serving
from snippets.model_configs.model_configs import SHOWN
from snippets.model_flops.model_flops import MODELS, Decoder, Experts, multiplied
from warpshelf.contract import pictures as told

LLAMA = MODELS["Llama 3.1 8B"]
H100 = MACHINES["H100"]


def make_costs(model: Decoder = LLAMA, **serving: Any) -> Costs:
    return Costs(model, Serving(**serving), H100, GROUPED["H100"])


def errors_in_set(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [
        abs(told.relative_error(row)) for row in rows if row["set"] == name and not row["fitted"]
    ]


def test_facts_hold_and_goals_are_met() -> None:
    assert broken_facts(cases.facts()) == []
    names = [row["name"] for row in cases.facts()]
    assert len(names) == len(set(names))
    rows = cases.predictions()
    assert told.predictions_problem(rows) is None
    assert told.goals_problem(cases.GOALS, rows) is None
    for goal in cases.GOALS:
        assert told.judge_goal(goal, rows)[0], goal
    # Each set of the project's rows is there: 18 throughputs, 5 first tokens.
    assert len(errors_in_set(rows, cases.THROUGHPUT + cases.APART)) == 18
    assert len(errors_in_set(rows, cases.FIRST + cases.APART)) == 4  # one GPU has a single row
    assert all(row["fitted"] for row in rows if row["set"] in (cases.THROUGHPUT, cases.FIRST))


def test_a_kernel_that_reads_shared_keys_once_is_not_what_was_timed() -> None:
    shared = ("LLaMA 70B", "Falcon 180B")
    rows = [r for r in cases.table("published") if r["engine"] == "0.6.1" and r["model"] in shared]
    once = [cases.predicted(row, grouped=True) / float(row["value"]) - 1 for row in rows]
    apart = [abs(cases.predicted(row) / float(row["value"]) - 1) for row in rows]
    assert len(rows) == 6
    assert min(once) > 0  # all too fast
    assert statistics.median(once) > 4 * statistics.median(apart)


def errors_left_out() -> list[float]:
    rows = cases.predictions()
    return [
        e
        for kind in (cases.THROUGHPUT, cases.FIRST)
        for e in errors_in_set(rows, kind + cases.APART)
    ]


def test_the_larger_of_operations_and_bytes_is_further_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summed = statistics.mean(errors_left_out())

    def take_larger_time(
        self: Costs, rows: float, inner: float, outer: float, read: float = 0, bits: int = 0
    ) -> float:
        size = bits or self.serving.weights
        bits = bits or self.serving.activations
        rate = self.machine.rates[bits] * self.engine.products[bits]
        moved = (read or inner * outer) * size / 8 + rows * (inner * bits / 8 + outer * 2)
        return max(2 * rows * inner * outer / rate, moved / self.bandwidth)

    monkeypatch.setattr(Costs, "product", take_larger_time)
    assert statistics.mean(errors_left_out()) > 1.2 * summed


@pytest.mark.parametrize("name", ["gap", "message", "attention"])
@pytest.mark.parametrize("times", [0.5, 2])
def test_what_is_not_fitted_hardly_matters(
    name: str, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for which in ("V5_A100", "V5_H100", "V6_A100", "V6_H100"):
        made = getattr(machines, which)
        monkeypatch.setattr(machines, which, replace(made, **{name: times * getattr(made, name)}))
    assert statistics.median(errors_left_out()) < 0.06


def test_the_fit_does_not_depend_on_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in cases.table("published") if row["engine"] in ("0.5", "0.6.1")]
    first = cases.fit(rows)
    monkeypatch.setattr(fitting, "START", 0.4)
    assert cases.fit(rows) == pytest.approx(first, rel=1e-4)


def test_a_fit_finds_what_made_the_data() -> None:
    due = [0.3, 2.0, 0.9]
    grid = list(product((1.0, 2.0, 5.0), repeat=3))

    def find_residuals(values: Any) -> list[float]:
        return [
            fsum(x * (v - d) for x, v, d in zip(point, values, due, strict=True)) for point in grid
        ]

    assert fitting.fitted(find_residuals, 3) == pytest.approx(due, rel=1e-6)


# Mistakes that calculators are known for, and the fact or the goal that sees each.
def keep_keys_of_all_heads(model: Decoder, serving: Serving, tokens: int) -> float:
    return KEPT(replace(model, kv_heads=model.heads), serving, tokens)


def keep_whole_cache(model: Decoder, serving: Serving, tokens: int) -> float:
    return KEPT(model, replace(serving, tensor=1), tokens)


def keep_endless_windows(model: Decoder, serving: Serving, tokens: int) -> float:
    return KEPT(model, replace(serving, windowed=0), tokens)


KEPT, STEP = ours.cache_bytes, passes.step_attention


def expand_latent(made: Costs, batch: float, rows: int, keys: float) -> float:
    return STEP(made._replace(model=replace(made.model, latent=None)), batch, rows, keys)


@pytest.mark.parametrize(
    ("where", "wrong", "seen"),
    [
        ("cache_bytes", keep_keys_of_all_heads, "Llama 2 70B: cache on 8 GPUs together"),
        ("cache_bytes", keep_whole_cache, "Llama 2 70B: cache on 8 GPUs together"),
        (
            "cache_bytes",
            keep_endless_windows,
            "half of the layers with a window of 4096, at 8192 tokens",
        ),
        ("step_attention", expand_latent, "DeepSeek-V3: bytes of cache that a step reads"),
    ],
)
def test_a_usual_mistake_breaks_a_fact(
    where: str, wrong: Any, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = passes if where == "step_attention" else cases
    monkeypatch.setattr(home, where, wrong)
    assert seen in broken_facts(cases.facts())


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("LLaMA 70B", {"kv_heads": 64}),
        ("LLaMA 70B", {"gated": False}),
        ("LLaMA 7B", {"feed_forward": 4 * 11008}),
        ("Falcon 180B", {"layers": 40}),
    ],
)
def test_a_wrong_model_misses_a_goal(
    name: str, mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cases.SERVED, name, replace(cases.SERVED[name], **mistake))
    rows = cases.predictions()
    assert not all(told.judge_goal(goal, rows)[0] for goal in cases.GOALS)


def test_experts_that_wake_are_those_of_a_count() -> None:
    """All ways of two tokens to choose 2 of 4: bytes of experts, on one GPU and on two."""
    picks = list(combinations(range(4), 2))
    awake = statistics.mean(len({*a, *b}) for a, b in product(picks, repeat=2))
    size = 10**4
    model = Decoder(1, size, 1, 1, 1, 0, 1, experts=Experts(routed=4, chosen=2, size=size))
    for ranks in (1, 2):
        made = Costs(model, Serving(expert=ranks), cases.FREE_OF_WORK, cases.EXACT)
        read = passes.expert_products(made, 2 / ranks) / (3 * 2 * size**2)  # three matrices
        assert read * ranks == pytest.approx(awake, 2e-3)  # a row is a ten thousandth


lengths = st.integers(1, 400)


@settings(max_examples=40)
@given(
    batch=st.integers(1, 512), prompt=lengths, answer=lengths,
    window=st.integers(0, 500), windowed=st.integers(0, 32), guesses=st.integers(0, 3),
)  # fmt: skip
def test_the_middle_of_a_piece_stands_for_all_its_steps(
    batch: int, prompt: int, answer: int, window: int, windowed: int, guesses: int
) -> None:
    made = make_costs(window=window, windowed=windowed)
    draft = ours.Draft(guesses, 0.7, 0.1) if guesses else None
    told = ours.generate(made, batch, prompt, answer, draft)
    steps = [ours.token_time(made, batch, prompt + j, draft) for j in range(1, answer)]
    assert told.total == pytest.approx(told.first + fsum(steps), rel=1e-9)
    assert told.throughput == pytest.approx(batch * answer / told.total)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(MODELS)), batch=st.integers(1, 300), keys=st.integers(1, 5000),
    tensor=st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
def test_more_work_never_takes_less_time(name: str, batch: int, keys: int, tensor: int) -> None:
    model = MODELS[name]
    made = make_costs(model, tensor=tensor)
    seconds = ours.step(made, batch, keys).total
    assert seconds <= ours.step(made, batch + 1, keys).total
    assert seconds <= ours.step(made, batch, keys + 1).total
    assert seconds <= ours.step(made, batch, keys, 2).total
    floor = 2 * batch * multiplied(model) / tensor / H100.rates[16]
    assert seconds > floor  # nothing beats the data sheet
    narrow = ours.step(make_costs(model, tensor=tensor, weights=4, cache=8), batch, keys).total
    assert narrow < seconds
    together = ours.weight_bytes(model, Serving(tensor=tensor)) * tensor
    assert together >= ours.weight_bytes(model, Serving()) * (1 - 1e-9)


def test_guessing_pays_for_one_sequence_and_not_for_a_full_machine() -> None:
    model, draft = MODELS["Llama 3.1 70B"], ours.Draft(4, 0.8, model=LLAMA)
    made = make_costs(model, tensor=4)
    gains = [
        ours.token_time(made, batch, 256, None) / ours.token_time(made, batch, 256, draft)
        for batch in (1, 16, 64, 256)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.5 > 1 > gains[-1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ours.step(make_costs(tensor=3), 1, 1), "tensor = 3 does not divide 32 heads; use"),
        (
            lambda: ours.step(make_costs(MODELS["Llama 2 70B"], tensor=0), 1, 1),
            "tensor = 0 does not",
        ),
        (lambda: ours.step(make_costs(expert=8), 1, 1), "expert = 8 for no experts; use 1"),
        (lambda: ours.step(make_costs(MODELS["Mixtral 8x7B"], expert=16), 1, 1), "is more than 8"),
        (
            lambda: ours.step(make_costs(MODELS["Mixtral 8x7B"], tensor=4, expert=2), 1, 1),
            "no multiple",
        ),
        (lambda: ours.step(make_costs(windowed=33), 1, 1), "windowed = 33 of 32 layers"),
        (
            lambda: ours.step(make_costs(activations=4), 1, 1),
            "no rate is known for products of 4 bits",
        ),
        (lambda: ours.step(make_costs(), 0, 1), "batch = 0 is below 1"),
        (lambda: ours.generate(make_costs(), 1, 1, 0), "answer = 0 is below 1"),
        (lambda: ours.token_time(make_costs(), 1, 1, ours.Draft(0, 0.5)), "guesses = 0 is below 1"),
        (lambda: ours.token_time(make_costs(), 1, 1, ours.Draft(1, 1.5)), "acceptance = 1.5 is no"),
        (lambda: calculator.calculate(engine=calculator.THEN, gpu="B200"), "is known on A100"),
        (lambda: calculator.calculate(gpu="A100"), "no rate is known for products of 8 bits"),
    ],
)
def test_what_cannot_be_served_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^inference_roofline: .*{message}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_calculator_says_what_the_model_says() -> None:
    start = time.process_time()
    made = calculator.calculate()
    assert time.process_time() - start < 0.05
    names = {row["name"] for row in cases.facts()}
    names |= {goal["name"] for goal in cases.GOALS}  # a run that misses one fails as well
    assert {row["test"] for row in made["rows"]} <= names
    values = {row["name"]: row["value"] for row in made["rows"]}
    same = Costs(MODELS["Llama 3.1 70B"], Serving(8, 8, 8, 4), H100, GROUPED["H100"])
    due = ours.generate(same, 32, 2048, 512)
    assert values["time to first token"] == due.first
    assert values["output tokens/s of a GPU"] == due.throughput
    throughput = dict(made["plots"][0]["series"][0]["points"])
    assert throughput[32] == due.throughput
    assert max(throughput) == values["sequences that fit"]
    assert made["band"] is None
    old = calculator.calculate(engine=calculator.THEN, batch=10**5, guesses=2)
    assert "does not fit" in old["answer"]
    assert old["band"]["set"] == cases.THROUGHPUT + cases.APART
    worst = max(errors_in_set(cases.predictions(), old["band"]["set"]))
    assert worst <= old["band"]["within"]
    assert calculator.calculate(answer=1)["rows"][4]["value"] == 0


@pytest.mark.parametrize("one", calculator.INPUTS, ids=lambda one: one["name"])
def test_every_input_matters(one: dict[str, Any]) -> None:
    base: dict[str, Any] = {"guesses": 2, "window": 100, "windowed": 10}
    if one["name"] == "expert":
        base |= {"model": "Mixtral 8x7B"}
    moved = {
        "integer": lambda: base.get(one["name"], one["default"]) * 2 or 4,
        "number": lambda: 0.5,
        "choice": lambda: next(c for c in one["choices"] if c != one["default"]),
        "config": lambda: SHOWN["Gemma 2 9B"],
    }[one["kind"]]()
    if one["name"] in ("model", "gpu"):
        moved = {"model": "Llama 3.1 8B", "gpu": "H200"}[one["name"]]
    if one["name"] == "expert":
        moved = 8
    assert (
        calculator.calculate(**base)["rows"]
        != calculator.calculate(**{**base, one["name"]: moved})["rows"]
    )


def test_a_pasted_configuration_is_served_with_its_windows() -> None:
    plain = calculator.calculate(config=SHOWN["Llama 3.1 8B"])
    assert plain["rows"] == calculator.calculate(model="Llama 3.1 8B")["rows"]
    gemma = {"config": SHOWN["Gemma 2 9B"], "prompt": 8192}
    told = {row["name"]: row["value"] for row in calculator.calculate(**gemma)["rows"]}
    near, far = 21 * 4096, 21 * (8192 + 512)  # every other layer has a window
    assert told["cache of a sequence"] == (near + far) * 2 * 8 * 256 / 4
    odd = SHOWN["Llama 3.1 8B"].replace("{", '{"ears": 2, ', 1)
    assert any("ears" in note for note in calculator.calculate(config=odd)["notes"])
    with pytest.raises(ValueError, match="line 1") as caught:
        calculator.calculate(config="{")
    assert "\n" not in str(caught.value)
