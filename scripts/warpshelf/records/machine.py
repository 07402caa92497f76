"""Which machine a record is of: its slug, and what is known of it without a look at a GPU."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

CPU = "cpu"
LONGEST_SLUG = 80  # characters; it becomes a file name


def device_slug(device: str) -> str:
    """A device's name as a file name: `NVIDIA H100 80GB HBM3` is `nvidia-h100-80gb-hbm3`."""
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return words[:LONGEST_SLUG].strip("-") or "gpu"


def may_have_gpu() -> bool:
    """Whether it is worth importing torch to ask for a GPU."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def describe_host() -> dict[str, Any]:
    """This machine without regard to a GPU, as a record has it. Does not import torch."""
    return {
        "slug": CPU,
        "device": "CPU",
        "gpus": 0,
        "memory_bytes": None,
        "sm": None,
        "sms": None,
        "driver": None,
        "cuda": None,
        "torch": (_package_version("torch") or "").split("+")[0],
        "triton": _package_version("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
    }


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def without_gpu(description: Mapping[str, Any]) -> dict[str, Any]:
    """The same machine as a record has it for what runs on its CPU."""
    absent = dict.fromkeys(("memory_bytes", "sm", "sms", "driver", "cuda"))
    return {**description, **absent, "slug": CPU, "device": "CPU", "gpus": 0}
