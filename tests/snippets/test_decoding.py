"""Attention while decoding: pages of keys, and latent keys."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.mla_decode import cases as mla_decode_cases  # noqa: E402
from snippets.mla_decode import mla_decode as mla  # noqa: E402
from snippets.mla_decode import seesaw  # noqa: E402
from snippets.paged_attention import cases as paged_attention_cases  # noqa: E402
from snippets.paged_attention import paged_attention as paged  # noqa: E402
from warpshelf.look import binary  # noqa: E402

# paged_attention: what it refuses, and what its cases, run by test_snippets.py, cannot see.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_paged_case(d: int = 64, **more) -> list:
    """q, k, v, table and lengths of a small case: 3 sequences, 2 heads of keys, 2 to each."""
    case = paged_attention_cases.case(3, 2, 2, d, 70, 16, "float16", **more)
    told = paged_attention_cases.inputs(case, DEVICE, torch.Generator(DEVICE).manual_seed(0))
    return list(told[:5])


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_paged_attention_the_operator_keeps_the_rules_of_operators() -> None:
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(paged.attention, (*draw_paged_case(), 0.125, 80), test_utils=tests)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_paged_attention_the_operator_gives_what_the_kernels_give() -> None:
    told = draw_paged_case()
    out, lse = paged.paged_attention(*told)
    truth = paged_attention_cases.reference(*told, None)
    assert is_close(out, truth[0], 1e-3)
    assert torch.equal(lse == float("-inf"), truth[1] == float("-inf"))
    assert not out[2].any()  # the sequence without keys


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_paged_attention_the_same_inputs_give_the_same_bits() -> None:
    told = draw_paged_case()
    first, second = (paged.decode(*told, chunk=64) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_a_length_past_the_longest_counts_as_the_longest(way: dict) -> None:
    *told, lengths = draw_paged_case()
    wanted = paged_attention_cases.reference(*told, lengths.clamp(max=64), None)[0]
    longer = lengths + torch.tensor([2**20, 0, 0], device=DEVICE, dtype=lengths.dtype)
    assert is_close(paged.decode(*told, longer, longest=64, **way)[0], wanted, 1e-3)


@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_a_negative_length_is_no_key(way: dict) -> None:
    *told, lengths = draw_paged_case()
    out, lse = paged.decode(*told, torch.full_like(lengths, -70), **way)
    assert not out.any() and (lse == float("-inf")).all()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", [{"by_head": True}, {"chunk": 2**30}, {"chunk": 64}], ids=str)
def test_paged_attention_pages_further_apart_than_32_bits_count(way: dict) -> None:
    q, k, v, table, lengths = draw_paged_case()
    step = (2**31 + 4096) // (k.shape[0] - 1) // 16 * 16 + 16
    far = []
    for x in (k, v):  # of memory that is only touched where a page lies
        room = torch.empty(step * x.shape[0], dtype=x.dtype, device=DEVICE)
        spread = room.as_strided(x.shape, (step, *x.stride()[1:]))
        far.append(spread.copy_(x))
    assert step * (k.shape[0] - 1) > 2**31
    wanted = paged_attention_cases.reference(q, k, v, table, lengths, None)[0]
    assert is_close(paged.decode(q, *far, table, lengths, **way)[0], wanted, 1e-3)


def test_paged_attention_all_masked_logits_give_zero() -> None:
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


def test_paged_attention_few_sequences_are_cut_and_many_are_not() -> None:
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
def test_paged_attention_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^paged_attention: .*{said}") as raised:
        paged.paged_attention(*change(*draw_paged_case()))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_paged_attention_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ValueError, match=f"paged_attention: scale = {scale} "):
        paged.paged_attention(*draw_paged_case(), scale=scale)


@pytest.mark.parametrize("longest", [-1, 81])
def test_paged_attention_refuses_a_bound_for_which_the_table_has_no_room(longest: int) -> None:
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


# mla_decode: absorbed equals unabsorbed, what is refused, and what its cases, run by
# test_snippets.py, cannot see.

WAYS = [{"way": "by head"}, {"chunk": 2**30}, {"chunk": 64}]
SCALE, ROPE = 80**-0.5, 16


def draw_latent_case(**more) -> list:
    """q, cache, table and lengths of a small case: 3 sequences, 4 heads, pages of 16."""
    case = mla_decode_cases.case(3, 4, 70, 16, "float16", **more)
    return list(mla_decode_cases.inputs(case, DEVICE, torch.Generator(DEVICE).manual_seed(0))[:4])


def draw_layer_parts(t: int, dtype: torch.dtype) -> tuple:
    """q_nope, q_rope, rows, w_uk, w_uv: 2 sequences of 50 rows, 3 heads of 24 + 16 columns."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    shapes = ((2, t, 3, 24), (2, t, 3, ROPE), (2, 50, 64 + ROPE), (3, 24, 64), (3, 64, 24))
    return tuple(
        torch.randn(shape, generator=generator, device=DEVICE, dtype=torch.float64).to(dtype)
        for shape in shapes
    )


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("t", [1, 3])
def test_in_float64_absorbed_is_unabsorbed(t: int) -> None:
    q_nope, q_rope, rows, w_uk, w_uv = draw_layer_parts(t, torch.float64)
    wanted = mla.unabsorbed(q_nope, q_rope, rows, w_uk, w_uv, 0.02)
    table = torch.arange(2)[:, None]  # each sequence a page of 50 rows
    lengths = torch.tensor([50, 50])
    q = mla.absorb(q_nope, q_rope, w_uk)
    out, _ = mla_decode_cases.reference(q, rows, table, lengths, 0.02, ROPE)
    assert is_close(mla.lift(out, w_uv), wanted, 1e-13)
    # The proof sees W_UV and the turned columns: without either it would not hold.
    swapped, _ = mla_decode_cases.reference(
        mla.absorb(q_nope, -q_rope, w_uk), rows, table, lengths, 0.02, ROPE
    )
    assert not is_close(mla.lift(swapped, w_uv), wanted, 1e-3)
    assert not is_close(mla.lift(out, w_uv.flip(0)), wanted, 1e-3)


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_kernels_give_what_expanded_keys_and_values_give(way: dict) -> None:
    exact = draw_layer_parts(2, torch.float64)
    wanted = mla.unabsorbed(*exact, 0.02)
    q_nope, q_rope, rows, w_uk, w_uv = (x.float() for x in exact)
    table = torch.tensor([[1], [0]], device=DEVICE)
    lengths = torch.tensor([50, 50], device=DEVICE)
    q = mla.absorb(q_nope, q_rope, w_uk)
    out, _ = mla.decode(q, rows.flip(0), table, lengths, 0.02, ROPE, **way)
    assert is_close(mla.lift(out, w_uv), wanted, 1e-5)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_mla_decode_the_operator_keeps_the_rules_of_operators() -> None:
    tests = ("test_schema", "test_faketensor")
    told = (*draw_latent_case(), SCALE, ROPE, 80)
    torch.library.opcheck(mla.attention, told, test_utils=tests)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_mla_decode_the_operator_gives_what_the_kernels_give() -> None:
    told = draw_latent_case()
    out, lse = mla.mla_decode(*told, SCALE, ROPE)
    truth = mla_decode_cases.reference(*told, SCALE, ROPE)
    assert is_close(out, truth[0], 1e-3)
    assert torch.equal(lse == float("-inf"), truth[1] == float("-inf"))
    assert not out[2].any()  # the sequence without rows


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_mla_decode_the_same_inputs_give_the_same_bits() -> None:
    told = draw_latent_case()
    first, second = (mla.decode(*told, SCALE, ROPE, chunk=64) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_lengths_past_the_longest_count_as_it_and_negative_ones_as_none(way: dict) -> None:
    *told, lengths = draw_latent_case()
    wanted = mla_decode_cases.reference(*told, lengths.clamp(max=64), SCALE, ROPE)[0]
    odd = lengths + torch.tensor([2**20, 0, -70], device=DEVICE, dtype=lengths.dtype)
    out, lse = mla.decode(*told, odd, SCALE, ROPE, longest=64, **way)
    assert is_close(out, wanted, 1e-3)
    assert not out[2].any() and (lse[2] == float("-inf")).all()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_mla_decode_pages_further_apart_than_32_bits_count(way: dict) -> None:
    q, cache, table, lengths = draw_latent_case()
    step = (2**31 + 4096) // (cache.shape[0] - 1) // 16 * 16 + 16
    # Of memory that is only touched where a page lies.
    room = torch.empty(step * cache.shape[0], dtype=cache.dtype, device=DEVICE)
    far = room.as_strided(cache.shape, (step, *cache.stride()[1:])).copy_(cache)
    assert step * (cache.shape[0] - 1) > 2**31
    wanted = mla_decode_cases.reference(q, cache, table, lengths, SCALE, ROPE)[0]
    assert is_close(mla.decode(q, far, table, lengths, SCALE, ROPE, **way)[0], wanted, 1e-3)


def test_mla_decode_all_masked_logits_give_zero() -> None:
    q, cache, table, lengths = draw_latent_case()
    cache = cache.nan_to_num()
    cache[..., 64:] = float("-inf")  # the turned columns only: values stay finite
    for way in WAYS:
        out, lse = mla.decode(q.abs() + 1, cache, table, lengths, SCALE, ROPE, **way)
        assert not out.any() and (lse == float("-inf")).all()


@pytest.mark.parametrize("places", [1, 4, 132, 264])
def test_parts_cover_a_sequence_and_are_not_too_short(places: int) -> None:
    for b in (1, 3, 32, 500):
        for longest in (1, 64, 1000, 131_072):
            for rows in (1, 16, 128):
                tile = mla.tile_of(512, rows, torch.bfloat16, 90)
                n = tile["N"]
                chunk = mla.chunk_of(b, rows, tile, longest, places)
                parts = -(-longest // chunk)
                assert chunk % n == 0 and chunk * parts >= longest
                assert parts == 1 or chunk >= 2 * n
                programs = b * -(-rows // tile["M"])
                assert programs * parts <= max(4 * places, programs)


def test_mla_decode_few_sequences_are_cut_and_many_are_not() -> None:
    tile = mla.tile_of(512, 128, torch.bfloat16, 90)
    assert mla.chunk_of(1, 128, tile, 131_072, 132) == 2016  # 66 parts of 2 tiles
    assert mla.chunk_of(66, 128, tile, 8192, 132) == 8192
    assert mla.chunk_of(1, 128, tile, 64, 132) == 64


@pytest.mark.exhaustive("compiles the longest of the kernels whole")
def test_seesaw_products_follow_each_other_and_exponentials_run_beside_them() -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    name = "seesaw<__nv_bfloat16, int, __nv_bfloat16>"
    code, symbols = seesaw.KERNELS.cubin([name], "sm_90")
    body = binary.split_functions(binary.run_cuobjdump("-sass", code))[symbols[name]]
    # Where the assembler cannot follow the products, it waits behind each of them.
    assert body.count("HGMMA") == 2 * 36 + 5 * 4 and body.count("WARPGROUP.ARRIVE") == 2 + 5
    beside = body.split("WARPGROUP.DEPBAR.LE gsb0, 0x1")[1].split("WARPGROUP.DEPBAR")[0]
    assert beside.count("MUFU.EX2") > 28  # of 34, for which the other group waits


def test_seesaw_is_taken_where_it_fits_and_refused_where_not() -> None:
    case = mla_decode_cases.case(1, 20, 70, 64, "float16", **mla_decode_cases.REAL)
    draw = torch.Generator(DEVICE).manual_seed(0)
    q, cache, *rest = mla_decode_cases.inputs(case, DEVICE, draw)[:6]
    wide = torch.cat([cache, cache], -1)[..., :576]  # its pages are not one matrix
    seesaw, tiles = (mla.decode(q, rows, *rest)[0] for rows in (cache, wide))
    assert is_close(tiles, seesaw, 1e-3) and not torch.equal(tiles, seesaw)  # two kernels
    with pytest.raises(ValueError, match="mla_decode: no way 'seesaw' for these; leave"):
        mla.decode(q, wide, *rest, way="seesaw")
    with pytest.raises(ValueError, match="mla_decode: no way 'fast' for"):
        mla.decode(q, cache, *rest, way="fast")


@pytest.mark.parametrize("arch", [80, 86, 89, 90, 100, 120])
def test_tiles_fit_shared_memory(arch: int) -> None:
    room = {80: 163, 90: 227, 100: 227}.get(arch, 99) * 1024
    for rows in (1, 16, 17, 128, 500):
        tile = mla.tile_of(512, rows, torch.bfloat16, arch)
        # Queries, and a tile a stage at most; on Blackwell the loads need one fewer.
        held = tile["num_stages"] - tile["TURNED"]
        assert (tile["M"] + held * tile["N"]) * 576 * 2 <= room


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q, c, t, n: (q, c.float(), t, n), TypeError, "cache is torch.float32 on"),
        (lambda q, c, t, n: (q.double(), c, t, n), TypeError, "q is torch.float64, none"),
        (lambda q, c, t, n: (q, c, t.half(), n), TypeError, "table is torch.float16, none"),
        (lambda q, c, t, n: (q, c.to("meta"), t, n), TypeError, "cache is .* on meta"),
        (lambda q, c, t, n: (q, c, t, n.to("meta")), TypeError, "lengths is .* on meta"),
        (lambda q, c, t, n: (q[:, 0], c, t, n), ValueError, "q has 3 dimensions; give it 4"),
        (lambda q, c, t, n: (q, c[:, :, None], t, n), ValueError, "cache has 4 dimensions"),
        (lambda q, c, t, n: (q, c, t[0], n), ValueError, "table has 1 dimensions"),
        (lambda q, c, t, n: (q, c[..., 1:], t, n), ValueError, "do not fit"),
        (lambda q, c, t, n: (q, c[:, :0], t, n), ValueError, "one slot or more"),
        (lambda q, c, t, n: (q[..., 1:], c, t, n), ValueError, "L = 63, of 79 columns"),
        (lambda q, c, t, n: (q, c, t[:2], n), ValueError, "2 rows of the table and 3"),
        (lambda q, c, t, n: (q, c, t, n[:1]), ValueError, "1 lengths for 3 sequences"),
    ],
)
def test_mla_decode_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^mla_decode: .*{said}") as raised:
        mla.mla_decode(*change(*draw_latent_case()), SCALE, ROPE)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("rope", [0, 8, 24, 128])
def test_refuses_other_widths_of_turned_columns(rope: int) -> None:
    with pytest.raises(ValueError, match="mla_decode: [LR] = .* is no power of two"):
        mla.mla_decode(*draw_latent_case(), SCALE, rope)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_mla_decode_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ValueError, match=f"mla_decode: scale = {scale} "):
        mla.mla_decode(*draw_latent_case(), scale, ROPE)


@pytest.mark.parametrize("longest", [-1, 81])
def test_mla_decode_refuses_a_bound_for_which_the_table_has_no_room(longest: int) -> None:
    with pytest.raises(ValueError, match=f"longest = {longest} is not from 0 to 80"):
        mla.mla_decode(*draw_latent_case(), SCALE, ROPE, longest)
