"""Machine instructions by kind."""

import pytest

from warpshelf.look.figures import KINDS, base_kind, instruction_kind


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA", "multiply-add"),
        ("HMMA.16816.F32.BF16", "matrix"),
        ("HGMMA.64x128x16.F32.BF16", "matrix"),
        ("LDG.E", "load global 4"),
        ("LDG.E.128.CONSTANT", "load global 16"),
        ("LDG.E.U16", "load global 2"),
        ("STG.E.64", "store global 8"),
        ("LDS.U.128", "load shared 16"),
        ("LDSM.16.M88.4", "load shared 16"),
        ("LDSM.16.MT88", "load shared 4"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "copy async 16"),
        ("SHFL.BFLY", "shuffle"),
        ("MUFU.EX2", "special"),
        ("IMAD.WIDE.U32", "integer"),
        ("UIADD3", "integer"),
        ("LOP3.LUT", "integer"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("@", "other"),
        ("NONSENSE", "other"),
    ],
)
def test_the_kind_of(opcode: str, expected: str) -> None:
    assert instruction_kind(opcode) == expected
    assert base_kind(instruction_kind(opcode)) in KINDS
