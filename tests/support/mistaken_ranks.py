"""A usual mistake, made in each rank of a parallel program: in its own process alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from snippets import ranks


def run_with_mistake(
    rank: int, size: int, function: Callable[..., Any], module: str, name: str, *args: Any
) -> Any:
    """What a rank returns with the mistake `name` of a test module's MUTANTS made."""
    owner, attribute, mistake, _ = import_module(module).MUTANTS[name]
    setattr(owner, attribute, mistake)
    return function(rank, size, *args)


def plant_in_ranks(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    """Have `ranks.run` make the mistake in each of its ranks, until the test ends."""
    true_run = ranks.run

    def start_mistaken_ranks(
        function: Callable[..., Any], size: int, *args: Any, **more: Any
    ) -> list[Any]:
        return true_run(run_with_mistake, size, function, module, name, *args, **more)

    monkeypatch.setattr(ranks, "run", start_mistaken_ranks)
