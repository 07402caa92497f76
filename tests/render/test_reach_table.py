"""The tables of what runs on which GPU."""

from __future__ import annotations

from synthetic import exhibit, record, verified

from warpshelf.contract import architectures
from warpshelf.render import reach
from warpshelf.render.exhibit import Exhibit

DUE = [{"case": {"m": 1}, "timed": False, "variants": ["plain", "wide"], "peers": ["torch"],
        "tolerance": 0.0}]  # fmt: skip


def kernel(name: str, **needs: object) -> Exhibit:
    return exhibit(verified(record(0, due=DUE)), id=name, needs=needs)


def cells(text: str, start: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


SHOWN = [
    kernel("anywhere"),
    kernel("hopper", sm=90, why="wgmma"),
    kernel("part", variants={"wide": {"sm": ">=80", "why": "cp.async"}, "torch": {"sm": ">=89"}}),
    kernel("none", variants={"plain": {"sm": ">=80"}, "wide": {"sm": ">=90"}}),
    exhibit(id="model", kind="model"),
]


def test_kernels_are_counted_whole_in_part_and_skipped() -> None:
    text = reach.table(SHOWN, {})
    assert [int(cell) for cell in cells(text, "SM 75")[2:]] == [1, 1, 2]
    assert [int(cell) for cell in cells(text, "SM 80")[2:]] == [2, 1, 1]
    assert [int(cell) for cell in cells(text, "SM 90")[2:]] == [4, 0, 0]
    assert [int(cell) for cell in cells(text, "SM 120")[2:]] == [3, 0, 1]
    assert "T4" in cells(text, "SM 75")[1] and "RTX 50 series" in cells(text, "SM 120")[1]
    assert all(f"| SM {sm} |" in text for sm in architectures.KNOWN)


def test_what_is_skipped_stands_beside_its_reason() -> None:
    text = reach.table(SHOWN, {"hopper": "/kernels/gemm.md#snippet-hopper"})
    lines = {tuple(line.strip("| ").split(" | ")) for line in text.splitlines()[11:]}
    dot = "&#46;"
    assert lines >= {
        ("SM 90&#58; wgmma", "[`hopper`](/kernels/gemm.md#snippet-hopper)",
         "75, 80, 86, 89, 100, 103, 120"),
        (f"SM 80 or above&#58; cp{dot}async", "`part`: wide", "75"),
        ("SM 89 or above", "`part`: torch (peer)", "75, 80, 86"),
        ("SM 90 or above", "`none`: wide", "75, 80, 86, 89"),
    }  # fmt: skip
