"""profiling: every moment has one owner, gaps have their cause, and usual mistakes show."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts, read_facts

from snippets.profiling import blame, cases, critical, step
from snippets.profiling import trace as reading
from snippets.profiling.profiling import MADE_UP, RECORDED, counted, expected, report
from snippets.profiling.trace import Span, Trace, both, length, merged, moments, read

TIMES = st.tuples(st.integers(0, 40), st.integers(0, 12))
HOST, GPU = ("1", "1"), ("0", "7")


def make_span(name: str, start: int, end: int, kind: str = "cpu_op", **args: Any) -> Span:
    track = ("0", str(args["stream"])) if "stream" in args else HOST
    return Span(name, kind, track, start, end, args)


def make_spans(times: list[tuple[int, int]], kind: str = "cpu_op") -> list[Span]:
    found = [make_span(f"{n}", a, a + b, kind) for n, (a, b) in enumerate(times)]
    return sorted(found, key=lambda one: (one.start, -one.end))


def read_made_up_trace() -> Trace:
    return read(MADE_UP.read_bytes())


@given(st.lists(TIMES, max_size=12), st.integers(0, 20), st.integers(0, 40))
def test_every_moment_belongs_to_what_began_last(
    times: list[tuple[int, int]], start: int, more: int
) -> None:
    spans = make_spans(times)
    found = list(moments(spans, start, start + more))
    edges = [start, *(end for _, end, _ in found)]
    assert [a for a, _, _ in found] == edges[:-1] and edges[-1] == start + more
    for a, b, opened in found:
        for at in range(a, b):
            due = [one for one in spans if one.start <= at < one.end]
            assert list(opened) == due


@given(st.lists(TIMES, max_size=8), st.lists(TIMES, max_size=8))
def test_intervals_are_sets_of_moments(
    ours: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def list_moments(spans: list[Span]) -> set[int]:
        return {at for one in spans for at in range(one.start, one.end)}

    first, second = make_spans(ours), make_spans(others)
    assert length(merged(first)) == len(list_moments(first))
    assert length(both(merged(first), merged(second))) == len(
        list_moments(first) & list_moments(second)
    )


STREAMS = st.sampled_from((7, 20))
LAUNCHED = st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(1, 60), STREAMS)
WAITS = st.tuples(st.integers(0, 200), st.integers(1, 40))


@given(st.lists(LAUNCHED, min_size=1, max_size=10), st.lists(WAITS, max_size=3))
def test_gaps_and_path_cover_the_step_whatever_it_holds(
    launched: list[tuple[int, int, int, int]], waits: list[tuple[int, int]]
) -> None:
    """On any streams, in any order, with waits of the host in between."""
    spans = [make_span("ProfilerStep#1", 0, 220, "user_annotation")]
    free = {7: 0, 20: 0}
    for number, (at, late, takes, stream) in enumerate(sorted(launched)):
        begin = max(at + late, free[stream])
        free[stream] = begin + takes
        ids = {"stream": stream, "correlation": number}
        spans.append(make_span("cudaLaunchKernel", at, at + 1, "cuda_runtime", correlation=number))
        spans.append(make_span(f"k{number}", begin, begin + takes, "kernel", **ids))
    for at, takes in waits:
        spans.append(make_span("cudaDeviceSynchronize", at, at + takes, "cuda_runtime"))
    trace = Trace(sorted(spans, key=lambda one: (one.start, -one.end)))
    (one,) = trace.steps
    took = blame.use(trace, one)
    assert sum(blame.idle(trace, one).values()) == took["idle"]
    assert took["busy"] + took["idle"] == took["window"]
    path = critical.path(trace, one)
    edges = [piece.start for piece in path] + [path[-1].end]
    assert edges[0] == 0 and edges[1:-1] == [piece.end for piece in path[:-1]]
    assert edges[-1] == max(220, max(free.values()))


def test_windows_of_steps_leave_no_time_between_them() -> None:
    """The GPU runs behind: what the host launches in a step ends in the next."""
    spans = []
    for number in range(3):
        at = 100 * number
        spans.append(make_span(f"ProfilerStep#{number}", at, at + 100, "user_annotation"))
        spans.append(make_span("log", at + 60, at + 99, "user_annotation"))
        spans.append(
            make_span("cudaLaunchKernel", at + 10, at + 12, "cuda_runtime", correlation=number)
        )
        spans.append(make_span("k", at + 130, at + 155, "kernel", stream=7, correlation=number))
    trace = Trace(sorted(spans, key=lambda one: (one.start, -one.end)))
    found = [blame.window(trace, one) for one in trace.steps]
    assert found == [(0, 155), (155, 255), (255, 355)]
    assert [blame.use(trace, one)["busy"] for one in trace.steps] == [25, 25, 25]
    # Launched at 110 and 210, and not begun before 230 and 330: the device is to blame.
    assert dict(blame.idle(trace, trace.steps[1])) == {"device": 75}


def test_a_stall_between_two_steps_is_the_second_ones() -> None:
    """On a GPU it begins after the last kernel of the one, and ends with the first of the next."""
    spans = []
    for number in range(3):
        at = 100 * number
        ids = {"correlation": number}
        spans.append(make_span(f"ProfilerStep#{number}", at, at + 100, "user_annotation"))
        spans.append(make_span("log", at + 50, at + 99, "user_annotation"))
        spans.append(make_span("cudaLaunchKernel", at + 10, at + 12, "cuda_runtime", **ids))
        spans.append(make_span("k", at + 12, at + 40, "kernel", stream=7, **ids))
    worst = blame.repeated(Trace(sorted(spans, key=lambda one: (one.start, -one.end))))[0]
    assert (worst.cause, worst.place, worst.ns) == ("host", "log", 70)


def judge_rows(trace: Trace) -> dict[str, bool]:
    found = cases.made_up(trace)
    return {row["name"]: abs(row["value"] - row["expected"]) < 1e-9 for row in found}


def name_wrong_rows(trace: Trace) -> set[str]:
    return {
        name.removeprefix("made up: ") for name, right in judge_rows(trace).items() if not right
    }


def test_the_trace_made_up_is_read_as_written() -> None:
    assert name_wrong_rows(read_made_up_trace()) == set()


def list_intervals(spans: Any) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in spans if one.end > one.start]


def test_lengths_added_up_count_twice_what_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "merged", list_intervals)
    assert {"busy", "idle"} <= name_wrong_rows(read_made_up_trace())


def test_without_waits_a_sync_is_taken_for_a_slow_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WAITS", ())
    assert {"idle: after a wait", "idle: the host late", "path: host"} <= name_wrong_rows(
        read_made_up_trace()
    )


def test_without_correlation_nobody_is_to_blame() -> None:
    trace = read_made_up_trace()
    trace.launches = {}
    assert {"idle: the host late", "idle: launches", "the loader's gap"} <= name_wrong_rows(trace)


def test_a_collective_taken_for_computation_hides_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "sort_of", lambda one: "computation")
    took = blame.use(read_made_up_trace(), read_made_up_trace().steps[0])
    assert took["communication"] == 0 and took["computation"] > 480_000


def test_times_with_all_that_lies_inside_are_more_than_the_step() -> None:
    trace = read(RECORDED.read_bytes())
    one = trace.steps[0]
    inside = [s for s in trace.threads[one.track] if one.start <= s.start and s.end <= one.end]
    whole = sum(s.end - s.start for s in inside)
    assert sum(blame.operators(trace, one).values()) == one.end - one.start < whole / 2


def test_what_does_not_come_back_is_no_stall() -> None:
    """A pause in one step of three is noise, the one in all of them is the program's."""
    spans = []
    for number in range(3):
        at = 1000 * number
        pause = 300 if number == 1 else 5
        spans += [make_span(f"ProfilerStep#{number}", at, at + 900, "user_annotation"),
                  make_span("a", at, at + 100), make_span("b", at + 100 + pause, at + 500),
                  make_span("c", at + 540 + number, at + 900)]  # fmt: skip
    first, second = blame.repeated(Trace(spans))
    assert (first.after, first.before, first.ns) == ("b", "c", 40)
    assert (second.after, second.before, second.ns) == ("a", "b", 5)


