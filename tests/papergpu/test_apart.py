"""The package that is tested, here and in processes apart, and what such a process says."""

from __future__ import annotations

from pathlib import Path

import papergpu
import pytest
from apart import HERE, SCRIPTS, cases, outcomes, python, wrong


def test_the_package_is_never_the_folder_of_its_tests() -> None:
    assert Path(papergpu.__file__ or "").parent == SCRIPTS / "papergpu"
    done = python("-c", "import papergpu; print(papergpu.__file__)")
    assert done.stdout.strip() == str(SCRIPTS / "papergpu" / "__init__.py"), done.stderr
    assert not (HERE / "__init__.py").exists()


SCRIPT = """
import json, os, sys
from apart import cases, wrong

def case_right(word): pass
def case_wrong(word): raise ValueError(word)
def helper(): pass

if sys.argv[1] == "fail":
    sys.exit("it cannot go on")
print("something else")
print(json.dumps({name: wrong(globals()[name], sys.argv[1]) for name in cases(__file__)}))
"""


def test_what_is_wrong_comes_back_by_case(tmp_path: Path) -> None:
    path = tmp_path / "some_cases.py"
    path.write_text(SCRIPT)
    assert cases(str(path)) == ["case_right", "case_wrong"]
    found = outcomes(str(path), "mend it")
    assert found["case_right"] == "" and found["case_wrong"].endswith("ValueError: mend it\n")
    with pytest.raises(AssertionError, match="it cannot go on"):
        outcomes(str(path), "fail")


def test_an_interrupt_is_no_outcome() -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wrong(stopped)
