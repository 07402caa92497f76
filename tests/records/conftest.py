"""Checkouts to put records in."""

from __future__ import annotations

from pathlib import Path

import pytest
from records_project import Checkout


@pytest.fixture
def new_checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def cpu_checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path).add_cpu_records()