def test_two_models_have_two_counts() -> None:
    assert expected(step.SMALL) != expected(step.GPT)
    assert counted(step.GPT) == expected(step.GPT)


def test_a_trace_that_is_kept_says_nothing_of_its_machine() -> None:
    found = step.record("cpu", steps=1)
    given = json.loads(found.content)
    assert given["host_name"] and given["traceName"].startswith("/")  # there is what to take out
    text = step.scrubbed(found.content, "a note")
    for word in (given["trace_id"], given["traceName"], f'"{socket.gethostname()}"'):
        assert word not in text
    assert_scrubbed(text)
    before, after = read(found.content), read(text)
    for ours, theirs in zip(before.steps, after.steps, strict=True):
        assert blame.operators(before, ours) == blame.operators(after, theirs)


HEAD = {"note", "schemaVersion", "displayTimeUnit", "distributedInfo", "traceEvents"}


def assert_scrubbed(text: str) -> None:
    """Only what is measured, without a path, a host or a process."""
    found = json.loads(text)
    assert set(found) <= HEAD
    for event in found["traceEvents"]:
        assert set(event) <= {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp"}
        assert event["pid"] in (0, 1) and event["tid"] in (0, 1, 2, 7, 13, 20)
        if event["ph"] != "M":
            assert set(event.get("args", ())) <= set(step.KEPT)
    assert not re.search(r"/(?!autograd)\w+/|\.py\b|python3|127\.0\.0\.1", text)


@pytest.mark.parametrize("kept", [MADE_UP, RECORDED])
def test_the_traces_that_are_published_are_clean_and_small(kept: Path) -> None:
    data = kept.read_bytes()
    text = gzip.decompress(data).decode() if kept.suffix == ".gz" else data.decode()
    assert_scrubbed(text)
    assert len(gzip.compress(data)) < 50_000
    assert list(report(read(gzip.compress(text.encode())))) == list(report(read(text)))


def test_the_made_up_one_says_so() -> None:
    found = json.loads(MADE_UP.read_text())
    names = [e["args"]["name"] for e in found["traceEvents"] if e["name"] == "process_name"]
    assert "made up" in found["note"] and all("made up" in name for name in names)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "profiling: Expecting property name .*; give a trace in JSON, or by gzip"),
        (b"\x1f\x8bno", "profiling: .*give a trace in JSON"),
        (b"{}", "profiling: no list of traceEvents; export it by export_chrome_trace"),
        (b'[{"ph": "X", "cat": "c", "name": "n", "pid": 1, "tid": 1, "ts": 1, "dur": -2}]',
         "profiling: n lasts -2 us, below 0; record it again"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_a_line(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        read(content)


def test_an_unknown_plant_is_refused() -> None:
    with pytest.raises(ValueError, match="^profiling: no plant 'a leak'; there are a slow loader"):
        step.record("cpu", ("a leak",))


def test_times_keep_their_last_digit() -> None:
    when = '"ts": 4650657915244.965, "dur": 0.001'
    (one,) = read(f'[{{"ph": "X", "cat": "c", "name": "n", "pid": 1, "tid": 1, {when}}}]').spans
    assert (one.start, one.end) == (4650657915244965, 4650657915244966)


@pytest.mark.exhaustive("a process of its own for one line")
def test_any_other_file_is_reported_by_its_name(tmp_path: Path) -> None:
    """As a reader would: `profiling.py FILE`."""
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(MADE_UP.read_bytes()))
    script = ROOT / "snippets/profiling/profiling.py"
    done = subprocess.run(
        [sys.executable, str(script), str(file)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("step 1 of 1: 0.880 ms\non the GPU 0.900 ms: busy 64.9 %")


def test_every_fact_holds() -> None:
    rows = read_facts(cases)
    names = Counter(row["name"] for row in rows)
    assert max(names.values()) == 1
    assert broken_facts(rows) == []
    assert sum("found first" in name for name in names) == len(step.PLANTS)
