"""What the fork server imports before its children, and nothing that a fork would break."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
LOOK = """
import os, sys, threading
{before}
import warpshelf.worker.preload
import torch
found = [one for one in ("torch._dynamo", "triton", "papergpu.triton") if sys.modules.get(one)]
print(found, os.environ["TRITON_INTERPRET"],
      torch.cuda.is_initialized(), threading.active_count())
"""


def import_preload(before: str = "") -> str:
    """What stands in a process that has imported it."""
    return subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.strip()


@pytest.mark.exhaustive("all that is loaded ahead, in a process of its own")
def test_the_compilers_are_there_and_the_gpu_is_untouched() -> None:
    assert import_preload() == "['torch._dynamo', 'triton', 'papergpu.triton'] 0 False 1"


@pytest.mark.exhaustive("a process for each compiler that may be missing")
def test_what_is_missing_is_done_without() -> None:
    assert import_preload("sys.modules['triton'] = None") == "['torch._dynamo'] 0 False 1"
    assert (
        import_preload("sys.modules['torch._dynamo'] = sys.modules['triton'] = None")
        == "[] 0 False 1"
    )
