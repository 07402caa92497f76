"""GPUs as people and drivers name them: whether two names may mean one kind of device.

A driver says `NVIDIA H100 80GB HBM3`, a paper `H100 SXM5`: the same. `NVIDIA H100 PCIe` is another,
with less bandwidth, and so is an A100 with other memory. Where one of two names leaves something
open, it may mean the other.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MODEL = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]{1,3}\d{1,4}[A-Za-z]{0,2}|\d{4})(?![A-Za-z0-9])")
PART = re.compile(r"(?:HBM|SXM|OAM|DDR|CC|SM)\d\w*", re.IGNORECASE)  # no model, but looks like one
MEMORY = re.compile(r"(\d+) ?GB", re.IGNORECASE)
COUNT = re.compile(r"\s*(\d+) ?[x×*] ?(?=\D)")


class Kind(NamedTuple):
    """A device: its model, its form (SXM, PCIe, NVL) and its memory in GB, as far as named."""

    model: str
    form: str | None
    memory: int | None


def kind(name: str) -> Kind | None:
    """What one device of `name` is; None where no model is named, or several devices are."""
    if (several := COUNT.match(name)) and int(several[1]) != 1:
        return None
    plain = COUNT.sub("", name, count=1) if several else name
    models = [found for found in MODEL.findall(plain) if not PART.fullmatch(found)]
    if not models:
        return None
    memory = MEMORY.search(plain)
    return Kind(models[0].upper(), _form(plain.upper()), int(memory[1]) if memory else None)


def _form(name: str) -> str | None:
    if "PCIE" in name or "PCI-E" in name:
        return "PCIe"
    if re.search(r"\bNVL\b", name):
        return "NVL"
    # The driver names no form for an H100 SXM5, only its memory; the PCIe card has HBM2e.
    return "SXM" if "SXM" in name or re.search(r"\bH100\b.*\bHBM3\b", name) else None


def alike(one: str, other: str) -> bool:
    """Whether two names may mean the same kind of device."""
    first, second = kind(one), kind(other)
    if first is None or second is None or first.model != second.model:
        return False
    pairs = ((first.form, second.form), (first.memory, second.memory))
    return all(a is None or b is None or a == b for a, b in pairs)
