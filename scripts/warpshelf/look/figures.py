"""The figures of a view that one would compare: of its machine code, and of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.look.kinds import group, kind
from warpshelf.look.view import View

PRODUCTS = ("multiply-add", "matrix")
WIDE = 16  # bytes of a lane: the widest access that all architectures have


def kinds(texts: Iterable[str]) -> Counter[str]:
    """How many machine instructions of each kind there are, by their texts."""
    found: Counter[str] = Counter()
    for text in texts:
        words = text.split(None, 2)
        found[kind(words[1] if words[0].startswith("@") else words[0])] += 1
    return found


def products(counted: dict[str, int]) -> int:
    """Multiply-adds and matrix instructions among instructions by kind."""
    return sum(number for name, number in counted.items() if group(name) in PRODUCTS)


def main_loop(loops: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The loop with the most multiply-adds and matrix instructions, else that with the most loads.

    Of equals the innermost, and of these the first.
    """
    if not loops:
        return None
    return max(
        loops, key=lambda one: (products(one["kinds"]), one["loads"], one["depth"], -one["first"])
    )


def code(view: View) -> dict[str, float]:
    """Figures of the machine code alone: they hold whatever it is launched on."""
    found: dict[str, float] = {
        "registers": view["registers"],
        "live registers": max(view["sass"]["live"], default=0),
        "spilled bytes": view["spilled_bytes"],
        "shared bytes": view["shared_bytes"],
        "machine instructions": len(view["sass"]["text"]),
    }
    for name, number in sorted(kinds(view["sass"]["text"]).items()):
        found[f"machine instructions: {name}"] = number
    return found | loop_figures(main_loop(view["loops"]))


def loop_figures(loop: dict[str, Any] | None) -> dict[str, float]:
    """Figures of the main loop; none where there is no loop."""
    if loop is None:
        return {}
    own = sum(loop["kinds"].values())
    found: dict[str, float] = {"main loop: instructions": own}
    if made := products(loop["kinds"]):
        found["main loop: instructions a multiply-add"] = own / made
    return found | {
        "main loop: loads in flight": loop["loads"],
        "main loop: bytes in flight, of a warp": loop["bytes"],
    }


def did(view: View) -> dict[str, float]:
    """Figures of what was executed."""
    total = view["total"]
    executed = sum(total["classes"].values())
    found: dict[str, float] = {
        "warp instructions": executed,
        "lanes of 32": total.get("lanes", 0) / executed if executed else 0,
    }
    for name in ("sectors", "wavefronts"):
        if total.get(f"ideal_{name}"):
            found[name] = total[name]
            found[f"{name} over ideal"] = over_ideal(total, name)
    found["warps resident"] = view["occupancy"]["warps"]
    found["bound, SM cycles"] = view["bound"]["cycles"]
    return found


def over_ideal(tally: dict[str, Any], name: str) -> float:
    """Sectors or wavefronts over the fewest that there could be; 1 where nothing is moved."""
    ideal = tally.get(f"ideal_{name}", 0)
    return tally.get(name, 0) / ideal if ideal else 1.0


def wide_accesses(view: View) -> float:
    """The share of the bytes of global accesses that lanes move by 16 or more at a time; 1 of none.

    Bytes are those of all lanes of an access, whether they took part or not. Copies in bulk are no
    accesses of lanes.
    """
    wide = every = 0
    for one in view["accesses"]:
        if one["space"] == "global" and one["does"] != "atomic":
            moved = one["size"] * view["ptx"]["run"][one["ptx"]]
            every += moved
            wide += moved if one["size"] >= WIDE else 0
    return wide / every if every else 1.0
