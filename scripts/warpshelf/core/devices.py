"""GPU names, as people and drivers write them, and what a device of a known model has.

A driver says `NVIDIA H100 80GB HBM3`, a paper `H100 SXM5`: the same. `NVIDIA H100 PCIe` is another,
with less bandwidth, and so is an A100 with other memory. Where one of two names leaves something
open, it may mean the other. A model that is not listed is held to what every GPU obeys.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MODEL = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]{1,3}\d{1,4}[A-Za-z]{0,2}|\d{4})(?![A-Za-z0-9])")
NO_MODEL = re.compile(r"(?:HBM|SXM|OAM|DDR|CC|SM)\d\w*", re.IGNORECASE)  # looks like one
MEMORY = re.compile(r"(\d+) ?GB", re.IGNORECASE)
# The driver names no form for an H100 SXM5, only its memory; the PCIe card has HBM2e.
FORMS = {
    "PCIe": re.compile(r"PCI-?E", re.IGNORECASE),
    "NVL": re.compile(r"\bNVL\b", re.IGNORECASE),
    "SXM": re.compile(r"SXM|\bH100\b.*\bHBM3\b", re.IGNORECASE),
}
COUNT = re.compile(r"\s*(\d+) ?[x×*] ?(?=\D)")


class DeviceKind(NamedTuple):
    """A device: its model, its form (SXM, PCIe, NVL) and its memory in GB, as far as named."""

    model: str
    form: str | None
    memory: int | None


def parse_device(name: str) -> DeviceKind | None:
    """What one device of `name` is; None where no model is named, or several devices are."""
    if (several := COUNT.match(name)) and int(several[1]) != 1:
        return None
    plain = COUNT.sub("", name, count=1) if several else name
    models = [found for found in MODEL.findall(plain) if not NO_MODEL.fullmatch(found)]
    if not models:
        return None
    memory = MEMORY.search(plain)
    form = next((name for name, said in FORMS.items() if said.search(plain)), None)
    return DeviceKind(models[0].upper(), form, int(memory[1]) if memory else None)


def same_device(one: str, other: str) -> bool:
    """Whether two names may mean the same kind of device."""
    first, second = parse_device(one), parse_device(other)
    if first is None or second is None or first.model != second.model:
        return False
    pairs = ((first.form, second.form), (first.memory, second.memory))
    return all(a is None or b is None or a == b for a, b in pairs)


# Compute capabilities that there are, from Pascal to Blackwell.
SM_VERSIONS = (60, 61, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121)
MOST_GPUS = 16  # of one machine that NVIDIA has built, the HGX-2
MOST_SMS = 192  # of a whole GB202, the largest die; two dies of a B200 have 160
MOST_MEGAHERTZ = 3600.0  # of SMs; GeForce boards say up to 3200
MOST_BYTES_PER_SECOND = 8.2e12  # of a B300
# In the name of a part of a GPU, MIG or virtual, which has less of everything.
PART = re.compile(r"\bMIG\b|\bGRID\b|-\d+[ABCQ]\b")


class ChipSpec(NamedTuple):
    """A model: its SM version, the most SMs, memory in GiB from least to most, bytes a second."""

    sm: int
    sms: int
    least_gib: float
    most_gib: float
    bytes_per_second: float


# From NVIDIA's data sheets. One name stands for several boards: an H100 for SXM, PCIe and NVL; the
# figures are those of the largest, and the least memory that of the smallest as a driver counts it.
CHIPS = {
    "P100": ChipSpec(60, 56, 11, 16, 7.32e11),
    "V100": ChipSpec(70, 80, 15, 32, 1.134e12),
    "T4": ChipSpec(75, 40, 14, 16, 3.2e11),
    "A100": ChipSpec(80, 108, 38, 80, 2.039e12),
    "A800": ChipSpec(80, 108, 38, 80, 2.039e12),
    "A30": ChipSpec(80, 56, 22, 24, 9.33e11),
    "A10": ChipSpec(86, 72, 21, 24, 6.0e11),
    "A10G": ChipSpec(86, 80, 21, 24, 6.0e11),
    "A40": ChipSpec(86, 84, 43, 48, 6.96e11),
    "A6000": ChipSpec(86, 84, 43, 48, 7.68e11),
    "3090": ChipSpec(86, 84, 22, 24, 1.008e12),
    "L4": ChipSpec(89, 60, 21, 24, 3.0e11),
    "L40": ChipSpec(89, 142, 43, 48, 8.64e11),
    "L40S": ChipSpec(89, 142, 43, 48, 8.64e11),
    "4090": ChipSpec(89, 128, 15, 24, 1.008e12),
    "H20": ChipSpec(90, 132, 92, 144, 4.8e12),
    "H100": ChipSpec(90, 132, 62, 96, 3.9e12),
    "H800": ChipSpec(90, 132, 78, 96, 3.9e12),
    "H200": ChipSpec(90, 132, 135, 144, 4.8e12),
    "GH200": ChipSpec(90, 132, 92, 144, 4.9e12),
    "B200": ChipSpec(100, 160, 172, 192, 8.0e12),
    "GB200": ChipSpec(100, 160, 180, 192, 8.0e12),
    "B300": ChipSpec(103, 160, 255, 288, 8.0e12),
    "GB300": ChipSpec(103, 160, 255, 288, 8.0e12),
    "5090": ChipSpec(120, 170, 22, 32, 1.792e12),
}


def find_chip(device: str) -> ChipSpec | None:
    """What is known of a device by its name; None where its model is not listed."""
    found = parse_device(device)
    return CHIPS.get(found.model) if found else None
