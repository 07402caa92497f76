"""Tests of papergpu run again with a handler spoilt, which they must see.

A case is a test of this folder with the arguments of one of its parameters. It is run once as it
is, which says what its kernels execute; with a handler of theirs spoilt it must fail.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import pytest
from papergpu.errors import Finding
from papergpu.launch import Kernel, Result, Settings

LIMIT = 200_000  # instructions of a warp: what hangs is seen
Change = Callable[[Kernel], object]


@dataclass
class Case:
    """A test with arguments; after `try_unspoilt`, the handlers of its kernels and its seconds."""

    name: str
    call: Callable[[], None]
    handlers: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def try_unspoilt(self) -> bool:
        """Run it as it is; False if it skips itself, or takes more instructions than `LIMIT`."""
        start = time.perf_counter()
        try:
            with change_launches(lambda kernel: self.handlers.update(kernel.program.names)):
                self.call()
        except pytest.skip.Exception:
            return False
        except Finding as finding:
            if "the limit is too low" not in str(finding):
                raise
            return False
        self.seconds = time.perf_counter() - start
        return True

    def detects_change(self, change: Change) -> bool:
        """Whether it fails once `change` has been made to every kernel that it launches."""
        with change_launches(change):
            try:
                self.call()
            except (Exception, pytest.fail.Exception):
                return True
        return False

    def detects_spoilt(self, name: str, way: str) -> bool:
        """Whether it sees a handler spoilt in a way, and not merely that another is called."""
        return self.detects_change(spoil_handler(name, way)) and not self.detects_change(
            spoil_handler(name, "same")
        )


def spoil_handler(name: str, way: str) -> Change:
    """The change that spoils a handler in a way of core/launch.cpp."""
    return lambda kernel: name in kernel.program.names and kernel.mutate(name, way=way)


@contextmanager
def change_launches(change: Change) -> Iterator[None]:
    """Make a change to every kernel for as long as it is launched."""
    plain = Kernel.launch

    def launch_changed(self: Kernel, *args: Any, **more: Any) -> Result:
        code, program, spoilt = self.code.copy(), self.program, self.spoilt
        settings = more.get("settings") or Settings()
        more["settings"] = replace(settings, limit=min(settings.limit, LIMIT))
        change(self)
        try:
            return plain(self, *args, **more)
        finally:
            self.code[:], self.program, self.spoilt = code, program, spoilt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "launch", launch_changed)
        yield


def expand_arguments(test: Callable[..., None]) -> Iterator[Mapping[str, Any]]:
    """The arguments of each call of a test, as its parameters say."""
    choices: list[list[Mapping[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args
        single = isinstance(names, str) and "," not in names
        split = [one.strip() for one in names.split(",")] if isinstance(names, str) else names
        # One that waits for `make test-all` has a mark beside its values.
        bare = [one.values if isinstance(one, pytest.ParameterSet) else [one] if single else one
                for one in values]  # fmt: skip
        choices.append([dict(zip(split, one, strict=True)) for one in bare])
    for chosen in product(*choices):
        yield {name: value for one in chosen for name, value in one.items()}


@cache
def collect_cases(where: str) -> tuple[Case, ...]:
    """The tests of a module, or those of them whose names begin as `module::start` says.

    Tests that ask for fixtures are left out. The quickest are first.
    """
    module, _, start = where.partition("::")
    found = []
    for name, test in vars(import_module(f"tests.papergpu.{module}")).items():
        if not name.startswith(start or "test_") or not inspect.isfunction(test):
            continue
        for given in expand_arguments(test):
            if set(inspect.signature(test).parameters) == set(given):
                shown = ", ".join(map(str, given.values()))
                case = Case(f"{module}::{name}[{shown[:60]}]", lambda t=test, g=given: t(**g))
                if case.try_unspoilt():
                    found.append(case)
    assert found, f"{where} has no test that can be run on its own"
    return tuple(sorted(found, key=lambda one: one.seconds))
