"""What a file says, read without running it, and the digest of what decides its results."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from warpshelf.contract import digest as digests
from warpshelf.contract import syntax

ROOT = Path(__file__).parents[2]

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
    "snippets/deep/deeper.py",
}


@pytest.fixture
def checkout_root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


def digest_mine(root: Path) -> str:
    return digests.folder_digest(root, root / "snippets" / "mine")


def test_the_files_that_count(checkout_root: Path) -> None:
    found = digests.dependency_files(checkout_root, checkout_root / "snippets" / "mine")
    # beside a module of another folder, a file counts where the module asks for its own place
    assert {path.relative_to(checkout_root).as_posix() for path in found} == COUNTED
    assert found == sorted(found)


def test_a_digest_is_stable_and_looks_like_one(checkout_root: Path) -> None:
    assert digest_mine(checkout_root) == digest_mine(checkout_root)
    assert digest_mine(checkout_root).startswith("sha256:")
    assert len(digest_mine(checkout_root)) == 71


CHANGED = {".py": b"\nprint()\n", ".cu": b"int more;\n", ".hpp": b"int more;\n", ".txt": b" "}


@pytest.mark.parametrize("name", FILES)
def test_the_digest_changes_with_what_counts_and_nothing_else(
    checkout_root: Path, name: str
) -> None:
    before = digest_mine(checkout_root)
    (checkout_root / name).write_bytes(FILES[name].encode() + CHANGED[Path(name).suffix])
    assert (digest_mine(checkout_root) != before) is (name in COUNTED)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("mine/mine.py", SNIPPET.replace("An idea", "Other words").replace("\n", "  # why\n\n", 3)),
        ("mine/mine.py", SNIPPET.replace("cuda", "(\n    cuda,\n)")),
        ("mine/mine.cu", "// A note.\n__global__ void\n  mine( ) { /* nothing */ }"),
        ("mine/cases.py", "from snippets.mine import (mine)\n'words'\npass"),
        ("mine/helper.py", "SIDE = (16)  # words"),
        ("cuda.hpp", "struct dim3\n{ };"),
        ("tiles/near.py", "TILE=32"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(
    checkout_root: Path, name: str, instead: str
) -> None:
    before = digest_mine(checkout_root)
    assert FILES[f"snippets/{name}"] != instead
    (checkout_root / "snippets" / name).write_text(instead)
    assert digest_mine(checkout_root) == before


@pytest.mark.parametrize("word", ["print(f.__doc__)", "import inspect\ninspect.getsource(f)"])
def test_where_a_file_can_tell_its_comments_they_count(checkout_root: Path, word: str) -> None:
    helper = checkout_root / "snippets" / "mine" / "helper.py"
    helper.write_text(f"{word}\n")
    seen = {digest_mine(checkout_root)}
    helper.write_text(f"{word}  # a note\n")
    seen.add(digest_mine(checkout_root))
    (checkout_root / "snippets" / "tiles" / "near.py").write_text("TILE = 32  # a note\n")
    assert len({*seen, digest_mine(checkout_root)}) == 3


def test_what_a_file_that_can_tell_its_comments_imports_counts_as_well(checkout_root: Path) -> None:
    text = SNIPPET + "\nfrom snippets.other import UNUSED\nprint(__doc__, UNUSED)\n"
    (checkout_root / "snippets" / "mine" / "mine.py").write_text(text)
    before = digest_mine(checkout_root)
    (checkout_root / "snippets" / "other.py").write_text("UNUSED = 2\n")
    assert digest_mine(checkout_root) != before


def test_all_of_a_package_that_is_passed_around_counts(checkout_root: Path) -> None:
    text = SNIPPET + "\nfrom snippets import deep\nprint(getattr(deep, 'more', None))\n"
    (checkout_root / "snippets" / "mine" / "mine.py").write_text(text)
    more = checkout_root / "snippets" / "deep" / "more.py"
    more.write_text("MORE = 1\n")
    before = digest_mine(checkout_root)
    more.write_text("MORE = 2\n")
    assert digest_mine(checkout_root) != before


@pytest.mark.parametrize("text", ["int a = __LINE__;", "#define TEXT(x) #x\nauto s = TEXT(a);"])
def test_where_a_kernel_can_tell_its_layout_that_counts(checkout_root: Path, text: str) -> None:
    kernel = checkout_root / "snippets" / "mine" / "mine.cu"
    kernel.write_text(text)
    before = digest_mine(checkout_root)
    kernel.write_text(f"\n{text}")
    assert digest_mine(checkout_root) != before


SHARED = """\
from math import ceil as rounded

