"""The page about papergpu shows what its commands printed, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import measured_figures
import pytest


def test_page_shows_what_is_kept() -> None:
    kept = json.loads(measured_figures.FILE.read_text(encoding="utf-8"))
    page = "".join(one.read_text(encoding="utf-8") for one in measured_figures.PAGES)
    assert (
        {mark[1] for mark in measured_figures.MARKS.findall(page)}
        == set(measured_figures.BLOCKS)
        == set(kept)
    )
    assert measured_figures.fill_marks(page, kept) == page


def test_every_figure_says_where_it_is_from() -> None:
    kept = json.loads(measured_figures.FILE.read_text(encoding="utf-8"))
    for part in kept.values():
        for one in part.values():
            assert {"date", "commit", "processor", "command"} <= one.keys()
            script = one["command"].split()[1]
            assert (measured_figures.ROOT / script).is_file(), script
            assert not one["commit"].endswith("+changes")


def test_what_is_recorded_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = tmp_path / "page.md", tmp_path / "page.json"
    blocks = "".join(
        f"\n<!-- figures: {name} -->\nold\n<!-- end of figures -->\n"
        for name in measured_figures.BLOCKS
    )
    page.write_text(f"before{blocks}after\n", encoding="utf-8")
    monkeypatch.setattr(measured_figures, "PAGES", [page])
    monkeypatch.setattr(measured_figures, "FILE", file)
    counts = {"passed": 1234, "skipped": 5, "explained": 6, "failed": 0}
    measured_figures.record_figures("triton", "sm_100", counts, "python tests/some.py")
    measured_figures.record_figures(
        "triton", "sm_80", {**counts, "passed": 7}, "python tests/some.py"
    )
    times = {"instructions": 3_000_000, "plain": 0.03, "counted": 0.06, "checked": 0.09}
    measured_figures.record_figures(
        "kernels", "all", {"of": {"add": times}}, "python tests/other.py"
    )
    measured_figures.record_figures(
        "speed", "building", {"rows": [["compiling", "40 s"]]}, "python tests/third.py"
    )
    counts = {"all": 3, "right": 3, "faults": 1, "kernels": 5}
    found = {"repositories": {"a/b": counts, "c/d": counts}}
    measured_figures.record_figures("operators", "all", found, "python tests/fourth.py")
    text = page.read_text(encoding="utf-8")
    assert "| a/b | 3 | 3 | 5 | 1 |" in text and "| all | 6 | 6 | 10 | 2 |" in text
    assert "| sm_80 | 18 | 7 | 5 | 6 | 0 |\n| sm_100 | 1,245 | 1,234 | 5 | 6 | 0 |" in text
    assert "| add | 100 | 50 | 33 | 2.00 | 3.00 |" in text
    assert "| compiling | 40&nbsp;s |" in text
    assert "Not run yet." in text  # of public kernels
    assert "old" not in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert f"{measured_figures.describe_processor()}, by `python tests/some.py`.\n" in text
    assert measured_figures.fill_marks(text, json.loads(file.read_text(encoding="utf-8"))) == text
