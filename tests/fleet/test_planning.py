"""What a fleet plans, keeps and says, without a cluster."""

from __future__ import annotations

import builtins
import json
import socket
import subprocess
import sys
import types
from typing import Any

import node_tasks
import overhead
import pytest
from conftest import Trial
from local_fleet import ENVIRONMENT, LIGHT, PLAIN

from warpshelf.bench.run import Verdict
from warpshelf.contract import snippet
from warpshelf.core.files import dump_json
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.fleet import cluster
from warpshelf.fleet.cluster import NoAnswer, Node
from warpshelf.fleet.queue import Inventory, Item, Kind, cpu_kind, plan_items
from warpshelf.fleet.run_cluster import ResultQueue, judge_answer
from warpshelf.records import bundle

CPU = cpu_kind(node_tasks.describe_cpu({"gpus": 0})["machine"])


def make_kind(name: str, sm: int = 90, gpus: int = 1) -> Kind:
    machine = node_tasks.describe_cpu({"gpus": 1, "accelerator": name})["machine"]
    return Kind(name, machine | {"sm": sm, "gpus": gpus})


def plan_trial(trial: Trial, *kinds: Kind, **more: Any) -> tuple[list[Item], list[Verdict]]:
    return plan_items(
        snippet.discover_snippets(Project(trial.root)), list(kinds), more.pop("held", {}), **more
    )


def make_record(trial: Trial, name: str, slug: str) -> dict[str, Any]:
    """A record of a snippet of the project, made up."""
    [one] = [one for one in snippet.discover_snippets(Project(trial.root)) if one.id == name]
    return node_tasks.make_up_record({"snippet": name, "digest": one.digest, "slug": slug})[
        "record"
    ]


def test_each_snippet_is_due_on_each_kind_that_can_run_it(trial: Trial) -> None:
    trial.add_snippet("both", LIGHT)
    trial.add_snippet("new", LIGHT.replace('"gpus": 1', '"gpus": 1, "sm": 100'))
    trial.add_snippet("odd", LIGHT.replace('"gpus": 1', '"gpus": 1, "sm": 75'))
    trial.add_snippet("plain", PLAIN)
    trial.add_snippet("broken", "def demo(): pass\n")
    items, verdicts = plan_trial(trial, make_kind("H", 90), make_kind("B", 100), CPU)
    assert [item.key for item in items] == [
        "both on imaginary-b", "both on imaginary-h", "new on imaginary-b", "plain on cpu",
    ]  # fmt: skip
    said = {(one.snippet, one.machine): (one.state, one.note) for one in verdicts}
    state, note = said.pop(("odd", "any kind of this cluster"))
    assert state == "skipped" and note.startswith("H: ") and "B: " in note
    assert said.pop(("new", "imaginary-h"))[0] == "skipped"
    assert said.pop(("broken", "cpu"))[0] == "failed"
    assert set(said) == {("both", "cpu"), ("new", "cpu")}


def test_what_is_current_by_a_record_in_place_or_in_the_bundle_is_not_due(trial: Trial) -> None:
    trial.add_snippet("one", PLAIN)
    record = make_record(trial, "one", "cpu")
    held = {"one": {"cpu": (record["digest"], record["date"])}}
    for force in (False, True):  # what the bundle has is this run's own
        items, verdicts = plan_trial(trial, CPU, held=held, force=force)
        assert [one.state for one in verdicts] == ["current"] and not items
    old = {"one": {"cpu": ("sha256:" + "0" * 64, record["date"])}}
    assert len(plan_trial(trial, CPU, held=old)[0]) == 1
    place = trial.root / "snippets" / "one" / "results" / "cpu.json"
    place.parent.mkdir()
    place.write_text(dump_json(record))
    assert plan_trial(trial, CPU, held=old)[0] == []
    assert len(plan_trial(trial, CPU, force=True)[0]) == 1


