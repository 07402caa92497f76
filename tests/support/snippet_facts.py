"""The facts that a snippet claims, usual mistakes made in it, and what is near its truth."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from conftest import snippets_of_the_shelf

from warpshelf.contract.values import fact_holds
from warpshelf.records import store

if TYPE_CHECKING:
    import torch

Rows = list[dict[str, Any]]


def broken_facts(rows: Rows) -> list[str]:
    """Names of those that do not hold."""
    return [row["name"] for row in rows if not fact_holds(row)]


def read_facts(cases: ModuleType) -> Rows:
    """What `facts()` gave when the present code was recorded; of changed code, what it gives."""
    [one] = [one for one in snippets_of_the_shelf() if one.id == cases.__name__.split(".")[-2]]
    record = store.current_record(one, "cpu")
    return record["facts"] if record is not None else cases.facts()


def is_close(x: torch.Tensor, truth: torch.Tensor, limit: float = 5e-6) -> bool:
    """Whether the norm of the error is at most `limit` of the truth's."""
    x, truth = x.detach().double(), truth.detach()
    return float((x - truth).norm()) <= limit * float(truth.norm())


def load_mistaken_module(module: ModuleType, find: str, replace: str) -> ModuleType:
    """The module anew, with `find`, which stands in its text once, replaced."""
    text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
    assert text.count(find) == 1, find
    mistaken = ModuleType("mistaken")
    sys.modules["mistaken"] = mistaken  # where dataclasses look for their annotations
    exec(compile(text.replace(find, replace), "mistaken", "exec"), mistaken.__dict__)
    return mistaken


def run_with_mistake(
    rank: int,
    size: int,
    function: Callable[..., Any],
    module: str,
    table: str,
    name: str,
    *args: Any,
) -> Any:
    """What a rank returns with the mistake `name` of a table of a test module made."""
    owner, attribute, mistake, _ = getattr(import_module(module), table)[name]
    setattr(owner, attribute, mistake)
    return function(rank, size, *args)


def plant_in_ranks(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, table: str = "MUTANTS"
) -> None:
    """Have `ranks.run` make the mistake in each of its ranks, until the test ends."""
    from snippets import ranks

    true_run = ranks.run

    def start_mistaken_ranks(
        function: Callable[..., Any], size: int, *args: Any, **more: Any
    ) -> list[Any]:
        return true_run(run_with_mistake, size, function, module, table, name, *args, **more)

    monkeypatch.setattr(ranks, "run", start_mistaken_ranks)
