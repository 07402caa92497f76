"""`@pytest.mark.papergpu("sm_90")`: a test whose kernels of Triton are executed on the CPU.

The test, and its fixtures, may ask for tensors on CUDA. What a kernel does wrong is an exception.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Say what the mark is."""
    said = "papergpu(target='sm_90', **settings): execute kernels of Triton on the CPU"
    config.addinivalue_line("markers", said)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around a test and its fixtures, if it is marked."""
    mark = item.get_closest_marker("papergpu")
    if mark is None:
        return (yield)
    from papergpu import active, settings  # they need torch and Triton

    [target] = mark.args or ["sm_90"]
    with settings(**mark.kwargs), active(target, cuda=True):
        return (yield)
