"""Titles of one work are found alike; titles of a series, of versions and of opposites are not.

The year that a venue or an arXiv number tells.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_titles

from warpshelf.readings import model
from warpshelf.readings.model import FIRST_YEAR
from warpshelf.readings.titles import (
    MOST,
    NEAR,
    PART,
    SAME,
    expected_years,
    names_repository,
    parse_title,
    same_work,
    similar_pairs,
    venue_years,
)


def compare_titles(a: str, b: str, headed: int = 0) -> str | None:
    """How two titles are alike, whichever stands first."""
    one, other = parse_title(a, headed), parse_title(b, headed)
    found = [[pair[2] for pair in similar_pairs(both)] for both in ((one, other), (other, one))]
    assert found[0] == found[1] and len(found[0]) < 2
    return found[0][0] if found[0] else None


FLASH = "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness"
RING = "Ring Attention with Blockwise Transformers for Near-Infinite Context"
ALIKE = [
    ("Flash, Attention!", "flash attention", SAME),
    ("FlashAttention", "Flash-Attention", SAME),
    ("The Roofline Model", "Roofline models", SAME),
    ("An Analysis of GPU Kernels", "Analysis of GPU kernel", SAME),
    ("Don\u2019t Repeat Memory Accesses", "Dont repeat memory access", SAME),
    ("Multi-Head Attention", "Multihead Attention", SAME),
    ("PyTorch\u6e90\u7801\u89e3\u6790\uff081\uff09- \u6574\u4f53\u9884\u89c8",
     "PyTorch \u6e90\u7801\u89e3\u6790(1)\uff1a\u6574\u4f53\u9884\u89c8", SAME),
    ("\uff30\uff59\uff34\uff4f\uff52\uff43\uff48 internals", "PyTorch Internals", SAME),
    ("Tensor cores\u00a0explained", "Tensor Cores  Explained", SAME),
    ("Online normalizer for softmax", "Online normaliser for softmax", NEAR),
    ("Online calculation of softmax", "Online calcluation of softmax", NEAR),
    ("Batches and caches", "Batch and cache", SAME),
    ("Libraries of kernels", "A library of kernels", SAME),
    ("Online softmax", "Online softmx", NEAR),
    ("Efficient Memory Management", "Efficent Memory Management", NEAR),
    ("PipeDream: Generalized Pipelines", "PipeDreams: Generalised pipelines", NEAR),
    (RING, RING + " Length", NEAR),
]  # fmt: skip
UNLIKE = [
    ("FlashAttention-2", "FlashAttention-3"),
    ("FlashAttention", "FlashAttention-2"),
    ("Llama 2", "Llama 3"),
    ("Llama 3", "Llama 3.1"),
    ("DeepSeek-V2 Technical Report", "DeepSeek-V3 Technical Report"),
    ("CUDA by example, part I", "CUDA by example, part II"),
    ("CUDA by example, part II", "CUDA by example, part III"),
    ("CUDA by example, part 1", "CUDA by example, part 2"),
    ("Understanding warps (1)", "Understanding warps (2)"),
    ("Understanding warps", "Understanding warps (2)"),
    ("Understanding warps, part A", "Understanding warps, part B"),
    ("Understanding warps, part one", "Understanding warps, part two"),
    ("\u6df1\u5165 CUDA\uff08\u4e0a\uff09", "\u6df1\u5165 CUDA\uff08\u4e0b\uff09"),
    ("\u6df1\u5165 CUDA\uff08\u4e00\uff09", "\u6df1\u5165 CUDA\uff08\u4e8c\uff09"),
    ("PyTorch\u6e90\u7801\uff081\uff09", "PyTorch\u6e90\u7801\uff082\uff09"),
    ("CS149 2023 lectures", "CS149 2024 lectures"),
    ("Training in FP8", "Training in FP16"),
    ("A 2D decomposition", "A 2.5D decomposition"),
    ("How to optimize a GEMM", "How to optimize a GEMV"),
    ("CUDA C Programming Guide", "CUDA C++ Programming Guide"),
    ("Symmetric memory", "Asymmetric memory"),
    ("Structured sparsity", "Unstructured sparsity"),
    ("Synchronous pipelines", "Asynchronous pipelines"),
    ("The encoder", "The decoder"),
    ("Efficient training of models", "Efficient inference of models"),
    ("Efficient training of models", "Efficient distributed training of models"),
    (RING, RING + " Revisited"),
    (RING, RING + " 2"),
    (RING, RING + " XLA"),
    ("The batch sizes", "The patch sizes"),
    ("Attention", "Retention"),
    ("Pipelines: an overview", "Tensors: an overview"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "wanted"), ALIKE)
def test_titles_of_one_work_are_alike(a: str, b: str, wanted: str) -> None:
    assert compare_titles(a, b) == wanted


@pytest.mark.parametrize(("a", "b"), UNLIKE)
def test_titles_of_two_works_are_not(a: str, b: str) -> None:
    assert compare_titles(a, b) is compare_titles(a, b, 1) is None


@pytest.mark.parametrize(
    ("a", "b", "headed", "wanted"),
    [
        ("FlashAttention", FLASH, 1, PART),
        ("FlashAttention", FLASH, 0, None),
        (FLASH.partition(": ")[2], FLASH, 1, NEAR),
        ("Exact Attention with IO-Awareness", "Flash: Exact Attention with IO-Awareness", 1, PART),
        ("GPipe", "GPipe - Easy Scaling with Micro-Batch Pipelines", 1, PART),
        ("\u6d41\u6c34\u7ebf\u5e76", "\u6d41\u6c34\u7ebf\u5e76\uff1a\u539f\u7406", 1, PART),
        ("Profiling kernels", "Profiling kernels: what to look at", 3, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: what to look at", 3, PART),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: part two", 1, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: 2", 1, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: II", 1, None),
        ("Zero Bubble Pipeline Schedules", "Session 6: Zero Bubble Pipeline Schedules", 1, None),
        ("FlashAttention-2", "FlashAttention-2: Faster Attention", 1, PART),
        ("Megatron: Training", "Megatron: Inference", 1, None),
        ("A", "A: a letter", 1, None),
        ("Overview", "Tensors: overview", 1, None),
    ],
)  # fmt: skip
def test_a_subtitle_may_be_left_away(a: str, b: str, headed: int, wanted: str | None) -> None:
    assert compare_titles(a, b, headed) == wanted


def test_titles_without_words_are_compared_as_they_are() -> None:
    assert compare_titles("\u2026", "\u2026") == SAME
    assert compare_titles("\u2026", "\u00b7") is None
    assert compare_titles("On the", "Of the") is None
    assert compare_titles("", "!") is None


# Without the letters that a plural ends in.
WORDS = st.text("abcdfghjklmnopqrtvwxz", min_size=8, max_size=14)


@given(st.lists(WORDS, min_size=1, max_size=6, unique=True), st.data())
def test_one_slip_in_a_long_word_is_found(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    place = data.draw(st.integers(0, len(words) - 1))
    word = words[place]
    at = data.draw(st.integers(1, len(word) - 2))
    slip = data.draw(st.sampled_from([
        word[:at] + word[at + 1 :],
        word[:at] + "q" + word[at:],
        word[:at] + "q" + word[at + 1 :],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
    ]))  # fmt: skip
    if max(word, slip, key=len).endswith(min(word, slip, key=len)):
        return  # a letter before the word may be a prefix
    wrong = " ".join([*words[:place], slip, *words[place + 1 :]])
    assert compare_titles(text, wrong) in (SAME, NEAR)
    assert compare_titles(text, f"{wrong} 2") is None


@given(st.lists(st.text(max_size=30), max_size=8))
def test_any_texts_are_compared(texts: list[str]) -> None:
    found = list(similar_pairs([parse_title(text, 1) for text in texts]))
    assert all(first < second < len(texts) for first, second, _ in found)
    assert {(a, b) for b in range(len(texts)) for a in range(b) if texts[a] == texts[b]} <= {
        (first, second) for first, second, _ in found
    }


def invent_titles(kind: str) -> list[str]:
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(10_000)]
    return {
        "as they are": make_titles(10_000),
        "one frame": [f"Understanding the {word} kernels of Hopper" for word in words],
        "one prefix": [f"Understanding: {word}" for word in words],
        "long": [f"{word} " * 2 + "one two three four five six seven eight" for word in words],
        "numbers": [f"Understanding warps, part {number}" for number in range(10_000)],
        "one title": ["Understanding warps"] * 10_000,
        "one head": ["Understanding warps"] * 5000 + ["Understanding warps: more"] * 5000,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "most"),
    [("as they are", 0), ("one frame", 20), ("one prefix", 20), ("long", 20), ("numbers", 0),
     ("one title", 10_000 * MOST), ("one head", 15_000 * MOST)],
)  # fmt: skip
def test_ten_thousand_titles_are_compared_in_time(kind: str, most: int) -> None:
    texts = invent_titles(kind)
    start = time.process_time()
    found = sum(1 for _ in similar_pairs([parse_title(text, 1) for text in texts]))
    assert time.process_time() - start < 10
    assert found <= most


# A title that the web gives.

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
R1 = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, PAGED),
        (PAGED, PAGED.upper()),
        (PAGED, PAGED.replace("PagedAttention", "Paged Attention") + "."),
        ("GPipe", "GPipe: Efficient Training of Giant Neural Networks"),
        ("GPipe: Efficient Training of Giant Neural Networks", "GPipe"),
        ("FlashAttention-2", "FlashAttention-2: Faster Attention with Better Parallelism"),
        ("3.5-D Blocking Optimization for Stencils", "3.5-D blocking optimization for stencils"),
        ("Modeling on μ-architectures", "Modeling on $\\mu$-architectures"),
        ("Reduction in O(n) time", "Reduction in <i>O</i>(<i>n</i>) time"),
        ("Kernels & tiles", "Kernels &amp; tiles"),
        ("Schrödinger's tile", "Schrodinger\u2019s Tile"),
        ("ZeRO: Memory Optimizations", "ZeRO - memory optimizations"),
    ],
)
def test_one_work_written_in_two_ways(ours: str, there: str) -> None:
    assert same_work([ours], there)


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, R1),  # what a reading group's notes had as the paper
        ("DeepSeek-V3 Technical Report", "DeepSeek-V2 Technical Report"),
        ("FlashAttention: Fast and Exact", "FlashAttention-2: Faster Attention"),
        ("FlashAttention", "FlashAttention-2: Faster Attention"),
        ("Attention Is All You Need", "Attention Is Not All You Need: Pure Attention Loses Rank"),
        (
            "MonoNN",
            "Aceso: Efficient Parallel DNN Training through Iterative Bottleneck Alleviation",
        ),
        ("Zero Bubble Pipeline Parallelism", "Pipeline Parallelism with Controllable Memory"),
    ],
)
def test_two_works(ours: str, there: str) -> None:
    assert not same_work([ours], there)


def test_the_english_title_counts_as_well() -> None:
    assert same_work(["流水线并行", "Pipeline parallelism"], "Pipeline Parallelism")
    assert not same_work(["流水线并行"], "Pipeline Parallelism")


def test_a_publication_may_be_worded_otherwise() -> None:
    ours = "PipeDream: Fast and Efficient Pipeline Parallel DNN Training"
    there = "PipeDream: generalized pipeline parallelism for DNN training"
    assert same_work([ours], there, version=True) and not same_work([ours], there)
    assert not same_work([PAGED], R1, version=True)


@pytest.mark.parametrize(
    ("ours", "repository", "says", "right"),
    [
        ("llama.cpp", "ggml-org/llama.cpp", "LLM inference in C/C++", True),
        ("CUDA Softmax", "Fattorib/CudaSoftmax", "", True),
        ("EleutherAI ML Scalability & Performance Reading Group",
         "danielvegamyhre/ml-perf-reading-group", "Notes of the EleutherAI ML Performance reading"
         " group", True),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code", "", False),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code",
         "pytorch source code, annotated", True),
        ("vLLM", "sgl-project/sglang", "A serving framework for large language models", False),
        ("FlashMLA", "deepseek-ai/DeepEP", "An expert-parallel communication library", False),
    ],
)  # fmt: skip
def test_repositories(ours: str, repository: str, says: str, right: bool) -> None:
    assert names_repository([ours], repository, says) is right


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_titles_can_be_compared(one: str, other: str) -> None:
    assert same_work([one], one)
    assert names_repository([one], other, one) in (True, False)
    for version in (True, False):
        assert same_work([one], other, version=version) in (True, False)


NEXT = datetime.now(UTC).year + 1
PREPRINT = "https://arxiv.org/abs/2307.08691"


@pytest.mark.parametrize(
    ("venue", "years"),
    [
        ("ICLR 2024", [2024]),
        ("CVPR2016", [2016]),
        ("Neurocomputing 568 (2024)", [2024]),
        ("NVIDIA Technical Report NVR-2016-002", [2016]),
        ("SC'11", [2011]),
        ("SC\u201911", [2011]),
        ("ISCA '99", [1999]),
        ("GTC 2021, session S31151", [2021]),
        ("GTC 2021, held again in 2022", [2021, 2022]),
        ("SOSP 2023, a paper of SOSP 2023", [2023]),
        ("session S2025", []),
        ("Computing 102, pages 1989-2005", []),
        ("Journal 14(4)", []),
        ("arXiv", []),
        (f"ICLR {NEXT}", [NEXT]),
        (f"ICLR {NEXT + 1}", []),
        ("Part 120245", []),
        ("", []),
    ],
)
def test_a_venue_names_its_years(venue: str, years: list[int]) -> None:
    assert venue_years(venue) == years


@pytest.mark.parametrize(
    ("url", "venue", "years"),
    [
        (PREPRINT, "ICLR 2024", [2024]),
        (PREPRINT, "arXiv", [2023]),
        (PREPRINT, "ARXIV ", [2023]),
        (PREPRINT, None, None),  # where it appeared is not said, so neither is its year
        (PREPRINT, "Journal of Machine Learning Research", None),
        ("https://arxiv.org/abs/math/0309136", "arXiv", [2003]),
        ("https://arxiv.org/abs/hep-th/9901001", "arXiv", [1999]),
        ("https://doi.org/10.48550/arXiv.2307.08691", "arXiv", [2023]),
        ("https://example.org/2019/a", "arXiv", None),
        ("https://example.org/2019/a", "PPoPP 2020", [2020]),
    ],
)
def test_who_says_which_year(url: str, venue: str | None, years: list[int] | None) -> None:
    told = expected_years(url, venue)
    assert (told and told[0]) == years


def test_an_address_that_is_none_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="does not start with"):
        expected_years("example.org", "arXiv")


@given(st.text(max_size=80))
def test_any_venue_can_be_asked(venue: str) -> None:
    found = venue_years(venue)
    assert len(found) == len(set(found)) and all(FIRST_YEAR <= year <= NEXT for year in found)


@given(st.integers(FIRST_YEAR, NEXT), st.from_regex(r"[A-Z]{2,8}", fullmatch=True))
def test_a_conference_and_its_year_name_it(year: int, conference: str) -> None:
    assert venue_years(f"{conference} {year}") == venue_years(f"{conference}{year}") == [year]


def test_next_year_moves_on_while_a_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2059, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(model, "datetime", Later)
    assert model._check_year(2060) == 2060
    assert venue_years("ICLR 2060, ICLR 2061") == [2060]
    with pytest.raises(ValueError, match="outside 1950 to 2060"):
        model._check_year(2061)
