"""Matrix products in CUDA C++: what each refuses, chooses and predicts."""

from __future__ import annotations

import random
import re

import papergpu
import pytest
import torch
from conftest import ROOT, exhaustive, read_demo, snippets_of_the_shelf
from cuda_snippet import line_counts

from snippets import cuda
from snippets.autotune import autotune
from snippets.autotune import cases as autotune_cases
from snippets.gemm_layouts import gemm_layouts
from snippets.hopper_gemm import hopper_gemm
from snippets.sgemm import cases, sgemm
from snippets.tensor_core_gemm import tensor_core_gemm
from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Pool
from warpshelf.contract.values import Space
from warpshelf.core.project import Project
from warpshelf.look import binary
from warpshelf.records import ledger, space, store
from warpshelf.worker.context import Task

# sgemm: what it refuses, what it predicts, and that its peer computes in full float32.

SGEMM_A, SGEMM_B = torch.ones(3, 4), torch.ones(4, 5)


@pytest.mark.parametrize(
    ("a", "b", "rung", "kind", "message"),
    [
        (
            SGEMM_A.double(),
            SGEMM_B,
            "naive",
            TypeError,
            r"sgemm: a is torch.float64, .*a\.float\(\)",
        ),
        (SGEMM_A, SGEMM_B.half(), "naive", TypeError, "sgemm: b is torch.float16"),
        (SGEMM_A[0], SGEMM_B, "naive", ValueError, "sgemm: a has 1 dimensions, not 2"),
        (
            SGEMM_A,
            SGEMM_A,
            "naive",
            ValueError,
            r"sgemm: a \(3, 4\) on cpu and b \(3, 4\) on cpu cannot",
        ),
        (SGEMM_A, SGEMM_B.to("meta"), "naive", ValueError, "b .* on meta cannot be multiplied"),
        (
            SGEMM_A,
            SGEMM_B,
            "fastest",
            ValueError,
            "sgemm: no rung 'fastest'; there are naive, coalesced",
        ),
        (
            torch.empty(2**31, 0),
            SGEMM_B[:0],
            "naive",
            ValueError,
            "a is 2147483648 x 0, a side over",
        ),
        (torch.empty(2**30, 0), torch.empty(0, 2**30), "naive", ValueError, "over 2..31 tiles"),
    ],
)
def test_sgemm_what_cannot_be_multiplied_is_refused(a, b, rung, kind, message):
    with pytest.raises(kind, match=message):
        sgemm.multiply(a, b, rung)


@pytest.mark.parametrize("rung", sgemm.RUNGS)
def test_empty_sum_is_zero(rung):
    assert sgemm.multiply(torch.ones(3, 0), torch.ones(0, 5), rung).eq(0).all()


def test_rows_that_overlap_are_read_where_they_are(monkeypatch):
    """A Hankel matrix: row i begins one element after row i - 1."""
    x = torch.arange(40.0)
    a = x.as_strided((30, 9), (1, 1))
    monkeypatch.setattr(torch.Tensor, "contiguous", None)
    for rung in sgemm.RUNGS:
        assert torch.equal(sgemm.multiply(a, torch.eye(9), rung), a)


