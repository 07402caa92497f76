"""What snippets/stream does alone: reading, writing, and reading again."""

from __future__ import annotations

import pytest
import torch

from snippets.stream import stream

A = torch.arange(9000, dtype=torch.float32).roll(123)
WAYS = (stream.floats, stream.float4s)


@pytest.mark.parametrize("way", WAYS)
def test_the_largest_element_is_found_wherever_it_is(way):
    for n in (1, 2, 3, 4, 5, 7, 1023, 4096, 8999):
        for offset in range(4):
            a = A[offset : offset + n]
            assert way("read", a, None, 1) == a.max()
    a = A.clone()
    a[7], a[8] = torch.nan, torch.inf
    assert way("read", a, None, 1) == torch.inf
    assert way("read", torch.full((5,), -torch.inf), None, 1) == -torch.inf


@pytest.mark.parametrize("way", WAYS)
def test_fill_writes_every_element_and_no_more(way):
    for n in (1, 3, 4, 5, 4099):
        assert way("fill", A[1 : n + 1], None, 2.5).tolist() == [2.5] * n
    assert way("fill", A[:0], None, 1.0).shape == (0,)


def test_every_round_reads_all_of_it():
    for rounds in (1, 2, 5, 16):
        assert stream.float4s("read", A, None, rounds) == 8999


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stream.float4s("read", A[:0], None, 1), "a has no elements"),
        (lambda: stream.float4s("read", A, None, 0), "a cannot be read 0 times"),
        (lambda: stream.floats("read", A, None, 2), "a cannot be read 2 times; float4 reads often"),
        (lambda: stream.bulk_copies("fill", A, None, 1), "bulk copies do no fill; float4 does"),
        (lambda: stream.floats("read", A[::2], None, 1), "a has stride 2, it must be 1"),
    ],
)
def test_what_cannot_be_read_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^stream: {message}"):
        call()
