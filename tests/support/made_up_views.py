"""Made-up views of a transpose of 64 x 64 floats: nothing in them was compiled or executed.

The counts are those that such kernels have: 4 blocks of 32 x 8 threads are 32 warps, each of which
goes round its loop 4 times.
"""

from __future__ import annotations

from typing import Any

from warpshelf.look.view import LANES, View

WARPS, ROUNDS = 32, 4
ARCHS = ("sm_80", "sm_90")
CASE = {"m": 64, "n": 64, "dtype": "float32"}
SOURCE = """\
__global__ void naive(float* out, const float* in, int n) {
  int x = blockIdx.x * 32 + threadIdx.x;
  int y = blockIdx.y * 32 + threadIdx.y;
  for (int row = 0; row < 32; row += 8) {
    out[x * n + y + row] = in[(y + row) * n + x];
  }
}

__global__ void tiled(float* out, const float* in, int n) {
  __shared__ float tile[32][32];
  int x = blockIdx.x * 32 + threadIdx.x;
  int y = blockIdx.y * 32 + threadIdx.y;
  for (int row = 0; row < 32; row += 8)
    tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * n + x];
  __syncthreads();
  for (int row = 0; row < 32; row += 8)
    out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}
""".splitlines()
FIRST = 10  # the line of the file that SOURCE starts at

# For each instruction of PTX: its line in SOURCE, how often a warp executes it, what it is, its
# text, and the machine instructions made of it with their control codes.
Row = tuple[int, int, str, str, tuple[tuple[str, int], ...]]
WAITS = 1 << 11  # for scoreboard 0
NAIVE: list[Row] = [
    (0, 0, "", ".visible .entry naive(", ()),
    (0, 0, "", "{", ()),
    (1, 1, "load parameter", "ld.param.u64 %rd1, [naive_param_0];",
     (("ULDC.64 UR4, c[0x0][0x118]", 0x7F1),)),
    (2, 1, "move", "mov.u32 %r1, %tid.x;", (("S2R R0, SR_TID.X", 0x712),)),
    (2, 1, "multiply-add", "mad.lo.s32 %r2, %ctaid.x, 32, %r1;",
     (("IMAD R0, R3, 0x20, R0", 0x7F5 | WAITS),)),
    (3, 1, "multiply-add", "mad.lo.s32 %r3, %ctaid.y, 32, %tid.y;",
     (("IMAD R5, R2, 0x20, R5", 0x7F5),)),
    (4, 0, "", "$L__BB0_1:", ()),
    (5, 4, "load global", "ld.global.f32 %f1, [%rd5];",
     (("LDG.E.CONSTANT R7, [R2.64]", 0x702),)),
    (5, 4, "store global", "st.global.f32 [%rd7], %f1;",
     (("IMAD.WIDE R8, R0, R9, c[0x0][0x160]", 0x7F4), ("STG.E [R8.64], R7", 0x0F1 | WAITS))),
    (4, 4, "integer", "add.s32 %r9, %r9, 8;", (("IADD3 R10, R10, 0x8, RZ", 0x7F5),)),
    (4, 4, "compare", "setp.lt.u32 %p1, %r9, 32;",
     (("ISETP.GE.AND P0, PT, R10, 0x20, PT", 0x7FD),)),
    (4, 4, "control", "@%p1 bra $L__BB0_1;", (("@!P0 BRA `(.L_x_0)", 0x7E0),)),
    (7, 1, "control", "ret;", (("EXIT", 0x7F5),)),
    (0, 0, "", "}", ()),
]  # fmt: skip
TILED: list[Row] = [
    (0, 0, "", ".visible .entry tiled(", ()),
    (0, 0, "", "{", ()),
    (11, 1, "multiply-add", "mad.lo.s32 %r2, %ctaid.x, 32, %tid.x;",
     (("S2R R0, SR_TID.X", 0x712), ("IMAD R0, R3, 0x20, R0", 0x7F5 | WAITS))),
    (14, 4, "load global", "ld.global.f32 %f1, [%rd5];", (("LDG.E R7, [R2.64]", 0x702),)),
    (14, 4, "store shared", "st.shared.f32 [%r11], %f1;", (("STS [R4], R7", 0x0F1 | WAITS),)),
    (15, 1, "barrier", "bar.sync 0;", (("BAR.SYNC.DEFER_BLOCKING 0x0", 0x7F5),)),
    (16, 0, "", "$L__BB1_1:", ()),
    (17, 4, "load shared", "ld.shared.f32 %f2, [%r12];", (("LDS R9, [R5]", 0x702),)),
    (17, 4, "store global", "st.global.f32 [%rd7], %f2;", (("STG.E [R8.64], R9", 0x0F1 | WAITS),)),
    (16, 4, "integer", "add.s32 %r9, %r9, 8;", (("IADD3 R10, R10, 0x8, RZ", 0x7F5),)),
    (16, 4, "control", "@%p1 bra $L__BB1_1;", (("@!P0 BRA `(.L_x_1)", 0x7E0),)),
    (18, 1, "control", "ret;", (("EXIT", 0x7F5),)),
    (0, 0, "", "}", ()),
]  # fmt: skip
SIDE_BY_SIDE = [4 * lane for lane in range(LANES)]
APART = {  # the steps in bytes between lanes that are not side by side
    ("naive", "store global"): 256,
    ("tiled", "load shared"): 128,
}
CYCLES = {"naive": 4096, "tiled": 4224}