@pytest.mark.parametrize("arch", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
@pytest.mark.exhaustive("what each rung compiles to")
def test_compiled_rungs_load_as_predicted(arch):
    """Loads from shared memory by multiply-add, and barriers, in the machine code itself."""
    rungs = [sgemm.RUNGS[name] for name in ("float4", "warp tiles", "double buffered")]
    code, symbols = sgemm.KERNELS.cubin([rung.instance() for rung in rungs], arch)
    bodies = binary.split_functions(binary.run_cuobjdump("-sass", code))
    for rung in rungs:
        body = bodies[symbols[rung.instance()]]
        count = {op: len(re.findall(rf"\s{op}[.\s]", body)) for op in ("FFMA", "LDS", "BAR")}
        assert count["LDS"] / count["FFMA"] == sgemm.shared_loads(rung)
        assert "LDS.128" in body and not re.search(r"\sLDS(?!\.128)", body)
        assert count["BAR"] == 2  # of a slab; double buffered: one before the loop, one in it
        used = binary.function_usage(code)[symbols[rung.instance()]]
        limits = cases.LIMITS["*"]
        assert used.registers <= limits["registers"] and used.spilled_bytes == 0
        assert used.shared_bytes <= limits["shared_bytes"]


def test_predictions_are_those_of_counted_addresses():
    """The formulas against the addresses that the threads of one warp name."""
    for name, rows, columns in (
        ("naive", range(32), [0] * 32),
        ("coalesced", [0] * 32, range(32)),
    ):
        sectors = {("a", row) for row in rows} | {("b", column // 8) for column in columns}
        assert sgemm.global_bytes(sgemm.RUNGS[name]) == len(sectors) * 32 / 32
    for name in ("2-D coarse", "float4"):  # 16 patches of 8 x 8 to a row of the block's tile
        patches = [(lane // 16, lane % 16) for lane in range(32)]
        words = len({r for r, _ in patches}) * 8 + len({c for _, c in patches}) * 8
        assert sgemm.shared_words(sgemm.RUNGS[name]) == words / (32 * 64)
    for name in ("warp tiles", "double buffered"):
        rung = sgemm.RUNGS[name]
        across = rung.warp[1] // 8
        patches = [(lane // (2 * across) * 2 + lane % 2, lane // 2 % across) for lane in range(32)]
        assert len(set(patches)) == 32
        words = len({r for r, _ in patches}) * 8 + len({c for _, c in patches}) * 8
        assert sgemm.shared_words(rung) == words / (32 * 64)


def test_peer_computes_in_full_float32_and_leaves_the_setting(monkeypatch):
    matmul = torch.backends.cuda.matmul
    seen, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: seen.append(matmul.fp32_precision) or mm(a, b))
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        assert torch.equal(cases.library(SGEMM_A, SGEMM_B), SGEMM_A @ SGEMM_B)
        assert seen == ["ieee"] and matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_demo_finds_every_rung_within_its_error():
    lines = read_demo(sgemm).splitlines()
    assert len(lines) == 2 + len(sgemm.RUNGS)
    assert all(line.endswith("True") for line in lines[2:])


# gemm_layouts: what it refuses, which kernel it chooses, and the banks that it predicts.

GEMM_LAYOUTS_A, GEMM_LAYOUTS_B = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(4, 5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A, GEMM_LAYOUTS_B, "magic"),
            ValueError,
            "no way 'magic'; there are naive, tiled",
        ),
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A.half(), GEMM_LAYOUTS_B),
            TypeError,
            "a is torch.float16, not float32",
        ),
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A, GEMM_LAYOUTS_B.double()),
            TypeError,
            "b is torch.float64, not float32",
        ),
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A[0], GEMM_LAYOUTS_B),
            ValueError,
            "a has 1 dimensions, not 2; reshape it",
        ),
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A, GEMM_LAYOUTS_A),
            ValueError,
            "a is 3 x 4 and b is 3 x 4; a's columns must",
        ),
        (
            lambda: gemm_layouts.product(GEMM_LAYOUTS_A[:, ::2], GEMM_LAYOUTS_B[:2]),
            ValueError,
            r"strides \(4, 2\), one of which",
        ),
        (
            lambda: gemm_layouts.product(torch.empty(2**31, 0), torch.empty(0, 1)),
            ValueError,
            "a side is over 2147483392; split the product",
        ),
    ],
)
def test_gemm_layouts_what_cannot_be_multiplied_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^gemm_layouts: .*{message}"):
        call()


def test_gemm_layouts_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert gemm_layouts.product(torch.ones(128, 1), torch.ones(1, 128)).shape == (128, 128)
    with pytest.raises(ValueError, match=r"gemm_layouts: c, 129 x 128, has over 2\*\*31 tiles"):
        gemm_layouts.product(torch.ones(129, 1), torch.ones(1, 128))


def test_layouts_have_their_names_and_vectors_either():
    assert (
        gemm_layouts.layout(GEMM_LAYOUTS_A, GEMM_LAYOUTS_B) == "NN"
        and gemm_layouts.layout(GEMM_LAYOUTS_A, GEMM_LAYOUTS_B.t()) == "NT"
    )
    assert (
        gemm_layouts.layout(GEMM_LAYOUTS_A.t(), GEMM_LAYOUTS_B) == "TN"
        and gemm_layouts.layout(GEMM_LAYOUTS_A.t(), GEMM_LAYOUTS_B.t()) == "TT"
    )
    row, column = torch.ones(1, 7), torch.ones(7, 1)
    for way in gemm_layouts.WAYS:
        assert gemm_layouts.product(row, column, way).item() == 7
        assert torch.equal(gemm_layouts.product(column.t(), row.t(), way), torch.full((1, 1), 7.0))
        assert (
            gemm_layouts.product(torch.ones(3, 0), torch.ones(0, 2), way).tolist() == [[0, 0]] * 3
        )
        assert gemm_layouts.product(torch.ones(0, 3), torch.ones(3, 2), way).shape == (0, 2)


