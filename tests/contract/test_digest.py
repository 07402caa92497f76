from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from warpshelf.contract import digest as digests

SNIPPET = '''"""An idea."""

import sys

from snippets import cuda
from snippets.tiles import near

'''
FILES = {
    "snippets/mine/mine.py": SNIPPET,
    "snippets/mine/mine.cu": "__global__ void mine() {}\n",
    "snippets/mine/cases.py": "from snippets.mine import mine\n",
    "snippets/mine/helper.py": "SIDE = 16\n",
    "snippets/cuda.py": "from snippets import fibers\n",
    "snippets/cuda.hpp": "struct dim3 {};\n",
    "snippets/fibers.py": "import snippets.deep.deeper\n",
    "snippets/tiles/near.py": "TILE = 32\n",
    "snippets/tiles/table.txt": "32\n",
    "snippets/deep/deeper.py": "DEPTH = 3\n",
    "snippets/other.py": "UNUSED = 1\n",
    "snippets/apart/apart.py": "from snippets.mine import mine\n",
    "scripts/warpshelf/verify.py": "RULES = 1\n",
    "torch.py": "NOT_TORCH = 1\n",
}
COUNTED = {
    "snippets/mine/mine.py",
    "snippets/mine/mine.cu",
    "snippets/mine/cases.py",
    "snippets/mine/helper.py",
    "snippets/cuda.py",
    "snippets/cuda.hpp",
    "snippets/fibers.py",
    "snippets/tiles/near.py",
    "snippets/tiles/table.txt",
    "snippets/deep/deeper.py",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


def digest(root: Path) -> str:
    return digests.of_folder(root, root / "snippets" / "mine")


def test_the_files_that_count(root: Path) -> None:
    found = digests.files(root, root / "snippets" / "mine")
    assert {path.relative_to(root).as_posix() for path in found} == COUNTED
    assert found == sorted(found)


def test_a_digest_is_stable_and_looks_like_one(root: Path) -> None:
    assert digest(root) == digest(root)
    assert digest(root).startswith("sha256:")
    assert len(digest(root)) == 71


@pytest.mark.parametrize("name", FILES)
def test_the_digest_changes_with_what_counts_and_nothing_else(root: Path, name: str) -> None:
    before = digest(root)
    (root / name).write_bytes(FILES[name].encode() + b" ")
    assert (digest(root) != before) is (name in COUNTED)


@pytest.mark.parametrize(
    "name",
    [
        "snippets/mine/results/cpu.json",
        "snippets/mine/__pycache__/mine.cpython-311.pyc",
        "snippets/mine/.mine.py.swp",
        "snippets/mine/.cache/x.py",
        "snippets/new/new.py",
        "docs/kernels/mine.md",
        "tests/snippets/test_mine.py",
        "tests/snippets/mutants/mine.yml",
    ],
)
def test_a_new_file_elsewhere_changes_nothing(root: Path, name: str) -> None:
    before = digest(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"new")
    assert digest(root) == before


@pytest.mark.parametrize("name", ["snippets/mine/mine.cuh", "snippets/cuda.inl"])
def test_a_new_file_beside_what_counts_changes_it(root: Path, name: str) -> None:
    before = digest(root)
    (root / name).write_bytes(b"new")
    assert digest(root) != before


def test_a_renamed_or_removed_file_changes_it(root: Path) -> None:
    seen = {digest(root)}
    helper = root / "snippets" / "mine" / "helper.py"
    helper.rename(helper.with_name("aide.py"))
    seen.add(digest(root))
    helper.with_name("aide.py").unlink()
    seen.add(digest(root))
    assert len(seen) == 3


def test_one_file_cannot_pass_for_two(root: Path) -> None:
    folder = root / "snippets" / "mine"
    (folder / "a.txt").write_bytes(b"one")
    (folder / "b.txt").write_bytes(b"two")
    before = digest(root)
    (folder / "b.txt").unlink()
    (folder / "a.txt").write_bytes(b"onesnippets/mine/b.txttwo")
    assert digest(root) != before


def test_line_ends_do_not_count(root: Path) -> None:
    before = digest(root)
    for name in COUNTED:
        text = FILES[name].replace("\n", "\r\n")
        assert "\r\n" in text
        (root / name).write_bytes(text.encode())
    assert digest(root) == before
    (root / "snippets" / "mine" / "mine.py").write_bytes(SNIPPET.replace("\n", "").encode())
    assert digest(root) != before


def test_another_method_is_another_digest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(root)
    monkeypatch.setattr(digests, "METHOD", digests.METHOD + 1)
    assert digest(root) != before


def test_the_place_of_the_checkout_does_not_count(root: Path, tmp_path_factory) -> None:
    elsewhere: Path = tmp_path_factory.mktemp("elsewhere") / "checkout"
    root.rename(elsewhere)
    there = digest(elsewhere)
    elsewhere.rename(root)
    assert there == digest(root)


@pytest.mark.parametrize(
    "statement",
    [
        "import snippets.other",
        "import snippets.other as o",
        "from snippets import other",
        "from snippets.other import UNUSED",
        "def late():\n    from snippets import other",
        "try:\n    from snippets import other\nexcept ImportError:\n    pass",
        "from snippets import (\n    fibers,\n    other,\n)",
    ],
)
def test_every_way_to_import_a_helper_is_seen(root: Path, statement: str) -> None:
    (root / "snippets" / "mine" / "mine.py").write_text(f"{statement}\n")
    before = digest(root)
    (root / "snippets" / "other.py").write_text("UNUSED = 2\n")
    assert digest(root) != before


def test_modules_may_import_each_other(root: Path) -> None:
    (root / "snippets" / "fibers.py").write_text("from snippets import cuda\n")
    assert digest(root).startswith("sha256:")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"def broken(:\n"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"x = 1\0"),
    ],
)
def test_a_file_that_is_no_python_counts_by_its_bytes(
    root: Path, spoil: Callable[[Path], object]
) -> None:
    before = digest(root)
    spoil(root / "snippets" / "fibers.py")
    assert digest(root) != before


def test_a_form_counts_only_where_it_is_imported(root: Path) -> None:
    """No record holds anything of it, so a form can change without a run."""
    form = root / "snippets" / "mine" / "calculator.py"
    before = digest(root)
    form.write_text("INPUTS = ()\n")
    assert digest(root) == before
    cases = root / "snippets" / "mine" / "cases.py"
    cases.write_text(
        "from snippets.mine import mine\nfrom snippets.mine.calculator import INPUTS\n"
    )
    imported = digest(root)
    assert imported != before
    form.write_text("INPUTS = (1,)\n")
    assert digest(root) != imported


def test_records_that_are_read_count(root: Path) -> None:
    cases = root / "snippets" / "mine" / "cases.py"
    cases.write_text(cases.read_text() + 'NEEDS = {"records": ["apart"]}\n')
    before = digest(root)
    kept = root / "snippets" / "apart" / "results" / "cpu.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    there = digest(root)
    kept.write_text('{"space": 1}')
    assert len({before, there, digest(root)}) == 3


@pytest.mark.parametrize("needs", ["{", "f()", "3", '{"records": 7}', '{"records": [["a"]]}'])
def test_needs_that_are_malformed_have_a_digest(root: Path, needs: str) -> None:
    cases = root / "snippets" / "mine" / "cases.py"
    cases.write_text(f"NEEDS = {needs}\n")
    assert digest(root).startswith("sha256:")
