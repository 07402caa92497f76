"""Every handler spoilt in turn, which a test of this folder must see.

Those of one thread's instructions, and of two that are fused, are spoilt in test_threads.py. Of all
others the table says in which ways each is spoilt and whose tests see it; what is left of the
registry is explained.

A case is a test of this folder with the arguments of one of its parameters. It is run once as it
is, which says what its kernels execute; with a handler of theirs spoilt it must fail.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest
from papergpu.build import get_handler, list_handlers, list_source_handlers
from papergpu.decode import decode
from papergpu.errors import Finding
from papergpu.forms import find_form
from papergpu.launch import Kernel, Result, Settings
from papergpu.parse import parse
from papergpu.program import BARRIER, BRANCH, CLUSTER, EXIT, MEET, PLAIN, RETRY, SPECIALS, TABLE
from ptx_launch import write_kernel
from thread_forms import SOURCES

from tests.papergpu import test_threads
from tests.papergpu.test_threads import FUSED, MOVES

# Tests of papergpu, run again with a handler spoilt.

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


# Which handlers are spoilt, in which ways, and whose tests see it.

# Patterns of handlers; the ways of core/launch.cpp; the modules, or the tests by how their names
# begin, of which one must see each handler in each way. What a whole warp does at once has no lane
# that could be left out, and what comes later no result at once.
RESULT, VALUE, LANES = "nothing lane result", "nothing lane given", "nothing lane"
ROWS = (
    ("ld.* ldp.*", RESULT, "memory_forms"),
    ("st.b128 st.u*", VALUE, "memory_forms"),
    ("atom.*", "nothing lane result given", "memory_forms"),
    ("fence", "nothing", "memory_forms::test_what_is_ordered"),
    ("mov.* pack.* unpack.*", RESULT, "register_forms"),
    ("cvta.* isspacep.* getctarank.* envreg.*", RESULT, "register_forms"),
    ("mapa.*", "nothing lane result given", "register_forms"),
    ("redux.* vote.* match.any.* activemask clock*", RESULT, "warp_forms"),
    ("shfl.* match.all.* elect", "nothing lane first second", "warp_forms"),
    ("printf heap.take", RESULT, "running"),
    ("heap.give assertfail call.nowhere", LANES, "running"),
    ("call.again", "nothing", "running"),
    ("trap", "nothing", "running::test_what_no_thread"),
    ("cp.async cp.async.* st.bulk", LANES, "bulk_copies"),
    ("bulk.load bulk.store bulk.commit bulk.wait", LANES, "bulk_copies"),
    ("bulk.across", VALUE, "clusters::test_blocks_send"),
    ("st.async", VALUE, "clusters::test_blocks_send"),
    ("bulk.tensor.load bulk.tensor.store", VALUE, "tensor_copies"),
    ("bulk.prefetch bulk.tensor.prefetch", LANES, "tensor_copies"),
    ("tensormap.replace tensormap.acquire", LANES, "tensor_copies"),
    ("tensormap.copy", "nothing", "tensor_copies"),
    ("fence.proxy", "nothing", "bulk_copies"),
    ("mbarrier.init mbarrier.bytes", VALUE, "mbarriers"),
    ("mbarrier.inval", LANES, "mbarriers"),
    ("mbarrier.arrive mbarrier.*_wait", "nothing lane result given", "mbarriers"),
    ("mbarrier.pending_count", RESULT, "mbarriers"),
    ("clc.try", VALUE, "clusters::test_each_block_is_done"),
    ("clc.canceled clc.ctaid", RESULT, "clusters::test_each_block_is_done"),
    ("ldmatrix ldmatrix.bytes movmatrix", "nothing result", "matrix_moves"),
    ("stmatrix", "nothing given", "matrix_moves"),
    ("mma.*", "nothing result", "mma"),
    ("wmma.load", "nothing result", "wmma"),
    ("wmma.store", "nothing given", "wmma"),
    ("wgmma.*", "nothing", "wgmma::test_sums wgmma::test_a_ wgmma::test_what_is_missing"),
    ("tcgen05.*alloc tcgen05.relinquish tcgen05.ld tcgen05.wait.*", "nothing", "tcgen05"),
    ("tcgen05.st", "nothing given", "tcgen05"),
    ("tcgen05.mma tcgen05.cp", VALUE, "tcgen05"),
    ("tcgen05.commit", LANES, "tcgen05"),
)
# What no kernel can show. Those that a test has in its kernels are seen to change nothing there.
UNSEEN = {
    "nop": "stands for what changes no result: caches, registers that are spared, fences that the "
           "checks have no use for, and launches that go one after the other",
    "yield": "lets other warps go first, which they may do anywhere",
    "bar.warp": "does nothing: that lanes wait there is of its kind, and spoilt below",
}  # fmt: skip
# The rows of the table of forms that come to no more than those, an instruction of each, and why.
CACHES = "it says what a cache shall hold, and caches have no say in results"
SEEN = "what it orders is seen in order here anyway, or is not looked for: docs/about/papergpu/"
QUIET = {
    "prefetch": ("prefetch.global.L2 [%rd0]", CACHES),
    "prefetchu": ("prefetchu.L1 [%rd0]", CACHES),
    "applypriority": ("applypriority.global.L2::evict_normal [%rd0], 128", CACHES),
    "discard": ("discard.global.L2 [%rd0], 128", "what may be lost by it is still there"),
    "setmaxnreg": ("setmaxnreg.dec.sync.aligned.u32 40", "there are registers for everybody"),
    "griddepcontrol": ("griddepcontrol.wait", "launches go one after the other"),
    "nanosleep": ("nanosleep.u32 20", "nobody tells the time"),
    "pmevent": ("pmevent 1", "nobody counts events"),
    "fence.alias": ("fence.proxy.alias", SEEN),
    "fence.async": ("fence.proxy.async.global", "only shared memory is watched for it"),
    "fence.generic": (
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", SEEN),
    "tcgen05.fence": ("tcgen05.fence::before_thread_sync", SEEN),
}  # fmt: skip
CALM = "memory_forms::test_what_says_how"  # whose kernels have those


def match_handlers(patterns: str) -> set[str]:
    """The handlers of a row."""
    return {
        one for one in list_handlers() for pattern in patterns.split() if fnmatchcase(one, pattern)
    }


def collect_row_cases(modules: str) -> list[Case]:
    """The cases of a row's modules, the quickest first."""
    found = [case for one in modules.split() for case in collect_cases(f"test_{one}")]
    return sorted(found, key=lambda one: one.seconds)


