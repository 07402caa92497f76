"""What nodes do in tests, in place of timings: real checks on the CPU, under a made-up device.

The functions travel to the nodes by value; each takes and gives what `fleet.node.run` does.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from warpshelf.fleet.node import run

FOLDER = "/nowhere"  # of a test, where tasks leave word; the driver sets it


def describe_device(accelerator: str | None) -> dict[str, Any]:
    """The machine that a made-up accelerator stands for."""
    shown = {"device": f"Imaginary {accelerator}", "slug": f"imaginary-{str(accelerator).lower()}"}
    gpu = {"sm": 90, "sms": 128, "memory_bytes": 80 * 2**30, "driver": "999.1", "cuda": "99.0"}
    return shown | gpu | {"gpus": 1}


def describe_cpu(task: dict[str, Any]) -> dict[str, Any]:
    """Say what the CPU is, and what GPU Ray was told of."""
    machine = {"torch": "2.13.0", "triton": "3.7.1", "python": "3.11.7", "os": "Linux x86_64"}
    none = dict.fromkeys(("memory_bytes", "sm", "sms", "driver", "cuda"))
    machine |= none | {"slug": "cpu", "device": "CPU", "gpus": 0}
    return {"machine": machine | (describe_device(task["accelerator"]) if task["gpus"] else {})}


def run_check(task: dict[str, Any]) -> dict[str, Any]:
    """Run the real check on the CPU, and call the machine what the task calls it."""
    answer = run({**task, "only": "cpu"})
    if (record := answer.get("record")) and task["slug"] != "cpu":
        record["machine"] |= describe_device(task["slug"].removeprefix("imaginary-").upper())
        record["machine"]["slug"] = task["slug"]
        for part in ("due", "counts", "targets"):
            record.pop(part, None)
    return answer


def tell_record(task: dict[str, Any]) -> dict[str, Any]:
    """No check at all: a record made up on the spot, and one line on who made it."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with open(f"{FOLDER}/told", "a", encoding="utf-8") as file:
        file.write(json.dumps([task["snippet"], task["slug"], node]) + "\n")
    return make_up_record(task)


def make_up_record(task: dict[str, Any]) -> dict[str, Any]:
    """A record of a model, which says nothing."""
    machine = describe_cpu({"gpus": 0, "accelerator": None})["machine"]
    if task["slug"] != "cpu":
        machine |= describe_device(None) | {"slug": task["slug"]}
    record = {
        "schema": 1, "method": 5, "snippet": task["snippet"], "kind": "model",
        "digest": task["digest"], "date": "2031-05-06T07:08:09Z", "commit": None,
        "command": f"shelf run {task['snippet']}", "machine": machine, "demo": "one\n",
        "facts": [{"name": "a", "value": 1, "expected": 1, "tolerance": 0, "unit": "",
                   "source": "none", "verdict": "passed"}],
    }  # fmt: skip
    row = {"snippet": task["snippet"], "machine": task["slug"], "state": "passed", "note": "",
           "seconds": 0.0, "findings": [], "errors": []}  # fmt: skip
    return {"row": row, "record": record}


def stall_first(task: dict[str, Any]) -> dict[str, Any]:
    """The first to come says on which node it is, and stalls; the others are done at once."""
    import ray

    began = Path(FOLDER) / "began"
    try:
        with began.open("x", encoding="utf-8") as file:
            file.write(ray.get_runtime_context().get_node_id())
    except FileExistsError:
        return tell_record(task)
    time.sleep(120)
    return tell_record(task)


def ignore_interrupts(task: dict[str, Any]) -> dict[str, Any]:
    """Answer nothing, and heed nobody who asks it to end."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            continue
    return tell_record(task)


def fill_first_disk(task: dict[str, Any]) -> dict[str, Any]:
    """The node that is the first to come has a full disk, for good."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    try:
        with (Path(FOLDER) / "full").open("x", encoding="utf-8") as file:
            file.write(node)
    except FileExistsError:
        pass
    if (Path(FOLDER) / "full").read_text(encoding="utf-8") != node:
        return tell_record(task)
    usage, before = shutil._ntuple_diskusage(2**30, 2**30, 0), shutil.disk_usage
    shutil.disk_usage = lambda path: usage
    try:
        return run(task)
    finally:
        shutil.disk_usage = before
