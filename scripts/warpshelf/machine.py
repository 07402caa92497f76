"""Which machine this is, and what its GPU can do at most."""

from __future__ import annotations

import math
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPU = "cpu"
PATIENCE = 20.0  # seconds for nvidia-smi, which may hang where a driver is ill
LONGEST_SLUG = 80  # characters; it becomes a file name
# Dense FLOPs a clock of one SM, by SM version and unit, from NVIDIA's architecture whitepapers:
# A100 (8.0), GA10x (8.6), Ada (8.9), H100 (9.0) and Blackwell (10.0).
FLOPS_PER_CLOCK = {
    80: {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    86: {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    89: {
        "fp64": 4,
        "fp32": 256,
        "tf32": 512,
        "fp16": 1024,
        "bf16": 1024,
        "fp8": 2048,
        "int8": 2048,
    },
    90: {
        "fp64": 256,
        "fp32": 256,
        "tf32": 2048,
        "fp16": 4096,
        "bf16": 4096,
        "fp8": 8192,
        "int8": 8192,
    },
    100: {"fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384},
}


def slug(device: str) -> str:
    """A device's name as a file name: `NVIDIA H100 80GB HBM3` is `nvidia-h100-80gb-hbm3`."""
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return words[:LONGEST_SLUG].strip("-") or "gpu"


def may_have_gpu() -> bool:
    """Whether it is worth importing torch to ask for a GPU."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def plain() -> dict:
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
        "torch": (_version("torch") or "").split("+")[0],
        "triton": _version("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe() -> dict:
    """This machine as a record has it. Imports torch; run it in a child."""
    import torch

    found = {**plain(), "torch": str(torch.__version__).split("+")[0]}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        driver = query("driver_version")
        found |= {
            "slug": slug(properties.name),
            "device": properties.name,
            "gpus": torch.cuda.device_count(),
            "memory_bytes": properties.total_memory,
            "sm": properties.major * 10 + properties.minor,
            "sms": properties.multi_processor_count,
            "driver": driver[0] if driver else None,
            "cuda": torch.version.cuda,
        }
    return found


def without_gpu(description: dict) -> dict:
    """The same machine as a record has it for what runs on its CPU."""
    absent = dict.fromkeys(("memory_bytes", "sm", "sms", "driver", "cuda"))
    return {**description, **absent, "slug": CPU, "device": "CPU", "gpus": 0}


def query(*fields: str) -> list[str] | None:
    """What nvidia-smi says of the first GPU; None where it is not there or does not answer."""
    command = ["nvidia-smi", "-i", "0", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [*command, f"--query-gpu={','.join(fields)}"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.strip().splitlines() or [""]
    values = [value.strip() for value in lines[0].split(",")]
    return values if len(values) == len(fields) else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def conditions() -> dict:
    """The GPU's clocks in MHz, temperature in Celsius and power in watts, now. Only read."""
    names = ("sm_mhz", "memory_mhz", "celsius", "watts")
    answer = query("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
    if answer is None:
        return {}
    return dict(zip(names, map(_number, answer), strict=True))


def peaks(machine: dict, bus_bits: int | None) -> dict:
    """The rates that the GPU cannot pass: its units and its memory bus at their highest clocks.

    `bus_bits` is the width of the memory bus. Memory moves two words a clock and pin. A rate that
    is not known is absent.
    """
    found: dict = {}
    answer = query("clocks.max.sm", "clocks.max.mem")
    sm_mhz, memory_mhz = map(_number, answer) if answer else (None, None)
    if memory_mhz and memory_mhz > 0 and bus_bits:
        found["peak_bytes_per_second"] = memory_mhz * 1e6 * 2 * bus_bits / 8
    if sm_mhz and sm_mhz > 0 and machine["sm"] in FLOPS_PER_CLOCK:
        rates = FLOPS_PER_CLOCK[machine["sm"]]
        found["peak_flops_per_second"] = {
            unit: rate * machine["sms"] * sm_mhz * 1e6 for unit, rate in rates.items()
        }
    return found