from snippets import fibers

SIDE = 4
TABLE = {"side": SIDE}
LOG: list[int] = []
FIRST, SECOND = 1, 2
print("at import")


def area(side: int = SIDE) -> int:
    return square(side)


def square(side):
    return rounded(side * side)


class Pair:
    def both(self):
        return fibers.twist, late()


def late():
    import snippets.deep.deeper as d
    return d.DEPTH


def log():
    LOG.append(1)


@area.register
def shown():
    pass


if __name__ == "__main__":
    log()
"""
# By what a snippet uses of it: the edits that make the snippet stale.
NAMED = {
    "area": {"SIDE", "square", "rounded", "shown", "rest"},
    "square": {"square", "rounded", "rest"},
    "TABLE": {"SIDE", "rest"},
    "SECOND": {"SECOND", "rest"},
    "Pair": {"Pair", "fibers", "deeper", "late", "rest"},
    "shown": {"SIDE", "square", "rounded", "shown", "rest"},
}
EDITS = {
    "SIDE": ("deep/shared.py", "SIDE = 4", "SIDE = 5"),
    "square": ("deep/shared.py", "side * side", "side**2"),
    "rounded": ("deep/shared.py", "ceil as", "floor as"),
    "shown": ("deep/shared.py", "    pass", "    return 1"),
    "rest": ("deep/shared.py", "at import", "otherwise"),
    "SECOND": ("deep/shared.py", "1, 2", "1, 3"),
    "Pair": ("deep/shared.py", "def both", "def each"),
    "late": ("deep/shared.py", "d.DEPTH", "-d.DEPTH"),
    "log": ("deep/shared.py", "append(1)", "append(2)"),
    "script": ("deep/shared.py", '"__main__":\n    log()', '"__main__":\n    print()'),
    "more": ("deep/shared.py", "class Pair:", "def more():\n    return SIDE\n\n\nclass Pair:"),
    "fibers": ("fibers.py", "twist = 1", "twist = 2"),
    "deeper": ("deep/deeper.py", "DEPTH = 3", "DEPTH = 4"),
}


@pytest.fixture
def shared_checkout(checkout_root: Path) -> Path:
    """A checkout with a module that a snippet shares, whose own file alone reaches others."""
    (checkout_root / "snippets" / "mine" / "cases.py").write_text("")
    (checkout_root / "snippets" / "deep" / "shared.py").write_text(SHARED)
    (checkout_root / "snippets" / "fibers.py").write_text("twist = 1\n")
    return checkout_root


def find_stale_edits(root: Path, use: str) -> set[str]:
    """Which edits make a snippet stale that says `use`."""
    (root / "snippets" / "mine" / "mine.py").write_text(use)
    before, found = digest_mine(root), set()
    for edit, (name, old, new) in EDITS.items():
        path = root / "snippets" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        if digest_mine(root) != before:
            found.add(edit)
        path.write_text(text)
    assert digest_mine(root) == before
    return found


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(
    "use",
    [
        "from snippets.deep.shared import {0}\n\n\ndef f():\n    return {0}",
        "from snippets.deep.shared import {0} as other\nprint(other)",
        "from snippets.deep import shared\nshared.{0}",
        "import snippets.deep.shared\nprint(snippets.deep.shared.{0}.x)",
        "import snippets.deep.shared as s\n\n\nclass C:\n    x: s.{0}",
        "def f():\n    from snippets.deep.shared import {0}\n    return {0}",
        "from snippets.deep.shared import {0}",
        "from ..deep.shared import {0}\nprint({0})",
    ],
)
def test_a_module_elsewhere_counts_by_the_names_that_are_used(
    shared_checkout: Path, name: str, use: str
) -> None:
    assert find_stale_edits(shared_checkout, use.format(name)) == NAMED[name]


@pytest.mark.parametrize(
    "use",
    [
        "from snippets.deep.shared import *",
        "from snippets.deep import shared",  # for what importing it does
        "from snippets.deep import shared\ngetattr(shared, name)",
        "from snippets.deep import shared\nf(shared)",
        "from snippets.deep.shared import unknown",
        "from snippets.deep.shared import LOG",  # which a function changes where it is
        "import importlib\nshared = importlib.import_module('snippets.deep.shared')",
    ],
)
def test_where_the_names_cannot_be_told_all_of_the_module_counts(
    shared_checkout: Path, use: str
) -> None:
    assert find_stale_edits(shared_checkout, use) == EDITS.keys()


@pytest.mark.parametrize(
    "more", ["def __getattr__(name):\n    return SIDE\n", "N = eval('area')\n"]
)
def test_a_module_that_finds_its_names_itself_counts_whole(
    shared_checkout: Path, more: str
) -> None:
    module = shared_checkout / "snippets" / "deep" / "shared.py"
    module.write_text(SHARED + more)
    use = "from snippets.deep.shared import square, N\nprint(square, N)"
    assert find_stale_edits(shared_checkout, use) == EDITS.keys()


def test_a_name_that_a_module_passes_on_leads_to_where_it_is_defined(shared_checkout: Path) -> None:
    near = shared_checkout / "snippets" / "tiles" / "near.py"
    near.write_text("from snippets.deep.shared import square as sq\n\n\ndef f():\n    return sq\n")
    assert (
        find_stale_edits(shared_checkout, "from snippets.tiles.near import sq\nprint(sq(1))")
        == NAMED["square"]
    )
    assert (
        find_stale_edits(shared_checkout, "from snippets.tiles.near import f\nprint(f())")
        == NAMED["square"]
    )


def test_a_package_that_is_passed_around_makes_all_files_count_by_their_bytes(
    checkout_root: Path,
) -> None:
    mine = checkout_root / "snippets" / "mine" / "mine.py"
    mine.write_text("import snippets.deep.deeper\nprint(snippets.deep.deeper, snippets)\n")
    before = digest_mine(checkout_root)
    mine.write_text(mine.read_text() + "# a note\n")
    assert digest_mine(checkout_root) != before


def test_files_beside_a_module_count_where_it_asks_for_its_place(checkout_root: Path) -> None:
    near = checkout_root / "snippets" / "tiles" / "near.py"
    near.write_text("from pathlib import Path\n\nTILE = 32\nTABLE = Path(__file__).parent\n")
    table = near.with_name("table.txt")
    for name, counts in (("TILE", False), ("TABLE", True)):
        use = f"from snippets.tiles.near import {name}\nprint({name})\n"
        (checkout_root / "snippets" / "mine" / "mine.py").write_text(use)
        before = digest_mine(checkout_root)
        table.write_text(table.read_text() + "64\n")
        assert (digest_mine(checkout_root) != before) is counts


@pytest.fixture
def shelf_copy(tmp_path: Path) -> Path:
    """A copy of the snippets that are on the shelf, without their records."""
    ignore = shutil.ignore_patterns("results", "__pycache__")
    shutil.copytree(ROOT / "snippets", tmp_path / "snippets", ignore=ignore)
    return tmp_path


def list_digests(root: Path) -> dict[str, str]:
    folders = sorted(path.parent for path in root.glob("snippets/*/cases.py"))
    return {folder.name: digests.folder_digest(root, folder) for folder in folders}


def test_an_edit_of_a_shared_file_makes_stale_what_uses_the_changed_name(shelf_copy: Path) -> None:
    before = list_digests(shelf_copy)
    assert len(before) > 70

    def find_stale_snippets(name: str, old: str, new: str) -> set[str]:
        path = shelf_copy / "snippets" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        now = list_digests(shelf_copy)
        path.write_text(text)
        return {name for name in before if now[name] != before[name]}

    assert (
        find_stale_snippets("facts.py", "def fact(", "def other(x):\n    return x\n\n\ndef fact(")
        == set()
    )
    assert (
        find_stale_snippets("tensor_maps.py", "def ", "def other(x):\n    return x\n\n\ndef ")
        == set()
    )
    assert find_stale_snippets("softmax/softmax.py", "\nimport", "\n# A note.\n\nimport") == set()
    assert find_stale_snippets("softmax/softmax.py", '"""', '"""Words. ') == set()
    assert find_stale_snippets("sgemm/sgemm.cu", "\n", "\n// A note.\n") == set()
    named = {
        path.parent.name
        for path in shelf_copy.glob("snippets/*/*.py")
        if path.name != "calculator.py" and "import fact\n" in path.read_text()
    }
    assert len(named) > 30
    assert find_stale_snippets("facts.py", '"unit": unit', '"unit": unit or "1"') == named
    users = find_stale_snippets("model_flops/model_flops.py", "def six_n(", "def six_n(*_, ")
    assert users >= {"model_flops", "profiling"}
    assert not users & {"training_time", "parallel_planner"}  # these use others of its functions


@pytest.mark.exhaustive("a figure of budgets.py")
def test_digests_of_all_snippets_are_quick_once_their_files_were_read(shelf_copy: Path) -> None:
    before = list_digests(shelf_copy)
    started = time.process_time()
    assert list_digests(shelf_copy) == before
    assert time.process_time() - started < 0.5


def test_the_order_of_sets_changes_no_digest(shelf_copy: Path) -> None:
    """Some modules of this one count whole after names of theirs did, or before."""
    folder = shelf_copy / "snippets" / "simulator"
    code = "import sys, pathlib; from warpshelf.contract import digest; "
    code += "print(digest.folder_digest(*map(pathlib.Path, sys.argv[1:])))"
    found = set()
    for seed in "12":
        known = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", code, str(shelf_copy), str(folder)]
        done = subprocess.run(words, env=known, capture_output=True, text=True, check=True)
        found.add(done.stdout.strip())
    assert found == {digests.folder_digest(shelf_copy, folder)}


def test_what_files_come_to_is_kept_and_what_is_damaged_is_made_anew(checkout_root: Path) -> None:
    before = digest_mine(checkout_root)
    kept = checkout_root / digests.KEPT
    lines = kept.read_text().splitlines()
    assert len(lines) == len(COUNTED)
    kept.write_text("\n".join((lines[0][:40], "[]", "[[], 1]", '["a", {}]', *lines[1:], "")))
    digests.cached_sources.cache_clear()
    assert digest_mine(checkout_root) == before
    assert len(kept.read_text().splitlines()) == len(lines) + 4
    kept.unlink()
    kept.mkdir()  # which cannot be written to
    digests.cached_sources.cache_clear()
    assert digest_mine(checkout_root) == before


def test_a_file_comes_to_the_same_under_every_python(tmp_path: Path) -> None:
    """Versions part f-strings unlike and give nodes other fields, of which none counts."""
    text = (
        "def f(a: int = 1, /, *b, c=None, **d) -> 'int':\n"
        "    return f'a{a!r:>{c}}' 'b' f'{{{b=}', {**d, 1e400: u'é'}, b''[...:2j], -1\n"
        "class C(A, b=1):\n    x: int\n"
    )
    made = digests.digest_source(tmp_path, text.encode(), ".py")
    assert made.whole == "82dea853d2a77778219b64c1fc2296e2"


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
def test_a_new_file_elsewhere_changes_nothing(checkout_root: Path, name: str) -> None:
    before = digest_mine(checkout_root)
    path = checkout_root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"new")
    assert digest_mine(checkout_root) == before


@pytest.mark.parametrize("name", ["snippets/mine/mine.cuh", "snippets/cuda.inl"])
def test_a_new_file_beside_what_counts_changes_it(checkout_root: Path, name: str) -> None:
    before = digest_mine(checkout_root)
    (checkout_root / name).write_bytes(b"new")
    assert digest_mine(checkout_root) != before


def test_a_renamed_or_removed_file_changes_it(checkout_root: Path) -> None:
    seen = {digest_mine(checkout_root)}
    helper = checkout_root / "snippets" / "mine" / "helper.py"
    helper.rename(helper.with_name("aide.py"))
    seen.add(digest_mine(checkout_root))
    helper.with_name("aide.py").unlink()
    seen.add(digest_mine(checkout_root))
    assert len(seen) == 3


def test_one_file_cannot_pass_for_two(checkout_root: Path) -> None:
    folder = checkout_root / "snippets" / "mine"
    (folder / "a.txt").write_bytes(b"one")
    (folder / "b.txt").write_bytes(b"two")
    before = digest_mine(checkout_root)
    (folder / "b.txt").unlink()
    (folder / "a.txt").write_bytes(b"onesnippets/mine/b.txttwo")
    assert digest_mine(checkout_root) != before


def test_line_ends_do_not_count(checkout_root: Path) -> None:
    before = digest_mine(checkout_root)
    for name in COUNTED:
        text = FILES[name].replace("\n", "\r\n")
        assert "\r\n" in text
        (checkout_root / name).write_bytes(text.encode())
    assert digest_mine(checkout_root) == before
    (checkout_root / "snippets" / "mine" / "mine.py").write_bytes(
        SNIPPET.replace("\n", "").encode()
    )
    assert digest_mine(checkout_root) != before


def test_another_method_is_another_digest(
    checkout_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest_mine(checkout_root)
    monkeypatch.setattr(digests, "METHOD", digests.METHOD + 1)
    assert digest_mine(checkout_root) != before


def test_the_place_of_the_checkout_does_not_count(checkout_root: Path, tmp_path_factory) -> None:
    elsewhere: Path = tmp_path_factory.mktemp("elsewhere") / "checkout"
    checkout_root.rename(elsewhere)
    there = digest_mine(elsewhere)
    elsewhere.rename(checkout_root)
    assert there == digest_mine(checkout_root)


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
def test_every_way_to_import_a_helper_is_seen(checkout_root: Path, statement: str) -> None:
    (checkout_root / "snippets" / "mine" / "mine.py").write_text(f"{statement}\n")
    before = digest_mine(checkout_root)
    (checkout_root / "snippets" / "other.py").write_text("UNUSED = 2\n")
    assert digest_mine(checkout_root) != before


def test_modules_may_import_each_other(checkout_root: Path) -> None:
    (checkout_root / "snippets" / "fibers.py").write_text("from snippets import cuda\n")
    assert digest_mine(checkout_root).startswith("sha256:")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"def broken(:\n"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"x = 1\0"),
    ],
)
def test_a_file_that_is_no_python_counts_by_its_bytes(
    checkout_root: Path, spoil: Callable[[Path], object]
) -> None:
    before = digest_mine(checkout_root)
    spoil(checkout_root / "snippets" / "fibers.py")
    assert digest_mine(checkout_root) != before


def test_a_form_counts_only_where_it_is_imported(checkout_root: Path) -> None:
    """No record holds anything of it, so a form can change without a run."""
    form = checkout_root / "snippets" / "mine" / "calculator.py"
    before = digest_mine(checkout_root)
    form.write_text("INPUTS = ()\n")
    assert digest_mine(checkout_root) == before
    cases = checkout_root / "snippets" / "mine" / "cases.py"
    cases.write_text(
        "from snippets.mine import mine\nfrom snippets.mine.calculator import INPUTS\n"
    )
    imported = digest_mine(checkout_root)
    assert imported != before
    form.write_text("INPUTS = (1,)\n")
    assert digest_mine(checkout_root) != imported


def test_records_that_are_read_count(checkout_root: Path) -> None:
    cases = checkout_root / "snippets" / "mine" / "cases.py"
    cases.write_text(cases.read_text() + 'NEEDS = {"records": ["apart"]}\n')
    before = digest_mine(checkout_root)
    kept = checkout_root / "snippets" / "apart" / "results" / "cpu.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    there = digest_mine(checkout_root)
    kept.write_text('{"space": 1}')
    assert len({before, there, digest_mine(checkout_root)}) == 3


@pytest.mark.parametrize("needs", ["{", "f()", "3", '{"records": 7}', '{"records": [["a"]]}'])
def test_needs_that_are_malformed_have_a_digest(checkout_root: Path, needs: str) -> None:
    cases = checkout_root / "snippets" / "mine" / "cases.py"
    cases.write_text(f"NEEDS = {needs}\n")
    assert digest_mine(checkout_root).startswith("sha256:")


def test_what_the_source_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        '\ufeff"""An idea."""\nimport math\nfrom os import path as p\nNEEDS = {"sm": 90}\n'
        "A, (B, C) = 1, (2, 3)\nD: int = 4\nif A:\n    E = 5\ndef f():\n    G = 6\n"
        'if __name__ == "__main__":\n    f()\n',
        encoding="utf-8",
    )
    parsed = syntax.parse_python(path)
    assert parsed.names == {
        "math": 2, "p": 3, "NEEDS": 4, "A": 5, "B": 5, "C": 5, "D": 6, "E": 7, "f": 9
    }  # fmt: skip
    assert parsed.functions.keys() == {"f"}
    assert {name: ast.unparse(parsed.find_value(name)) for name in ("NEEDS", "D")} == {
        "NEEDS": "{'sm': 90}", "D": "4"
    }  # fmt: skip
    assert parsed.find_value("G") is None
    assert syntax.standard_library_only(parsed.imports)
    path.write_text("import torch\nNEEDS = dict(sm=90)\n")
    parsed = syntax.parse_python(path)
    assert not syntax.standard_library_only(parsed.imports)


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        ("", {0}),
        ("device", {1}),
        ("device='cpu'", {0, 1}),
        ("a, /, b=1", {1, 2}),
        ("*all", {0, 1, 2, 3}),
        ("a, *, b", set()),
        ("a, *, b=2", {1}),
        ("**words", {0}),
    ],
)
def test_how_many_arguments_a_function_takes(
    tmp_path: Path, arguments: str, counts: set[int]
) -> None:
    (tmp_path / "f.py").write_text(f"def f({arguments}):\n    pass\n")
    parsed = syntax.parse_python(tmp_path / "f.py")
    assert {count for count in range(4) if parsed.accepts_count("f", count)} == counts


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import sys\nsys.path.insert(0, 'x')\n", 2),
        ("import sys\n\ndef f():\n    sys.path[:0] = ['x']\n", 4),
        ("from sys import path\n", 1),
        ("from sys import argv, path as p\n", 1),
        ("import sys\nprint(sys.argv)\n", None),
        ("from os import path\nprint(path.sep)\n", None),
        ("import os\nprint(os.path.sep)\n", None),
    ],
)
def test_a_change_of_the_path_is_seen(tmp_path: Path, text: str, line: int | None) -> None:
    (tmp_path / "f.py").write_text(text)
    assert syntax.parse_python(tmp_path / "f.py").changes_path == line
