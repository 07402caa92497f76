"""Machine instructions by kind: what of the machine each of them asks for.

The kinds are those of `KINDS`; loads and stores carry the bytes of a lane: `load global 16`.
Names are those of NVIDIA's "CUDA Binary Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import re

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


def kind(opcode: str) -> str:
    """The kind of an instruction by its name with all modifiers, `LDG.E.128` for instance.

    What is of no kind that is known is `other`.
    """
    base, *modifiers = opcode.split(".")
    if base in SPACES:
        return f"{SPACES[base]} {width(base, modifiers)}"
    if found := NAMES.get(base):
        return found
    if FLOATS.fullmatch(base):
        return "multiply-add"
    return "integer" if INTEGER.fullmatch(base) else "other"


def width(base: str, modifiers: list[str]) -> int:
    """Bytes of a lane that a load or store moves; of LDSM and STSM, of a whole row of a matrix."""
    if base in ("LDSM", "STSM"):
        return 4 * int(next((one for one in modifiers if one in ("2", "4")), "1"))
    return next((WIDTHS[one] for one in modifiers if one in WIDTHS), 4)


def group(name: str) -> str:
    """A kind without the bytes of a lane."""
    return name.rstrip("0123456789 ")
