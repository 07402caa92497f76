"""Paged attention: what it refuses, and what its cases, run by test_snippets.py, cannot see."""

from __future__ import annotations

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.paged_attention import cases  # noqa: E402
from snippets.paged_attention import paged_attention as paged  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_paged_case(d: int = 64, **more) -> list:
    """q, k, v, table and lengths of a small case: 3 sequences, 2 heads of keys, 2 to each."""
    case = cases.case(3, 2, 2, d, 70, 16, "float16", **more)
    told = cases.inputs(case, DEVICE, torch.Generator(DEVICE).manual_seed(0))
    return list(told[:5])


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_the_operator_keeps_the_rules_of_operators() -> None:
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(paged.attention, (*draw_paged_case(), 0.125, 80), test_utils=tests)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_the_operator_gives_what_the_kernels_give() -> None:
    told = draw_paged_case()
    out, lse = paged.paged_attention(*told)
    truth = cases.reference(*told, None)
    assert is_close(out, truth[0], 1e-3)
    assert torch.equal(lse == float("-inf"), truth[1] == float("-inf"))
    assert not out[2].any()  # the sequence without keys


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    told = draw_paged_case()
    first, second = (paged.decode(*told, chunk=64) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_a_length_past_the_longest_counts_as_the_longest(way: dict) -> None:
    *told, lengths = draw_paged_case()
    wanted = cases.reference(*told, lengths.clamp(max=64), None)[0]
    longer = lengths + torch.tensor([2**20, 0, 0], device=DEVICE, dtype=lengths.dtype)
    assert is_close(paged.decode(*told, longer, longest=64, **way)[0], wanted, 1e-3)


@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_a_negative_length_is_no_key(way: dict) -> None:
    *told, lengths = draw_paged_case()
    out, lse = paged.decode(*told, torch.full_like(lengths, -70), **way)
    assert not out.any() and (lse == float("-inf")).all()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_pages_further_apart_than_32_bits_count(way: dict) -> None:
    q, k, v, table, lengths = draw_paged_case()
    step = (2**31 + 4096) // (k.shape[0] - 1) // 16 * 16 + 16
    far = []
    for x in (k, v):  # of memory that is only touched where a page lies
        room = torch.empty(step * x.shape[0], dtype=x.dtype, device=DEVICE)
        spread = room.as_strided(x.shape, (step, *x.stride()[1:]))
        far.append(spread.copy_(x))
    assert step * (k.shape[0] - 1) > 2**31
    wanted = cases.reference(q, k, v, table, lengths, None)[0]
    assert is_close(paged.decode(q, *far, table, lengths, **way)[0], wanted, 1e-3)


def test_all_masked_logits_give_zero() -> None:
    q, k, v, table, lengths = draw_paged_case()
    k = torch.full_like(k, float("-inf"))
    for way in ({"by_head": True}, {"chunk": 2**30}, {"chunk": 64}):
        out, lse = paged.decode(q.abs() + 1, k, v, table, lengths, **way)
        assert not out.any() and (lse == float("-inf")).all()


@pytest.mark.parametrize("places", [1, 4, 216, 264])
def test_parts_fill_the_gpu_and_are_not_too_short(places: int) -> None:
    for programs in (1, 3, 32, 100, 300, 4096):
        for longest in (1, 64, 1000, 131_072):
            for rows in (1, 8, 64):
                chunk = paged.chunk_of(programs, rows, longest, 64, places)
                parts = -(-longest // chunk)
                assert chunk % 64 == 0 and chunk * parts >= longest
                assert parts == 1 or chunk >= max(256, 32 * rows) - 63
                assert programs * parts <= max(4 * places, programs)


def test_few_sequences_are_cut_and_many_are_not() -> None:
    assert paged.chunk_of(8, 4, 131_072, 64, 264) == 4032  # 33 parts for each of 8 heads
    assert paged.chunk_of(264, 4, 8192, 64, 264) == 8192
    assert paged.chunk_of(8, 4, 200, 64, 264) == 256


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q, k, v, t, n: (q, k.float(), v, t, n), TypeError, "k is torch.float32 on"),
        (lambda q, k, v, t, n: (q.double(), k, v, t, n), TypeError, "q is torch.float64, none"),
        (lambda q, k, v, t, n: (q, k, v, t.half(), n), TypeError, "table is torch.float16, none"),
        (lambda q, k, v, t, n: (q, k, v.to("meta"), t, n), TypeError, "v is .* on meta"),
        (lambda q, k, v, t, n: (q, k, v, t, n.to("meta")), TypeError, "lengths is .* on meta"),
        (lambda q, k, v, t, n: (q[:, 0], k, v, t, n), ValueError, "q has 3 dimensions; give it 4"),
        (lambda q, k, v, t, n: (q, k, v, t[0], n), ValueError, "table has 1 dimensions"),
        (lambda q, k, v, t, n: (q[:, :, :3], k, v, t, n), ValueError, "H_q = 3 is no multiple"),
        (lambda q, k, v, t, n: (q, k[:, :, :0], v[:, :, :0], t, n), ValueError, "H_kv = 0"),
        (lambda q, k, v, t, n: (q, k, v[:, 1:], t, n), ValueError, "do not fit"),
        (lambda q, k, v, t, n: (q, k[:, :0], v[:, :0], t, n), ValueError, "one slot or more"),
        (lambda q, k, v, t, n: (q, k, v, t[:2], n), ValueError, "2 rows of the table and 3"),
        (lambda q, k, v, t, n: (q, k, v, t, n[:1]), ValueError, "1 lengths for 3 sequences"),
        (lambda q, k, v, t, n: (q[..., :0], k, v, t, n), ValueError, "D = 0 is not from 1"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^paged_attention: .*{said}") as raised:
        paged.paged_attention(*change(*draw_paged_case()))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ValueError, match=f"paged_attention: scale = {scale} "):
        paged.paged_attention(*draw_paged_case(), scale=scale)


@pytest.mark.parametrize("longest", [-1, 81])
def test_refuses_a_bound_for_which_the_table_has_no_room(longest: int) -> None:
    with pytest.raises(ValueError, match=f"longest = {longest} is not from 0 to 80"):
        paged.paged_attention(*draw_paged_case(), longest=longest)


def test_every_tile_is_one_that_matrix_instructions_take() -> None:
    for width in (16, 32, 64, 128, 256):
        for rows in (1, 4, 16, 17, 64, 500):
            for dtype in (torch.float32, torch.bfloat16):
                tile = paged.tile_of(width, rows, dtype)
                assert tile["M"] in (16, 32, 64) and tile["N"] in (16, 32, 64, 128)
                held = 4 * tile["N"] * width * (2 if dtype is torch.float32 else 1)
                assert held * (tile["num_stages"] - 1) <= 64 * 1024
