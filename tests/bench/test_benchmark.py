"""The runner is quick enough that nobody leaves verification out."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_benchmark import COUNT, time_situations

pytestmark = pytest.mark.alone

ATTEMPTS = 4  # these are wall-clock times, and the machine may be busy for a while
LIMITS = {"cold": 6.0, "one changed": 2.5, "helper changed": 6.0, "nothing changed": 1.5}


@pytest.mark.exhaustive("forty snippets, verified three times")
def test_forty_snippets_are_verified_in_seconds(tmp_path: Path) -> None:
    late: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        root = tmp_path / str(attempt)
        root.mkdir()
        results = time_situations(root)
        assert {name: count for name, (_, count) in results.items()} == {
            "cold": COUNT,
            "one changed": 1,
            "helper changed": COUNT,
            "nothing changed": 0,
        }
        late = {name: took for name, (took, _) in results.items() if took > LIMITS[name]}
        if not late:
            return
    raise AssertionError(f"too late in each of {ATTEMPTS} attempts, in the last: {late}")