def launch_product_of_gemm_layouts(*inputs: object, **settings: object) -> list[papergpu.Launched]:
    found: list[papergpu.Launched] = []
    with papergpu.settings(**settings), papergpu.on_launch(found.append):
        gemm_layouts.product(*inputs)
    return found


@pytest.mark.parametrize(
    ("a", "b", "kernel"),
    [
        (
            GEMM_LAYOUTS_A,
            GEMM_LAYOUTS_B,
            "<Swizzled, 1, 0, 0>",
        ),  # rows of b are no whole number of quads
        (GEMM_LAYOUTS_A, torch.ones(4, 8), "<Swizzled, 1, 0, 1>"),
        (GEMM_LAYOUTS_A, torch.ones(8, 4).t(), "<Swizzled, 1, 1, 1>"),
        (
            GEMM_LAYOUTS_A,
            torch.ones(33)[1:].view(4, 8),
            "<Swizzled, 1, 0, 0>",
        ),  # b begins off 16 bytes
        (torch.ones(4, 8).t(), torch.ones(4, 8), "<Swizzled, 0, 0, 1>"),
    ],
)
def test_gemm_layouts_16_bytes_are_moved_where_they_can_be(a, b, kernel):
    [one] = launch_product_of_gemm_layouts(a, b)
    assert one.name == f"gemm_tiled{kernel}"


@pytest.mark.parametrize("way", gemm_layouts.PLACES)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_stores_to_a_slab_take_the_wavefronts_that_banks_predict(way, layout):
    """By hand: what lies along K 4, 2 and 1 a store of a word; what does not 4 of 16 bytes."""
    a, b = torch.ones(128, 16), torch.ones(16, 128)
    a = a if layout[0] == "N" else a.t().contiguous().t()
    b = b if layout[1] == "N" else b.t().contiguous().t()
    [one] = launch_product_of_gemm_layouts(a, b, way, profile=True, threads=1)
    text = gemm_layouts.KERNELS.path.read_text().splitlines()
    found = {}
    for line in line_counts([one], "gemm_layouts"):
        if "store shared" in line["classes"]:
            code = text[int(line["at"].partition(":")[2]) - 1]
            found["quads[u][j]" in code] = line["wavefronts"] / line["shared_requests"]
    turned = {"tiled": 4, "padded": 2, "swizzled": 1}[way]
    assert gemm_layouts.wavefronts(gemm_layouts.words(way, along_k=True)) == turned
    assert gemm_layouts.wavefronts(gemm_layouts.words(way, along_k=False)) == 4
    both = {True: turned, False: 4}
    lie = {layout[0] == "N", layout[1] == "T"}  # whether each operand lies along K
    assert found == {one: both[one] for one in lie}


def test_gemm_layouts_demo_finds_every_way_right():
    lines = read_demo(gemm_layouts).splitlines()
    assert [line.split("right: ")[1] for line in lines[: len(gemm_layouts.WAYS)]] == [
        "NN NT TN TT"
    ] * 4


# tensor_core_gemm: what it refuses, which kernel it chooses, and the passes it predicts.

TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_B = torch.ones(3, 4).half(), torch.ones(4, 5).half()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_B, "magic"),
            ValueError,
            "no way 'magic'; there are wmma, shared",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A.float(), TENSOR_CORE_GEMM_B),
            TypeError,
            "a is torch.float32, not float16 or",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_B.bfloat16()),
            TypeError,
            "a is torch.float16 and b is torch.bf",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A[0], TENSOR_CORE_GEMM_B),
            ValueError,
            "a has 1 dimensions, not 2; reshape it",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_A),
            ValueError,
            "a is 3 x 4 and b is 3 x 4; a's columns must",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_B.t()),
            ValueError,
            "elements of a row of b lie 5 apart",
        ),
        (
            lambda: tensor_core_gemm.product(TENSOR_CORE_GEMM_A, TENSOR_CORE_GEMM_B, "wmma"),
            ValueError,
            "'wmma' takes sides that are multiples",
        ),
        (
            lambda: tensor_core_gemm.product(
                torch.empty(2**31, 0).half(), torch.empty(0, 1).half()
            ),
            ValueError,
            "a side is over 2147483392; split the product",
        ),
    ],
)
def test_tensor_core_gemm_what_cannot_be_multiplied_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^tensor_core_gemm: .*{message}"):
        call()