@pytest.mark.exhaustive("all other handlers, spoilt")
@pytest.mark.parametrize(("patterns", "ways", "modules"), ROWS, ids=[row[0] for row in ROWS])
def test_a_spoilt_handler_is_seen(patterns: str, ways: str, modules: str) -> None:
    missed = []
    for name in sorted(match_handlers(patterns)):
        using = [case for case in collect_row_cases(modules) if name in case.handlers]
        assert using, f"no test of {modules} has {name} in its kernels: add one"
        for way in ways.split():
            word = "" if way == "result" else way
            if not any(case.detects_spoilt(name, word) for case in using):
                missed.append(f"{name}: {way}")
    assert not missed, f"nobody sees that they are wrong: {missed}"


@pytest.mark.parametrize("name", UNSEEN)
def test_what_is_said_to_change_nothing_does_not(name: str) -> None:
    using = [case for case in collect_row_cases(CALM) if name in case.handlers]
    assert using
    assert not any(case.detects_spoilt(name, way) for case in using for way in ("nothing", "lane"))


@pytest.mark.parametrize("row", QUIET)
def test_what_is_said_to_come_to_nothing_does(row: str) -> None:
    written, reason = QUIET[row]
    form = written.partition(" ")[0]
    assert find_form(form).form.name == row and reason
    text = write_kernel(f"{written}; ret;").replace("8.8", "9.0").replace("sm_90a", "sm_100a")
    program = decode(parse(text), "k")
    made = {one for one, of in zip(program.names, program.forms, strict=True) if of == form}
    assert made and made <= set(UNSEEN)


