"""What this checkout has run on this machine, which code passed, and what the machine is.

Committed records say what the project claims, the ledger what was tried here: a snippet whose last
run failed publishes nothing until it passes. A run that repeats what is current (`--all`,
`--force`) keeps a list beside it, so that the next one goes on where it was stopped.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from warpshelf.core import files
from warpshelf.core.project import Project

Entry = dict[str, Any]  # one verdict, and what each task took when it last found nothing wrong
# `demo` says that the verdict is on the demo alone, beside a record that is trusted.
ENTRY = {"digest": str, "demo?": bool, "failure?": str, "seconds?": {"*": files.NUMBER}}
LEDGER = {"*": {"*": ENTRY}}  # by snippet and machine
REPEATED = {"what": str, "snippets": [str], "began": files.NUMBER, "done": [[str]]}
LONGEST = 86_400.0  # seconds after which a run that repeats what is current begins anew

CPU = "cpu"
LONGEST_SLUG = 80  # characters; it becomes a file name
ABSENT = ("memory_bytes", "sm", "sms", "driver", "cuda")  # of the machine of a CPU's record
NO_GPU = {"slug": CPU, "device": "CPU", "gpus": 0, **dict.fromkeys(ABSENT)}


@dataclass
class Ledger:
    """Verdicts by snippet and machine, kept in a file that is never committed."""

    project: Project
    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)

    def has_passed(self, snippet: str, machine: str, digest: str) -> bool:
        """Whether this very code passed here, if only its demo."""
        entry = self._find_entry(snippet, machine, digest)
        return bool(entry) and not entry.get("failure")

    def demo_alone(self, snippet: str, machine: str, digest: str) -> bool:
        """Whether the verdict on this very code is one on its demo, beside a trusted record."""
        return bool(self._find_entry(snippet, machine, digest).get("demo"))

    def failure_line(self, snippet: str, machine: str, digest: str) -> str | None:
        """The line with which this very code failed when it last ran here."""
        return self._find_entry(snippet, machine, digest).get("failure")

    def _find_entry(self, snippet: str, machine: str, digest: str) -> Entry:
        entry = self.entries.get(snippet, {}).get(machine, {})
        return entry if entry.get("digest") == digest else {}

    def task_seconds(self, snippet: str, machine: str) -> dict[str, float]:
        """What its tasks took when they last ran here."""
        return dict(self.entries.get(snippet, {}).get(machine, {}).get("seconds", {}))

    def tried_machines(self, snippet: str) -> list[str]:
        """The machines on which it was tried from this checkout."""
        return list(self.entries.get(snippet, {}))

    def save_verdict(
        self,
        snippet: str,
        machine: str,
        digest: str,
        failure: str | None,
        seconds: Mapping[str, float] | None = None,
        demo_alone: bool = False,
    ) -> None:
        """Keep a verdict and what each task took, at once."""
        spent = {**self.task_seconds(snippet, machine), **(seconds or {})}
        told = {"demo": demo_alone, "failure": failure, "seconds": spent}
        entry = {"digest": digest, **{key: value for key, value in told.items() if value}}
        self.entries.setdefault(snippet, {})[machine] = entry
        files.write_atomically(self.project.ledger, files.dump_json(self.entries))


def _read_shaped(path: Path, shape: files.Shape) -> Any:
    """What a file holds; None where there is none or it is damaged, since it only saves work."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return None if files.shape_problem(value, shape, "file") else value


def load_ledger(project: Project) -> Ledger:
    """Read the ledger; a missing or damaged one is an empty one."""
    return Ledger(project, _read_shaped(project.ledger, LEDGER) or {})


@dataclass
class RepeatProgress:
    """The list of a run that repeats `snippets`, written to `path` from the first verdict on."""

    path: Path
    what: str  # whether it repeats them (`--all`) or records them anew (`--force`)
    snippets: list[str]
    began: float
    done: set[tuple[str, ...]] = field(default_factory=set)

    def has_passed(self, snippet: str, machine: str, digest: str) -> bool:
        """Whether this run has had this very code pass on a machine."""
        return (snippet, machine, digest) in self.done

    def add_passed(self, snippet: str, machine: str, digest: str) -> None:
        """Keep that it passed, at once."""
        self.done.add((snippet, machine, digest))
        known = {"what": self.what, "snippets": self.snippets, "began": self.began}
        text = files.dump_json({**known, "done": sorted(self.done)})
        files.write_atomically(self.path, text, durable=False)

    def finish(self) -> None:
        """The run has left nothing out: the next one begins anew."""
        self.path.unlink(missing_ok=True)


def resume_repeat(
    project: Project, what: str, snippets: Iterable[str], now: float | None = None
) -> RepeatProgress:
    """The run that did `what` to just these snippets and was stopped within a day, or a new one."""
    fresh = RepeatProgress(
        project.repeated, what, sorted(snippets), time.time() if now is None else now
    )
    found = _read_shaped(project.repeated, REPEATED)
    same = found and (found["what"], found["snippets"]) == (what, fresh.snippets)
    if same and 0 <= fresh.began - found["began"] <= LONGEST:
        fresh.began, fresh.done = found["began"], {tuple(one) for one in found["done"]}
    return fresh


def device_slug(device: str) -> str:
    """A device's name as a file name: `NVIDIA H100 80GB HBM3` is `nvidia-h100-80gb-hbm3`."""
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return words[:LONGEST_SLUG].strip("-") or "gpu"


def may_have_gpu() -> bool:
    """Whether there may be a GPU, so that importing torch to ask is worth it."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def describe_host() -> dict[str, Any]:
    """This machine without regard to a GPU, as a record has it. Does not import torch."""
    versions: dict[str, str | None] = dict.fromkeys(("torch", "triton"))
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        **NO_GPU,
        "torch": (versions["torch"] or "").split("+")[0],
        "triton": versions["triton"],
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
    }


def without_gpu(description: Mapping[str, Any]) -> dict[str, Any]:
    """The same machine as a record has it for what runs on its CPU."""
    return {**description, **NO_GPU}