def test_tensor_core_gemm_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match=r"c, 129 x 8, has over 2\*\*31 tiles; split it"):
        tensor_core_gemm.product(torch.ones(129, 8).half(), torch.ones(8, 8).half())


@pytest.mark.parametrize("way", tensor_core_gemm.WAYS)
def test_without_depth_a_product_is_zero_and_without_sides_it_is_empty(way):
    zero = tensor_core_gemm.product(torch.ones(16, 0).half(), torch.ones(0, 16).half(), way)
    assert zero.shape == (16, 16) and not zero.any()
    assert tensor_core_gemm.product(
        torch.ones(0, 16).half(), torch.ones(16, 16).half(), way
    ).shape == (0, 16)
    assert tensor_core_gemm.product(
        torch.ones(16, 16).half(), torch.ones(16, 0).half(), way
    ).shape == (16, 0)


def launch_one_product(
    a: torch.Tensor, b: torch.Tensor, way: str, **settings: object
) -> papergpu.Launched:
    found: list[papergpu.Launched] = []
    with papergpu.settings(**settings), papergpu.on_launch(found.append):
        tensor_core_gemm.product(a, b, way)
    [one] = found
    return one


def ones(*sides: int) -> torch.Tensor:
    """Ones in float16."""
    return torch.ones(sides, dtype=torch.float16)


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [
        (ones(3, 8), ones(8, 16), 1),
        (ones(3, 7), ones(7, 16), 0),  # rows of a are no whole number of chunks
        (ones(3, 8), ones(8, 15), 0),
        (ones(25)[1:].view(3, 8), ones(8, 16), 0),  # a begins off 16 bytes
        (ones(3, 12)[:, :8], ones(8, 16), 0),  # and here every other row
        (ones(3, 16)[:, :8], ones(8, 16), 1),
    ],
)
def test_tensor_core_gemm_16_bytes_are_moved_where_they_can_be(a, b, wide):
    assert launch_one_product(a, b, "ldmatrix").name == f"gemm_ldmatrix<__half, {wide}>"


def test_shared_memory_is_that_of_the_slabs():
    """The bytes that are asked for are those of the kernels' places."""
    text = tensor_core_gemm.KERNELS.path.read_text()
    assert re.search(r"STAGES = (\d+);", text)[1] == str(tensor_core_gemm.STAGES)
    for way in ("cp.async", "ldmatrix"):
        a, b = ones(130, 200), ones(200, 136)
        assert torch.equal(tensor_core_gemm.product(a, b, way), torch.full((130, 136), 200).half())
        less = {
            **tensor_core_gemm.SHARED,
            way: tensor_core_gemm.SHARED[way] - 32,
        }  # 16 pad the last row
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Exception, match="shared memory"):
            patch.setattr(tensor_core_gemm, "SHARED", less)
            tensor_core_gemm.product(a, b, way)


def test_shared_memory_takes_the_cycles_that_the_page_predicts():
    """For a step of depth 4 of writing and 8 of reading: 12 passes of 128 bytes."""
    a, b = ones(128, 256), ones(256, 128)
    one = launch_one_product(a, b, "ldmatrix", profile=True, threads=1)
    text = tensor_core_gemm.KERNELS.path.read_text().splitlines()
    found: dict[str, int] = {}
    for line in line_counts([one], "tensor_core_gemm"):
        if line.get("wavefronts"):
            code = text[int(line["at"].partition(":")[2]) - 1]
            what = "write" if "inside" in code else "read" if '"r"(at)' in code else "turned"
            found[what] = found.get(what, 0) + line["wavefronts"]
    assert found["write"] == 256 * 4 * 128 // 128
    assert found["read"] == 256 * 8
    assert found["turned"] == 2 * 128 * 128 * 2 // 128  # written and read, 2 bytes each


def test_tensor_core_gemm_demo_finds_every_way_right():
    lines = read_demo(tensor_core_gemm).splitlines()
    assert len(lines) == 4 and not any("wrong" in line for line in lines)
    assert sum(line.count("right") for line in lines) == 14


# hopper_gemm: what it refuses, and which kernel it launches for a layout and a way.


