"""The steps of flash attention: what they refuse."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.flash_steps import flash_steps as flash  # noqa: E402


def draw_heads(*heads: int) -> list:
    return [torch.zeros(1, h, 128, 16, dtype=torch.float16) for h in heads]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda q, k, v: (q.float(), k, v), TypeError, "q is torch.float32"),
        (lambda q, k, v: (q, k, v.mT.contiguous().mT), ValueError, "v is not contiguous"),
        (lambda q, k, v: (q[:, :, :100].clone(), k, v), ValueError, r"q is \(1, 4, 100, 16\)"),
        (lambda q, k, v: (q[0], k[0], v[0]), ValueError, "give both as"),
        (lambda q, k, v: (q[:, :3].clone(), k, v), ValueError, "3 heads of q on 2 of k"),
        (lambda q, k, v: (q, k, v[:, :1]), ValueError, r"v is \(1, 1, 128, 16\), not"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^flash_steps: .*{said}") as raised:
        flash.grouped(*change(*draw_heads(4, 2, 2)))
    assert "\n" not in str(raised.value)


def test_the_first_steps_share_no_heads() -> None:
    with pytest.raises(ValueError, match="as many for `tiled` and `causal`"):
        flash.causal(*draw_heads(4, 2, 2))
