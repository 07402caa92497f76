"""Every wrong call of a kernel is right or refused in one line: no garbage, no message of another.

Takes 15 s. Of all calls it is tried whether they are refused before anything is launched; some are
executed, and by the exhaustive test all. Each call that is neither is printed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from conftest import snippets_of_the_shelf

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
resource = pytest.importorskip("resource")  # which Windows has not

from wrong_calls import call_flaw, list_calls, read_proof  # noqa: E402

from warpshelf.contract.snippet import Snippet  # noqa: E402

if torch.cuda.is_available():
    pytest.skip("what reads past an end would take the GPU down", allow_module_level=True)

KERNELS = [one for one in snippets_of_the_shelf() if one.kind == "kernel"]
ROOM = 3 * 2**30  # bytes; what 2**31 elements take shall be refused at once

# What is neither, by snippet: of which kind the mistake is, and in which inputs. An entry that is
# no longer true fails, and is struck out.
Entries = dict[str, dict[str, tuple[int, ...]]]
OPEN: Entries = {  # records of a GPU hold for their code: mend them when they are measured again
    "blas_fusion": {"shape": (1, 2, 3, 4, 5, 6, 7), "dimensions": (2, 3, 4, 5, 6, 7)},  # no mend
    "conv1d": {"shape": (1, 2, 3, 5, 6), "dimensions": (2, 3, 5, 6), "number": (4,)},  # no mend
    "matmul_languages": {"device": (0, 1)},  # launched
    "rope": {"number": (6,)},  # an offset past the tables reads past their end
    "softmax": {"device": (1, 2), "shape": (1, 2), "dimensions": (2,)},  # y and dy of two shapes
    "stream": {"dtype": (1, 2), "shape": (1, 2), "dimensions": (1, 2), "number": (3,)},  # launched
}
UNTOLD: Entries = {  # no check on the host can tell
    "flash_attention": {"number": (3, 4)},  # backward, out and lse are those of another window
    "flash_varlen": {"number": (3, 4)},
    "mla_decode": {"shape": (1,)},  # the table, which is on the GPU, names more pages
}


@pytest.fixture(autouse=True)
def _small_machine() -> Iterator[None]:
    """A thread, and memory for nothing that is large."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    torch.set_num_threads(threads)


def listed_places(entries: Entries, one: Snippet) -> set[str]:
    """The places of a snippet's calls that are listed."""
    listed = entries.get(one.id, {}).items()
    return {f"{index} {kind}" for kind, indices in listed for index in indices}


def check_calls(one: Snippet, share: float, listed: set[str]) -> None:
    """See that of a snippet's wrong calls only those listed above are neither right nor refused.

    A share of them, drawn at random, is executed; and of each place that is `listed` as many as it
    takes to see that the entry is true.
    """
    proof, flaws, draw = read_proof(one), dict[str, list[str]](), random.Random(one.id)
    for call in list_calls(one, proof):
        drawn = draw.random() < share
        if call.place in listed and call.place in flaws:
            continue
        if flaw := call_flaw(one, proof, call, drawn or call.place in listed):
            flaws.setdefault(call.place, []).append(f"{one.id}, {call}, {flaw}")
    known = listed_places(OPEN, one) | listed_places(UNTOLD, one)
    new = [line for place in flaws.keys() - known for line in flaws[place]]
    assert not new, "\n".join(["neither right nor refused:", *sorted(new)])
    assert not listed - flaws.keys(), "mended: strike it out"


@pytest.mark.filterwarnings("ignore::UserWarning")  # what references meet in wrong inputs
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_wrong_calls_are_right_or_refused(one: Snippet) -> None:
    check_calls(one, 0.01, listed_places(OPEN, one))


@pytest.mark.exhaustive("all wrong calls, executed")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_all_wrong_calls_executed_are_right_or_refused(one: Snippet) -> None:
    check_calls(one, 1, listed_places(OPEN, one) | listed_places(UNTOLD, one))