@pytest.mark.parametrize(
    ("a", "b", "way", "kind", "message"),
    [
        (ones(8, 8), ones(8, 8), "magic", ValueError, "no way 'magic'; there are one stage, four"),
        (ones(8, 8).float(), ones(8, 8), "persistent", TypeError, "a is torch.float32, not float"),
        (ones(8, 8), ones(8, 8).bfloat16(), "persistent", TypeError, "and b is torch.bfloat16"),
        (ones(8), ones(8, 8), "persistent", ValueError, "a has 1 dimensions, not 2; reshape it"),
        (ones(8, 8), ones(16, 8), "persistent", ValueError, "a is 8 x 8 and b is 16 x 8; a's col"),
        (ones(8, 9), ones(9, 8), "persistent", ValueError, r"a has strides \(9, 1\) and begins 0"),
        (ones(8, 8), ones(65)[1:].view(8, 8), "persistent", ValueError, "begins 2 bytes past a mu"),
        (ones(2**31, 0), ones(0, 1), "persistent", ValueError, "a side is over 2147483136; split"),
    ],
)
def test_hopper_gemm_what_cannot_be_multiplied_is_refused(a, b, way, kind, message):
    with pytest.raises(kind, match=f"^hopper_gemm: .*{message}"):
        hopper_gemm.product(a, b, way)


def test_hopper_gemm_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match=r"c, 129 x 8, has over 2\*\*31 tiles; split it"):
        hopper_gemm.product(ones(129, 8), ones(8, 8))


def test_without_depth_or_sides_nothing_is_launched():
    assert not launch_product_of_hopper_gemm(ones(16, 0), ones(0, 16), "persistent")
    assert not hopper_gemm.product(ones(16, 0), ones(0, 16)).any()
    assert hopper_gemm.product(ones(0, 16), ones(16, 8)).shape == (0, 8)


def launch_product_of_hopper_gemm(
    a: torch.Tensor, b: torch.Tensor, way: str
) -> list[papergpu.Launched]:
    found: list[papergpu.Launched] = []
    with papergpu.on_launch(found.append):
        hopper_gemm.product(a, b, way)
    return found


@pytest.mark.parametrize(
    ("a", "b", "kernel"),
    [
        (ones(8, 16), ones(16, 8), "<__half, 1, 0, 4, 1>"),
        (ones(8, 16), ones(8, 16).t(), "<__half, 1, 1, 4, 1>"),
        (ones(16, 8).t(), ones(16, 8), "<__half, 0, 0, 4, 1>"),
        (ones(16, 8).t().bfloat16(), ones(8, 16).t().bfloat16(), "<__nv_bfloat16, 0, 1, 4, 1>"),
        (ones(1, 3), ones(1, 3).t(), "<__half, 1, 1, 4, 1>"),  # one row has none to lie apart from
    ],
)
def test_an_operand_is_read_as_it_lies(a, b, kernel):
    [one] = launch_product_of_hopper_gemm(a, b, "persistent")
    assert one.name == f"gemm_specialised{kernel}"


@pytest.mark.parametrize(
    ("way", "name", "blocks"),
    [
        ("one stage", "gemm_together<__half, 1, 0, 1>", 6),
        ("four stages", "gemm_together<__half, 1, 0, 4>", 6),
        ("specialised", "gemm_specialised<__half, 1, 0, 4, 1>", 6),
        ("persistent", "gemm_specialised<__half, 1, 0, 4, 1>", 2),
        ("clusters", "gemm_specialised<__half, 1, 0, 4, 2>", 2),
    ],
)
def test_a_block_has_a_tile_or_as_many_as_there_are(way, name, blocks):
    a, b = ones(136, 8), ones(8, 520)
    [one] = launch_product_of_hopper_gemm(a, b, way)
    assert (one.name, one.grid) == (name, (blocks, 1, 1))
    assert torch.equal(hopper_gemm.product(a, b, way), torch.full((136, 520), 8).half())


def test_a_cluster_of_three_tiles_below_one_another_has_one_left_over():
    """The fourth block's rows are outside: it helps to load, and writes nothing."""
    a, b = ones(264, 72), ones(72, 264)
    [one] = launch_product_of_hopper_gemm(a, b, "clusters")
    assert one.grid == (2, 1, 1)
    assert torch.equal(hopper_gemm.product(a, b), torch.full((264, 264), 72).half())