def test_the_stalest_go_first_and_an_item_has_its_share_of_cores(trial: Trial) -> None:
    for name in ("fresh", "older", "never"):
        trial.add_snippet(name, LIGHT.replace('"gpus": 1', '"gpus": 2, "seconds": 10'))
    times = {"fresh": "2031-05-06T07:08:09Z", "older": "2030-05-06T07:08:09Z"}
    held = {name: {"imaginary-h": ("sha256:", date)} for name, date in times.items()}
    wide = Kind("H", make_kind("H", gpus=8).machine, cpus=4)
    items, _ = plan_trial(trial, wide, held=held)
    assert [item.snippet.id for item in items] == ["never", "older", "fresh"]
    item = items[0]
    assert (item.gpus, item.cpus, item.task_details()["workers"]) == (2, 8, 8)
    assert item.limit == 180 + 60 + 10


def make_node(id_: str, accelerator: str | None = None, gpus: int = 0, cpus: int = 4) -> Node:
    return Node(id_, f"host-{id_}", accelerator, cpus, gpus)


def test_two_devices_of_one_accelerator_are_two_kinds_that_share_no_node() -> None:
    there = Inventory(slugs={"a": "pcie", "b": "sxm"})
    there.update_nodes([make_node("a", "H", 1), make_node("b", "H", 2), make_node("c")])
    pcie = Kind("H", {"slug": "pcie"})
    assert there.excluded_nodes(pcie) == {"b"} and [one.id for one in there.fit_nodes(pcie)] == [
        "a"
    ]
    assert there.excluded_nodes(CPU) == set()
    assert there.exclude_node("a", "No space left on device: 0 MiB free") == Finding(
        "node host-a", None, "No space left on device: 0 MiB free", "free some space there"
    )
    assert there.exclude_node("a", "again") is None
    assert there.fit_nodes(pcie) == [] and "a" in there.excluded_nodes(CPU)


@pytest.fixture
def planned_item(trial: Trial) -> Item:
    trial.add_snippet("one", LIGHT)
    [only], _ = plan_trial(trial, make_kind("A1"))
    return only


def make_answer(item: Item, **changes: Any) -> dict[str, Any]:
    return node_tasks.make_up_record(item.task_details() | changes)


def test_a_record_is_kept_only_if_it_is_what_was_asked_for(planned_item: Item) -> None:
    good = judge_answer(planned_item, make_answer(planned_item), "there")
    assert good.verdict is not None and good.verdict.state == "passed" and good.record
    other = judge_answer(
        planned_item, make_answer(planned_item, digest="sha256:" + "0" * 64), "there"
    )
    assert other.record is None and other.verdict is not None
    assert "node there ran different code than this checkout has" in str(other.verdict.findings[0])
    spoilt = make_answer(planned_item)
    spoilt["record"]["facts"][0]["value"] = float("nan")
    bad = judge_answer(planned_item, spoilt, "there")
    assert bad.record is None and bad.verdict is not None and bad.verdict.state == "failed"
    wrong = judge_answer(planned_item, make_answer(planned_item, slug="imaginary-b2"), "there")
    assert wrong.verdict is None and wrong.slug == "imaginary-b2"
    none = judge_answer(planned_item, make_answer(planned_item) | {"record": None}, "there")
    assert none.verdict is not None and none.verdict.state == "failed"


def test_a_finding_comes_home_as_the_line_that_it_was(planned_item: Item) -> None:
    lines = ["snippets/one/one.py:7: is wrong: x; y; mend it", "a: b", "no place at all"]
    row = {**make_answer(planned_item)["row"], "state": "failed", "findings": lines}
    found = judge_answer(planned_item, {"row": row, "record": None}, "there").verdict
    assert found is not None and found.note == "node there"
    assert [str(one) for one in found.findings] == [*lines[:2], f"node: {lines[2]}"]


def test_what_ray_lost_is_tried_again_or_left(planned_item: Item) -> None:
    again, ended = (judge_answer(planned_item, NoAnswer("why", more), "") for more in (True, False))
    assert again.verdict is None
    assert ended.verdict is not None and (ended.verdict.state, ended.verdict.note) == (
        "left",
        "why",
    )


