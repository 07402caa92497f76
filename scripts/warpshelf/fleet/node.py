"""What a node of a cluster does for a fleet: run one snippet in a process of its own, or describe.

The working folder is the copy of the checkout. This module travels to the node by value, so it
imports the standard library alone: until the checkout's own command line is started, nothing but
Ray is asked of the Python there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOM = 64 * 2**20  # bytes that must be free where temporary files go
FULL = "No space left on device"
LAST = 400  # characters of the last line on standard error that go home
DESCRIBING = 150.0  # seconds to say what this machine is, with torch on a cold disk


def run_in_task(
    work: Callable[[dict[str, Any]], dict[str, Any]], task: dict[str, Any], notes: Any
) -> dict[str, Any]:
    """Run `work` inside a task of Ray, and have `notes` hear that it began, and where."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with contextlib.suppress(Exception):  # only limits rest on it
        notes.put((task["key"], node), timeout=5)
    return {"node": node, **work(task)}


def describe_machine(task: dict[str, Any]) -> dict[str, Any]:
    """This machine as a record has it: `{"machine": …}`, or `{"unfit": why}`.

    It holds no GPU meanwhile, so Ray may have hidden them; how many there are is Ray's to say.
    """
    hidden = task["gpus"] and os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    environment = {"CUDA_VISIBLE_DEVICES": None} if hidden else {}
    status, out, err = run_command(["machine"], environment, DESCRIBING)
    try:
        machine = json.loads(out)
    except ValueError:
        return {"unfit": _last_line(err) or f"did not describe itself (status {status})"}
    if absent := [name for name in ("torch", "triton") if not machine[name]]:
        return {"unfit": f"the Python of Ray lacks {' and '.join(absent)}"}
    if task["gpus"] and not machine["gpus"]:
        return {"unfit": f"Ray counts {task['gpus']} GPUs, but torch finds none"}
    return {"machine": {**machine, "gpus": task["gpus"]}}


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run one snippet: `{"row": …, "record": …}`, or `{"unfit": why}` where the node cannot."""
    environment = {} if task["only"] == "gpu" else {"CUDA_VISIBLE_DEVICES": ""}
    try:
        if (free := shutil.disk_usage(tempfile.gettempdir()).free) < ROOM:
            return {"unfit": f"{FULL}: {free // 2**20} MiB free in {tempfile.gettempdir()}"}
        with tempfile.TemporaryDirectory(prefix="shelf-") as folder:
            out = Path(folder) / "records.json"
            words = ["run", task["snippet"], "--only", task["only"], "--out", str(out), "--json"]
            words += ["--workers", str(task["workers"])]
            status, said, err = run_command(words, environment, task["seconds"])
            if FULL in err or FULL in said:
                return {"unfit": FULL}
            if status is None:
                return {"failed": f"the runner was still running after {task['seconds']:g} s"}
            try:
                [row] = json.loads(said)
            except ValueError:
                # One line and status 1 is how the runner tells that it cannot start here at all.
                if status == 1 and "Traceback" not in err:
                    return {"unfit": _last_line(err)}
                ended = status < 0
                how = f"was ended by signal {-status}" if ended else f"left with status {status}"
                return {"failed": f"the runner {how}: {_last_line(err) or 'no output'}"}
            records = json.loads(out.read_text(encoding="utf-8"))["records"]
            return {"row": row, "record": records[0] if records else None}
    except OSError as error:
        return {"unfit": f"{error.strerror or error}: {error.filename or tempfile.gettempdir()}"}


def run_command(
    words: list[str], environment: Mapping[str, str | None], seconds: float
) -> tuple[int | None, str, str]:
    """Start the copy's command line in a process group of its own, which outlives neither an
    exception here nor this process: its exit status (None where it had to be ended), and what it
    wrote. A variable that is None in `environment` is taken away."""
    changed = {**os.environ, "PYTHONPATH": str(Path.cwd() / "scripts"), **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "warpshelf", *words],
        env={name: value for name, value in changed.items() if value is not None},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_dying_with_parent(),
    )
    status, out, err = None, "", ""
    try:
        out, err = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        _kill_group(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=5)
    finally:
        _kill_group(process)
    return status, out, err


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def _dying_with_parent() -> Callable[[], object] | None:
    """Have the kernel end the child when this process ends, as when Ray kills it (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LAST] if lines else ""