def test_a_block_has_no_more_shared_memory_than_it_needs(monkeypatch):
    text = hopper_gemm.KERNELS.path.read_text()
    tile = re.search(r"ROWS = (\d+), COLUMNS = (\d+), DEPTH = (\d+)", text)
    assert [int(one) for one in tile.groups()] == [
        hopper_gemm.ROWS,
        hopper_gemm.COLUMNS,
        hopper_gemm.DEPTH,
    ]
    enough = hopper_gemm._shared
    for way in hopper_gemm.WAYS:
        monkeypatch.setattr(hopper_gemm, "_shared", lambda stages: enough(stages) - 8)
        if way not in ("one stage", "four stages"):
            with pytest.raises(papergpu.Finding, match="shared memory"):
                hopper_gemm.product(ones(8, 256), ones(256, 8), way)
        monkeypatch.setattr(hopper_gemm, "_shared", enough)
        assert (hopper_gemm.product(ones(8, 256), ones(256, 8), way) == 256).all()


def test_hopper_gemm_demo_finds_every_way_right():
    lines = read_demo(hopper_gemm).splitlines()
    assert [line.split("right: ")[1] for line in lines] == ["NN NT TN TT"] * 10


# autotune: what it refuses, and that its record is what would be made again.

AUTOTUNE_RECORD = ROOT / "snippets" / "autotune" / "results" / "cpu.json"


def test_autotune_every_refusal_names_the_mend() -> None:
    a = torch.randn(4, 4)
    for sizes, says in (
        ({"bx": 3}, "no size 'bx'; there are bm, bn"),
        ({"bm": 48}, "bm = 48 is none of (32, 64, 128); choose one"),
        ({"bm": 32, "bn": 32, "tm": 16}, "makes a block of 8 threads, not 64 to 512; choose"),
        ({"tm": 16, "tn": 16}, "makes 256 sums a thread"),
        ({"bk": 32}, "over 49152 bytes of shared memory"),
        ({"tm": 4, "tn": 4}, "a block of 1024 threads"),
        ({"bm": 64, "bn": 64, "tm": 4, "tn": 4}, "slabs that 256 threads do not share evenly"),
        ({"bm": 32, "bn": 32, "tm": 4, "tn": 4}, "one quad a thread, which cannot be spread"),
    ):
        with pytest.raises(ValueError, match="^autotune: ") as caught:
            autotune.multiply(a, a, **sizes)
        assert says in str(caught.value)
    with pytest.raises(TypeError, match="^autotune: a is torch.float16"):
        autotune.multiply(a.half(), a)
    with pytest.raises(ValueError, match="cannot be multiplied"):
        autotune.multiply(a, torch.randn(3, 4))
    with pytest.raises(ValueError, match="no matrix of sides up to"):
        autotune.multiply(a[0], a)


def test_autotune_what_is_not_finite_stays_where_it_is() -> None:
    a, b = torch.randn(40, 9), torch.randn(9, 36)
    a[7, 3], a[33, 8] = float("inf"), float("nan")
    for sizes in autotune_cases.CORNERS.values():
        found, due = autotune.multiply(a, b, **sizes), a.double() @ b.double()
        assert torch.equal(found.isnan(), due.isnan())
        assert torch.equal(found.isinf(), due.isinf())


def test_the_record_has_every_configuration_and_none_beats_the_multiply_adds() -> None:
    found = store.load_record(Project(ROOT), AUTOTUNE_RECORD)["space"]
    declared = Space(**autotune_cases.SPACE).configurations()
    names = [tuple(map(str, one.values())) for one in declared]
    for lines in found["rows"].values():
        rows = [space.parse_row(line) for line in lines]
        assert [row.values for row in rows] == names
        # No SM can do its share of multiply-adds in less, at 128 of them a cycle.
        least = autotune_cases.SIDE**3 / (128 * autotune_cases.SMS)
        assert all(row.figures[4] >= least for row in rows)


@pytest.mark.exhaustive("configurations that a survey has compiled and counted")
def test_some_configurations_are_made_again_as_they_are_on_record() -> None:
    """On the main architecture, three of them: all take minutes."""
    record = store.load_record(Project(ROOT), AUTOTUNE_RECORD)
    known = dict(line.split(": ") for line in record["space"]["rows"]["sm_90"])
    one = next(s for s in snippets_of_the_shelf() if s.id == "autotune")
    chosen = random.Random(0).sample(sorted(known), 3)
    details = assemble.job_details(one, ledger.describe_host(), "sm_90") | {
        "configurations": chosen
    }
    with Pool(1) as pool:
        [outcome] = pool.run([Job(Task.SPACE, one.id, 300, details)])
    assert outcome.answer is not None and outcome.answer["failures"] == [], outcome.cause
    lines = outcome.answer["space"]["rows"]["sm_90"]
    assert {line.split(": ")[0] for line in lines} == set(chosen)
    for line in lines:
        values, figures = line.split(": ")
        assert figures == known[values], values