def test_a_spool_takes_up_what_is_there_and_leaves_one_file(trial: Trial) -> None:
    trial.add_snippet("one", PLAIN)
    out = trial.root / "out.json"
    with ResultQueue(out) as spool:
        assert spool.made == {}
    assert json.loads(out.read_text()) == {"records": [], "schema": 1}
    first, second, newer = (make_record(trial, "one", slug) for slug in ("cpu", "gpu", "cpu"))
    newer["demo"] = "two\u2028three\n"  # a line's end to some, and inside a string
    with ResultQueue(out) as spool:
        spool.save_record(first)
        spool.save_record(second)
    with ResultQueue(out) as spool:
        assert sorted(spool.made["one"]) == ["cpu", "gpu"]
        spool.save_record(newer)
        assert len(list(spool.folder.iterdir())) == 1
    assert out.read_text() == bundle.bundle_text([newer, second])
    assert bundle.read_bundle(out) == [newer, second] and not spool.folder.exists()


def test_a_torn_file_in_the_folder_is_named(trial: Trial) -> None:
    out = trial.root / "out.json"
    part = trial.root / "out.json.parts" / "one.cpu.json"
    part.parent.mkdir()
    part.write_text('{"schema": 1')
    with (
        pytest.raises(ShelfError, match=r"one\.cpu\.json: is not a record: .*; remove it"),
        ResultQueue(out),
    ):
        pass
    assert part.exists() and not out.exists()


@pytest.mark.parametrize(("absent", "package"), [("ray", "ray"), ("grpc", "grpcio")])
def test_without_ray_one_line_says_what_to_install(
    absent: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse_import(name: str, *more: Any) -> Any:
        if name == absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *more)

    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setattr(builtins, "__import__", refuse_import)
    with pytest.raises(ShelfError) as refused:
        cluster._import_ray("ray://host:1")
    assert str(refused.value) == (
        f"{package}: is not installed in this environment; "
        "install the extra: `.venv/bin/pip install -c constraints.txt -e '.[fleet]'`"
    )


@pytest.mark.exhaustive("processes of their own")
def test_other_commands_leave_ray_alone(trial: Trial) -> None:
    trial.add_snippet("one", PLAIN)
    text = (
        "import sys; from warpshelf.cli import commands; "
        "status = commands.main(['run', '--out', 'r.json']); "
        "sys.exit(status or 'ray' in sys.modules)"
    )
    words = [sys.executable, "-c", text]
    assert subprocess.run(words, cwd=trial.root, env=ENVIRONMENT, timeout=120).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Version mismatch: The cluster was started with:\n  Ray: 2.60.0\n  Python: 3.11.7\n"
            "This process on node 192.0.2.2 was started with:\n  Ray: 1.0.0\n  Python: 3.11.7\n",
            "runs other versions: Version mismatch: The cluster was started with: Ray: 2.60.0",
        ),
        (
            "Could not find any running Ray instance. Please",
            "cannot be reached: Could not find any",
        ),
        ("", "cannot be reached: RuntimeError; check that the cluster is up"),
    ],
)
def test_a_refused_connection_is_one_line(text: str, said: str) -> None:
    line = str(cluster._connection_finding("host:6379", RuntimeError(text)))
    assert line.startswith(f"host:6379: {said}") and "\n" not in line


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_told_at_once(trial: Trial, scheme: str) -> None:
    pytest.importorskip("grpc" if scheme else "ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ShelfError) as refused:
            cluster.Cluster(address, trial.root)
    line = str(refused.value)
    assert line.startswith(f"{address}: cannot be reached: [Errno 111] Connection refused; check ")
    assert "\n" not in line


@pytest.mark.parametrize(
    "words",
    [
        ["--on", "nowhere"], ["--on", "ray://host"], ["--kinds", "H100"], ["--only", "tpu"],
        ["--on", "ray", "--kinds", " , "],
    ],
)  # fmt: skip
def test_wrong_usage_is_told_before_anything_starts(trial: Trial, words: list[str]) -> None:
    done = trial.run_shelf("run", *words)
    assert done.returncode == 2 and "Invalid value" in done.stderr


def test_the_page_shows_the_figures_that_are_kept() -> None:
    page = overhead.PAGE.read_text(encoding="utf-8")
    figures = json.loads(overhead.FILE.read_text(encoding="utf-8"))
    assert [row["items"] for row in figures["rows"]] == [40, 400, 4000]
    assert overhead.fill_page(page, figures) == page and overhead.write_table(figures) in page