def test_every_handler_is_spoilt_or_explained() -> None:
    """Each is of one of these, and none of these is of no handler."""
    threads = frozenset().union(*(list_source_handlers(source) for source in SOURCES))
    fused = {one for one in threads if one.startswith(FUSED)}
    made = {
        f"{name}.{kind}" for name, _ in test_threads.SHAPES.values() for kind in test_threads.KINDS
    }
    assert fused <= made
    groups = [
        {one for one in threads if not one.startswith(MOVES)},
        set(UNSEEN),
        match_handlers("mutant.*"),
    ]
    for patterns, _, _ in ROWS:
        for pattern in patterns.split():
            assert match_handlers(pattern), f"{pattern} is no handler's name"
        groups.append(match_handlers(patterns))
    assert set().union(*groups) == list_handlers()
    assert sum(map(len, groups)) == len(list_handlers())


# What the engine does between handlers, by the kind of an instruction.


def leave_out(kind: int) -> Callable[[Kernel], None]:
    """Nothing is done where instructions of this kind stand; the last one of a kernel stays."""

    def clear_chosen(kernel: Kernel) -> None:
        chosen = kernel.code["kind"] == kind
        chosen[-1] = False
        kernel.code["run"][chosen] = get_handler("nop")
        kernel.code["kind"][chosen] = PLAIN

    return clear_chosen


def skip_waits(kind: int, name: str = "*") -> Callable[[Kernel], None]:
    """What would wait is done at once."""

    def make_plain(kernel: Kernel) -> None:
        of_name = np.array([fnmatchcase(one, name) for one in kernel.program.names])
        kernel.code["kind"][of_name & (kernel.code["kind"] == kind)] = PLAIN

    return make_plain


def drop_guards(kernel: Kernel) -> None:
    kernel.code["guard"] = -1


def flip_guards(kernel: Kernel) -> None:
    kernel.code["negate"] ^= kernel.code["guard"] >= 0


def drop_special(number: int) -> Callable[[Kernel], None]:
    """A special register holds nothing."""

    def remove_special(kernel: Kernel) -> None:
        pairs = kernel.program.specials.reshape(-1, 2)
        kept = np.ascontiguousarray(pairs[pairs[:, 0] != number]).ravel()
        kernel.program = replace(kernel.program, specials=kept)

    return remove_special


def drop_ranks(kernel: Kernel) -> None:
    """Addresses of shared memory do not say whose they are."""
    kernel.program = replace(kernel.program, shared_constants=np.zeros(0, np.uint32))


def drop_reductions(kernel: Kernel) -> None:
    """A barrier opens, and gives no result."""
    chosen = kernel.code["kind"] == BARRIER
    kernel.code["flags"][chosen] &= ~np.uint32(12)


def list_steps() -> Iterator[tuple[str, Callable[[Kernel], None], str]]:
    yield "a branch", leave_out(BRANCH), "running"
    yield "a table of branches", leave_out(TABLE), "running"
    yield "an end", leave_out(EXIT), "running"
    yield "a barrier", leave_out(BARRIER), "running"
    yield "what a barrier reduces", drop_reductions, "running"
    yield "a cluster's barrier", leave_out(CLUSTER), "register_forms"
    yield "the wait for lanes", skip_waits(MEET), "running"
    yield "the wait for an mbarrier", skip_waits(RETRY, "mbarrier.*"), "mbarriers"
    yield "the wait for columns", skip_waits(RETRY, "tcgen05.alloc"), "tcgen05"
    yield "the wait for a warpgroup", skip_waits(RETRY, "wgmma.wait"), "wgmma::test_who_waits"
    yield "a guard", drop_guards, "running"
    yield "which lanes a guard means", flip_guards, "running"
    yield "the block of an address", drop_ranks, "register_forms"
    for number, name in enumerate(SPECIALS):
        if name != "%smid":  # any number is right
            yield name, drop_special(number), "register_forms::test_every_special"


STEPS = {name: (change, modules) for name, change, modules in list_steps()}


@pytest.mark.parametrize("name", STEPS)
def test_a_spoilt_step_is_seen(name: str) -> None:
    change, modules = STEPS[name]
    assert any(case.detects_change(change) for case in collect_row_cases(modules)), (
        f"nobody sees {name} left out"
    )