def make_view(variant: str = "naive", arch: str = "sm_90", **more: object) -> View:
    """The view of `naive` or `tiled`."""
    rows = {"naive": NAIVE, "tiled": TILED}[variant]
    numbers = sorted({row[0] for row in rows if row[1]})
    lines = {number: _make_line(number) for number in numbers}
    accesses = []
    for at, (number, times, what, *_) in enumerate(rows):
        if not times:
            continue
        line, executed = lines[number], WARPS * times
        line["classes"][what] = line["classes"].get(what, 0) + executed
        line["lanes"] += LANES * executed
        line["live"] = max(line["live"], 6 + at)
        if what.split()[-1] in ("global", "shared"):
            accesses.append(_make_access(variant, at, what))
            _count_access(line, accesses[-1], executed)
    found: dict[str, Any] = {
        "schema": 1, "snippet": "transpose", "digest": "sha256:" + "5a" * 32,
        "variant": variant, "kernel": f"transpose_{variant}", "language": "CUDA C++", "arch": arch,
        "compiler": "NVRTC 12.8", "case": CASE, "launches": 1, "grid": [2, 2, 1],
        "block": [32, 8, 1], "cluster": [1, 1, 1], "threads": 256, "registers": 24,
        "spilled_bytes": 0, "shared_bytes": 4096 if variant == "tiled" else 0,
        "total": _add_lines(list(lines.values())),
        "occupancy": {
            "blocks": 8, "warps": 64, "most": 64, "limiters": ["threads"],
            "changes": [{
                "change": "40 registers", "blocks": 6, "warps": 48, "most": 64,
                "limiters": ["registers"],
            }],
        },
        "bound": {
            "limiter": "load and store", "cycles": CYCLES[variant],
            "pipes": [
                {"pipe": "load and store", "cycles": CYCLES[variant], "of": "32 lanes a cycle"},
                {"pipe": "issue", "cycles": 212.5, "of": "4 instructions a cycle"},
            ],
        },
        "lines": list(lines.values()),
        "source": [_cut_source(variant)],
        "ptx": {
            "text": [row[3] for row in rows],
            "line": [numbers.index(row[0]) if row[0] in lines else -1 for row in rows],
            "run": [WARPS * row[1] for row in rows],
        },
        **_make_machine_code(rows),
        "accesses": accesses,
    }  # fmt: skip
    return found | more


def repeat_view(times: int) -> View:
    """The naive one with its machine code and its PTX repeated, to see how a long one opens."""
    found = make_view()
    for side in ("ptx", "sass"):
        lists = found[side]
        found[side] = {k: v * times if isinstance(v, list) else v for k, v in lists.items()}
    text = found["ptx"]["text"]
    at = range(len(text))
    found["accesses"] = [
        {
            **one,
            "ptx": one["ptx"] + len(NAIVE) * time,
            "addresses": [4 * time + address for address in one["addresses"]],
        }
        for time in range(times)
        for one in found["accesses"]
    ]
    found["ptx"]["text"] = [text[i].replace("_1", f"_{i // len(NAIVE)}") for i in at]
    return found


def _make_line(number: int) -> dict[str, Any]:
    return {"at": f"transpose.cu:{FIRST - 1 + number}", "classes": {}, "lanes": 0, "live": 0}


def _cut_source(variant: str) -> dict[str, Any]:
    start, end = {"naive": (0, 7), "tiled": (8, 18)}[variant]
    return {"file": "transpose.cu", "from": FIRST + start, "text": SOURCE[start:end]}


def _make_access(variant: str, at: int, what: str) -> dict[str, Any]:
    does, space = what.split()
    step = APART.get((variant, what), 4)
    addresses = [step * lane for lane in range(LANES)]
    ideal = 1 if space == "shared" else 4
    return {
        "ptx": at, "space": space, "does": does, "size": 4, "block": [1, 0, 0], "warp": 3,
        "addresses": addresses, "passes": ideal if step == 4 else 32, "ideal": ideal,
    }  # fmt: skip


def _count_access(line: dict[str, Any], access: dict[str, Any], executed: int) -> None:
    shared = access["space"] == "shared"
    requests = "shared_requests" if shared else "requests"
    passes = "wavefronts" if shared else "sectors"
    for name, number in ((requests, 1), (passes, access["passes"]),
                         (f"ideal_{passes}", access["ideal"])):  # fmt: skip
        line[name] = line.get(name, 0) + executed * number


def _add_lines(lines: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"classes": {}}
    for line in lines:
        for name, number in line["classes"].items():
            total["classes"][name] = total["classes"].get(name, 0) + number
        for name, number in line.items():
            if isinstance(number, int) and name != "live":
                total[name] = total.get(name, 0) + number
    return total


def _make_machine_code(rows: list[Row]) -> dict[str, Any]:
    """The machine code, and its one loop: from what follows the label to the branch."""
    made = [(at, text, code) for at, row in enumerate(rows) for text, code in row[4]]
    label = next(at for at, row in enumerate(rows) if row[3].startswith("$"))
    first = next(at for at, (ptx, *_) in enumerate(made) if ptx > label)
    last = next(at for at, (_, text, _) in enumerate(made) if "BRA" in text)
    kinds = {"load global 4": 1, "store global 4": 1, "integer": 3, "control": 1}
    loop = {"first": first, "last": last, "depth": 1, "kinds": kinds}
    return {
        "sass": {
            "text": [text for _, text, _ in made],
            "ptx": [ptx for ptx, *_ in made],
            "live": [2 + at for at in range(len(made))],
            "control": [code for *_, code in made],
            "labels": {".L_x_0" if "naive" in rows[0][3] else ".L_x_1": first},
        },
        "loops": [loop | {"loads": 1, "bytes": 128, "operations": 0}],
    }
