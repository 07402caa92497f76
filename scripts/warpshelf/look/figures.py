"""The figures of a view that one would compare: of its machine code, by kind, and of what it did.

Kinds of machine instructions say what of the machine each of them asks for. They are those of
`KINDS`; loads and stores carry the bytes of a lane: `load global 16`. Names are those of NVIDIA's
"CUDA Binary Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.look.view import View

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32, "ENL2": 32}
SPACES = {
    "LDG": "load global", "STG": "store global", "LDS": "load shared", "STS": "store shared",
    "LDL": "load local", "STL": "store local", "LD": "load generic", "ST": "store generic",
    "LDSM": "load shared", "STSM": "store shared", "LDGSTS": "copy async",
}  # fmt: skip
NAMES: dict[str, str] = {
    name: kind
    for kind, names in {
        "multiply-add": "FFMA FFMA2 FADD FADD2 FMUL FMUL2 FFMA32I FADD32I FMUL32I HFMA2 HADD2 "
        "HMUL2 HADD2_32I HFMA2_32I HMUL2_32I DFMA DADD DMUL",
        "matrix": "HMMA IMMA DMMA QMMA BMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA "
        "UTCOMMA MOVM",
        "tensor memory": "LDT LDTM STT STTM UTCCP UTCSHIFT UTCATOMSWS UTCBAR",
        "copy async": "UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH "
        "LDGDEPBAR DEPBAR ARRIVES LDGSTSBAR",
        "atomic": "ATOM ATOMG ATOMS RED REDG REDAS UATOMS",
        "shuffle": "SHFL REDUX CREDUX UREDUX VOTE VOTEU MATCH ELECT",
        "special": "MUFU",
        "conversion": "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND UF2F UF2FP UF2I UI2F UI2FP UFRND",
        "compare": "FSETP FSET FMNMX FMNMX3 FSEL FCHK HSETP2 HSET2 HMNMX2 VHMNMX DSETP DMNMX "
        "UFSETP UFSEL UFMNMX",
        "constant": "LDC ULDC LDCU S2R S2UR CS2R CS2UR LEPC",
        "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT CGAERRBAR SYNCS MEMBAR FENCE ERRBAR WARPGROUP "
        "WARPSYNC ACQBULK B2R R2B",
        "control": "BRA BRX BRXU JMP JMX JMXU UBRA CALL RET EXIT BSSY BSYNC BREAK KILL NANOSLEEP "
        "YIELD BMOV BPT NOP RPCMOV PREEXIT PMTRIG COLLECTIVE ENDCOLLECTIVE CCTL CCTLL "
        "CCTLT USETMAXREG RTT",
    }.items()
    for name in names.split()
}  # fmt: skip
INTEGER = re.compile(
    r"U?(?:I(?:ABS|ADD|MAD|MUL|NEG|DP|SCADD|SETP|MNMX)|LEA|LOP|SHF|SHL|SHR|SEL|PRMT|BMSK|BREV|"
    r"FLO|POPC|SGXT|MOV|VABSDIFF|VIADD|VIMNMX|PSETP|PLOP|P2R|R2P|R2UR|P2UR|UR2UP)\w*"
)
FLOATS = re.compile(r"U(?:FADD|FMUL|FFMA)\w*")
KINDS = (
    "multiply-add", "matrix", "tensor memory", "load global", "store global", "load shared",
    "store shared", "load local", "store local", "load generic", "store generic", "copy async",
    "atomic", "shuffle", "special", "conversion", "compare", "integer", "constant", "barrier",
    "control", "other",
)  # fmt: skip


def instruction_kind(opcode: str) -> str:
    """The kind of an instruction by its name with all modifiers, `LDG.E.128` for instance.

    What is of no kind that is known is `other`.
    """
    base, *modifiers = opcode.split(".")
    if base in SPACES:
        return f"{SPACES[base]} {access_width(base, modifiers)}"
    if found := NAMES.get(base):
        return found
    if FLOATS.fullmatch(base):
        return "multiply-add"
    return "integer" if INTEGER.fullmatch(base) else "other"


def access_width(base: str, modifiers: list[str]) -> int:
    """Bytes of a lane that a load or store moves; of LDSM and STSM, of a whole row of a matrix."""
    if base in ("LDSM", "STSM"):
        return 4 * int(next((one for one in modifiers if one in ("2", "4")), "1"))
    return next((WIDTHS[one] for one in modifiers if one in WIDTHS), 4)


def base_kind(name: str) -> str:
    """A kind without the bytes of a lane."""
    return name.rstrip("0123456789 ")


PRODUCTS = ("multiply-add", "matrix")
WIDE = 16  # bytes of a lane: the widest access that all architectures have


def count_kinds(texts: Iterable[str]) -> Counter[str]:
    """How many machine instructions of each kind there are, by their texts."""
    found: Counter[str] = Counter()
    for text in texts:
        words = text.split(None, 2)
        found[instruction_kind(words[1] if words[0].startswith("@") else words[0])] += 1
    return found


def count_products(counted: dict[str, int]) -> int:
    """Multiply-adds and matrix instructions among instructions by kind."""
    return sum(number for name, number in counted.items() if base_kind(name) in PRODUCTS)


def main_loop(loops: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The loop with the most multiply-adds and matrix instructions, else that with the most loads.

    Of equals the innermost, and of these the first.
    """
    if not loops:
        return None
    return max(
        loops,
        key=lambda one: (count_products(one["kinds"]), one["loads"], one["depth"], -one["first"]),
    )


def code_figures(view: View) -> dict[str, float]:
    """Figures of the machine code alone: they hold whatever it is launched on."""
    found: dict[str, float] = {
        "registers": view["registers"],
        "live registers": max(view["sass"]["live"], default=0),
        "spilled bytes": view["spilled_bytes"],
        "shared bytes": view["shared_bytes"],
        "machine instructions": len(view["sass"]["text"]),
    }
    for name, number in sorted(count_kinds(view["sass"]["text"]).items()):
        found[f"machine instructions: {name}"] = number
    return found | loop_figures(main_loop(view["loops"]))


def loop_figures(loop: dict[str, Any] | None) -> dict[str, float]:
    """Figures of the main loop; none where there is no loop."""
    if loop is None:
        return {}
    own = sum(loop["kinds"].values())
    found: dict[str, float] = {"main loop: instructions": own}
    if made := count_products(loop["kinds"]):
        found["main loop: instructions a multiply-add"] = own / made
    return found | {
        "main loop: loads in flight": loop["loads"],
        "main loop: bytes in flight, of a warp": loop["bytes"],
    }


def executed(view: View) -> dict[str, float]:
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
