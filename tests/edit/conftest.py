"""A project with readings, to add one to."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading_project import make_project


@pytest.fixture
def reading_root(tmp_path: Path) -> Path:
    return make_project(tmp_path)
