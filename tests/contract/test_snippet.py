"""What the contract asks of a snippet's source, read without running it."""

from __future__ import annotations

import errno
import os
import re
import textwrap
from pathlib import Path

import pytest
from conftest import CUT, new_trial, sound_snippet, write_snippet
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.contract.snippet import (
    NEEDED,
    SECTIONS,
    Snippet,
    discover_snippets,
    read_snippet,
    split_docstring,
)
from warpshelf.core.project import Project

PROGRAM = '''"""Averaging over ranks.

Error   exact
Raises  nothing
Source  a-paper, a-post
"""

import torch


def demo(device):
    print(torch.ones(1))


if __name__ == "__main__":
    demo("cpu")
# ---- cases.py ----
def facts():
    return []
'''
MODEL = (
    PROGRAM.replace("import torch", "import math")
    .replace("torch.ones(1)", "math.pi")
    .replace("demo(device)", "demo()")
    .replace('demo("cpu")', "demo()")
)
ONE_LINE = re.compile(r"snippets/given/(given|cases)\.(py|cu)(:\d+)?: [^\n]+; [^\n]+")


@pytest.fixture
def bare_project(tmp_path: Path) -> Project:
    return Project(new_trial(tmp_path / "trial").root)


def read_given(project: Project, text: str | bytes, name: str = "given") -> Snippet:
    folder = project.snippets / name
    write_snippet(folder, PROGRAM if isinstance(text, bytes) else text)
    if isinstance(text, bytes):
        (folder / f"{name}.py").write_bytes(text)
    return read_snippet(project, folder)


def list_findings(project: Project, text: str | bytes) -> list[str]:
    """What is found wrong, each as its line; none may span two, or lack a place or a mend."""
    found = [str(finding) for finding in read_given(project, text).findings]
    for line in found:
        assert ONE_LINE.fullmatch(line), line
    return found


def remove_name(name: str) -> str:
    """The sound snippet without one of its names."""
    text = re.sub(rf"^def {name}\(.*?(?=^\S|\Z)", "", sound_snippet(), flags=re.M | re.S)
    text = re.sub(rf"^{name} = \(\n.*?^\)\n", "", text, flags=re.M | re.S)
    return re.sub(rf"^{name} = .*\n", "", text, flags=re.M)


def find_line(text: str, start: str) -> int:
    """The line that begins with `start`, in its file of the two that `text` holds."""
    for part in text.split(CUT):
        for number, line in enumerate(part.splitlines(), 1):
            if line.startswith(start):
                return number
    raise AssertionError(f"no line begins with {start}")


@pytest.mark.parametrize(
    ("text", "kind"), [(sound_snippet(), "kernel"), (PROGRAM, "program"), (MODEL, "model")]
)
def test_the_kinds_are_told_apart_by_what_they_define(
    bare_project: Project, text: str, kind: str
) -> None:
    found = read_given(bare_project, text)
    assert (found.findings, found.kind) == ((), kind)
    assert found.wants_gpu == (kind == "kernel")
    assert found.seconds == (20 if kind == "kernel" else 120)


def test_title_sections_and_readings_come_from_the_docstring(bare_project: Project) -> None:
    found = read_given(bare_project, PROGRAM)
    assert found.title == "Averaging over ranks."
    assert found.sections == {"Error": "exact", "Raises": "nothing", "Source": "a-paper, a-post"}
    assert found.readings == ("a-paper", "a-post")


@pytest.mark.parametrize("imports", ["import triton", "import triton.language as tl"])
def test_triton_is_seen_by_its_import(bare_project: Project, imports: str) -> None:
    text = sound_snippet().replace("import torch\n", f"import torch\n{imports}\n", 1)
    assert read_given(bare_project, text).uses_triton
    assert not read_given(bare_project, sound_snippet(), "plain").uses_triton
    (bare_project.snippets / "plain" / "tiles.py").write_text(f'"""Tiles."""\n\n{imports}\n')
    found = read_snippet(bare_project, bare_project.snippets / "plain")
    assert found.uses_triton and [path.name for path in found.modules] == ["tiles.py"]


def test_a_cuda_file_is_seen_beside_the_module(bare_project: Project) -> None:
    found = read_given(bare_project, sound_snippet())
    assert found.cuda_path is None and not found.has_cuda
    (found.folder / "other.cu").write_text("")  # which its wrapper launches as well
    assert found.cuda_path is None and found.has_cuda
    (found.folder / "given.cu").write_text("")
    assert found.cuda_path == found.folder / "given.cu"


@pytest.mark.parametrize("name", NEEDED["kernel"])
def test_each_missing_name_of_a_kernel_is_told(bare_project: Project, name: str) -> None:
    assert name in sound_snippet() and not re.search(rf"^(def )?{name}\b", remove_name(name), re.M)
    [line] = list_findings(bare_project, remove_name(name))
    assert f"given/cases.py: {name} is missing; " in line


@pytest.mark.parametrize("text", [PROGRAM, MODEL], ids=["program", "model"])
def test_each_missing_name_of_the_other_kinds_is_told(bare_project: Project, text: str) -> None:
    [line] = list_findings(bare_project, text.partition(CUT)[0] + CUT)
    assert "given/cases.py: facts is missing; " in line


@pytest.mark.parametrize(
    "text", [sound_snippet(), PROGRAM, MODEL], ids=["kernel", "program", "model"]
)
def test_a_missing_demo_is_told(bare_project: Project, text: str) -> None:
    cut = re.sub(r"^def demo\(.*?(?=^\S)", "", text, flags=re.M | re.S)
    [line] = list_findings(bare_project, cut)
    assert "given/given.py: demo is missing; add `def demo(" in line
    assert ("demo(device)" in line) == (text != MODEL)


@pytest.mark.parametrize("missing", ["given.py", "cases.py"])
def test_both_files_must_be_there(bare_project: Project, missing: str) -> None:
    folder = read_given(bare_project, sound_snippet()).folder
    (folder / missing).unlink()
    [found] = read_snippet(bare_project, folder).findings
    assert str(found).startswith(f"snippets/given/{missing}: is missing; ")


def test_a_file_that_cannot_be_opened_is_not_called_missing(bare_project: Project) -> None:
    folder = read_given(bare_project, sound_snippet()).folder
    (folder / "cases.py").unlink()
    (folder / "cases.py").symlink_to("cases.py")
    [found] = read_snippet(bare_project, folder).findings
    assert f"cases.py: cannot be read ({os.strerror(errno.ELOOP)}); make it" in str(found)
    (folder / "cases.py").unlink()
    (folder / "cases.py").mkdir()
    [found] = read_snippet(bare_project, folder).findings
    assert "cases.py: is missing; " in str(found)


PROOF_NAMES = ["CASES", "TIMED", "COUNTED", "inputs", "reference", "VARIANTS", "PEERS", "cost",
               "facts", "predictions", "GOALS", "TOLERANCE", "LIMITS", "NEEDS"]  # fmt: skip


@pytest.mark.parametrize("name", PROOF_NAMES)
def test_what_verifies_does_not_stand_in_the_snippet(bare_project: Project, name: str) -> None:
    text = sound_snippet().replace("def demo(", f"{name} = 3\n\n\ndef demo(", 1)
    [line] = list_findings(bare_project, text)
    assert line.startswith(f"snippets/given/given.py:{find_line(text, f'{name} = 3')}: ")
    assert f"{name} belongs in cases.py; move it there" in line


def test_goals_without_predictions_are_told(bare_project: Project) -> None:
    text = f"{MODEL}\n\nGOALS = ()\n"
    [line] = list_findings(bare_project, text)
    assert "given/cases.py:" in line and "GOALS has no predictions to judge; add `def" in line
    assert list_findings(bare_project, f"{text}\n\ndef predictions():\n    return []\n") == []
    [line] = list_findings(bare_project, f"{MODEL}\n\npredictions = 3\n")
    assert "predictions is not a function; define it with `def predictions`" in line


def test_a_demo_among_the_cases_is_told(bare_project: Project) -> None:
    [line] = list_findings(bare_project, f"{sound_snippet()}\n\ndef demo(device):\n    pass\n")
    assert "given/cases.py:" in line and "demo belongs in given.py; move it there" in line


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (PROGRAM, "demo(device)", "demo()", "does not take one argument, the device; write `def"),
        (PROGRAM, "demo(device)", "demo(a, b)", "does not take one argument, the device"),
        (MODEL, "def demo()", "def demo(device)", "does not take no argument; write `def demo():`"),
    ],
)
def test_a_demo_takes_the_device_but_a_models(
    bare_project: Project, text: str, old: str, new: str, says: str
) -> None:
    changed = text.replace(old, new)
    [line] = list_findings(bare_project, changed)
    assert f"given.py:{find_line(changed, 'def demo')}: demo {says}" in line


@pytest.mark.parametrize(
    ("imported", "kind"),
    [
        ("import math", "model"),
        ("import torch", "program"),
        ("from snippets.missing import missing", "model"),  # which check tells elsewhere
    ],
)
def test_what_imports_models_alone_is_a_model(
    bare_project: Project, imported: str, kind: str
) -> None:
    read_given(bare_project, MODEL.replace("import math", imported, 1), "other")
    text = MODEL.replace("import math", "import math\n\nfrom snippets.other import other")
    assert read_given(bare_project, text).kind == kind


@pytest.mark.parametrize("name", ["given.py", "given.cu", "cases.py"])
def test_a_line_too_wide_to_be_shown_is_told(bare_project: Project, name: str) -> None:
    folder = read_given(bare_project, sound_snippet()).folder
    path = folder / name
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}# {'x' * 86}\n# {'x' * 87}\n")
    [found] = read_snippet(bare_project, folder).findings
    number = before.count("\n") + 2
    assert str(found) == f"snippets/given/{name}:{number}: is 89 columns wide; keep it to 88"


@pytest.mark.parametrize("file", ["given.py", "cases.py"])
def test_the_path_is_left_alone(bare_project: Project, file: str) -> None:
    folder = read_given(bare_project, PROGRAM).folder
    path = folder / file
    path.write_text(f"{path.read_text()}\n\nimport sys\n\nsys.path.insert(0, '')\n")
    [found] = read_snippet(bare_project, folder).findings
    assert f"{file}:{len(path.read_text().splitlines())}: changes sys.path; " in str(found)


def test_places_are_of_the_file_that_speaks_for_the_name(bare_project: Project) -> None:
    found = read_given(bare_project, sound_snippet())
    assert found.places["demo"] == ("given.py", find_line(sound_snippet(), "def demo"))
    assert found.places["VARIANTS"] == ("cases.py", find_line(sound_snippet(), "VARIANTS ="))


@pytest.mark.parametrize("name", ["inputs", "reference", "cost"])
@pytest.mark.parametrize("value", ["3", "lambda *a: None", "None"])
def test_a_name_that_is_no_function_is_told_with_its_line(
    bare_project: Project, name: str, value: str
) -> None:
    text = f"{remove_name(name)}\n\n{name} = {value}\n"
    [line] = list_findings(bare_project, text)
    assert f"cases.py:{find_line(text, f'{name} =')}: {name} is not a function; " in line


def test_a_class_or_a_coroutine_is_no_function_either(bare_project: Project) -> None:
    [line] = list_findings(bare_project, PROGRAM.replace("def demo(", "async def demo("))
    assert "demo is not a function; define it with `def demo`" in line


@pytest.mark.parametrize("name", ["Shapes", "FLOPs", "Error", "Raises", "Source"])
def test_each_missing_section_is_told(bare_project: Project, name: str) -> None:
    text = re.sub(rf"^{name} .*\n", "", sound_snippet(), flags=re.M)
    [line] = list_findings(bare_project, text)
    wanted = {"FLOPs": "Bytes"}.get(name, name)
    assert f"given.py:1: the docstring has no {wanted} section; add a line `{wanted}" in line


def test_bytes_stand_for_flops_and_shapes_are_for_kernels(bare_project: Project) -> None:
    assert list_findings(bare_project, sound_snippet().replace("FLOPs ", "Bytes ")) == []
    assert read_given(bare_project, PROGRAM, "other").findings == ()


def test_a_docstring_is_one_sentence_first(bare_project: Project) -> None:
    [line] = list_findings(bare_project, PROGRAM.replace("ranks.\n", "ranks\n", 1))
    assert "given.py:1: the docstring's first line is not one sentence; end it with a full" in line


def test_no_docstring_is_one_finding(bare_project: Project) -> None:
    text = PROGRAM.partition('"""\n\nimport')[2]
    [line] = list_findings(bare_project, f"import{text}")
    assert "given.py:1: has no docstring; open with the idea" in line


NEEDS = [
    ("[]", "NEEDS is not a literal dict"),
    ("dict(sm=90)", "NEEDS is not a literal dict"),
    ('{"sm": 45 + 45}', "NEEDS is not a literal dict"),
    ('{"sm": [90, "100"]}', "NEEDS.sm is [90, '100'], not one of 90, [90, 100]"),
    ('{"sm": "90-80"}', "NEEDS.sm is '90-80'"),
    ("None", "NEEDS is not a literal dict"),
    ('{"sms": 90}', "unknown key 'sms'; known are sm, cpu, why, gpus, seconds, variants"),
    ("{3: 4}", "unknown key 3"),
    ('{"sm": "90"}', "NEEDS.sm is '90'"),
    ('{"sm": True}', "NEEDS.sm is True"),
    ('{"gpus": 1.5}', "NEEDS.gpus is 1.5"),
    ('{"seconds": "20"}', "NEEDS.seconds is '20'"),
    ('{"seconds": 0}', "NEEDS.seconds is 0, not from 1 to 3600"),
    ('{"seconds": -5}', "NEEDS.seconds is -5"),
    ('{"seconds": 3601}', "NEEDS.seconds is 3601"),
    ('{"seconds": 1e999}', "NEEDS.seconds is inf"),
    ('{"cpu": True}', "NEEDS.cpu is True, not a reason"),
    ('{"cpu": 3}', "NEEDS.cpu is 3, not a reason"),
    ('{"cpu": ""}', "NEEDS.cpu is '', not a reason"),
    ('{"cpu": " \\n"}', "not a reason"),
    ('{"modules": []}', "NEEDS.modules is [], not a list of names"),
    ('{"modules": ["a b"]}', "NEEDS.modules is ['a b'], not a list of names"),
    ('{"modules": "scipy"}', "NEEDS.modules is 'scipy'"),
    ('{"records": [3]}', "NEEDS.records is [3], not a list of names"),
    ('{"variants": ["product"]}', "NEEDS.variants is not an object"),
    ('{"variants": {"product": 90}}', "NEEDS.variants.product is not an object"),
    ('{"variants": {"product": {"gpus": 2}}}', "NEEDS.variants.product has the unknown key 'gpus'"),
    ('{"variants": {"product": {"sm": "90"}}}', "NEEDS.variants.product.sm is '90'"),
    ('{"variants": {"product": {"cpu": 1}}}', "NEEDS.variants.product.cpu is 1"),
    ('{"variants": {"product": {"cpu": ""}}}', "NEEDS.variants.product.cpu is ''"),
    ('{"sm": 90, "why": ""}', "NEEDS.why is '', not a reason"),
    ('{"sm": 90, "why": 3}', "NEEDS.why is 3, not a reason"),
    ('{"why": "wgmma"}', "NEEDS has 'why' without 'sm'; add the sm that it explains"),
    ('{"variants": {"product": {"why": "x"}}}', "NEEDS.variants.product has 'why' without 'sm'"),
    ('{"language": {"sm": 80}}', "unknown key 'language'"),
]


@pytest.mark.parametrize(("value", "says"), NEEDS)
def test_needs_are_literal_and_known(bare_project: Project, value: str, says: str) -> None:
    text = re.sub(r"^NEEDS = .*$", lambda _: f"NEEDS = {value}", sound_snippet(), flags=re.M)
    [line] = list_findings(bare_project, text)
    assert f"cases.py:{find_line(text, 'NEEDS =')}: " in line
    assert says in line


def test_all_that_is_wrong_with_needs_is_told_at_once(bare_project: Project) -> None:
    value = '{"gpus": "2", "why": "x", "z": 1, "variants": {"a": {2: 2}, "c": {"why": ""}}}'
    text = re.sub(r"^NEEDS = .*$", f"NEEDS = {value}", sound_snippet(), flags=re.M)
    assert [line.partition(": ")[2] for line in list_findings(bare_project, text)] == [
        "NEEDS.gpus is '2'; fix it",
        "NEEDS has the unknown key 'z'; known are sm, cpu, why, gpus, seconds, variants, modules, "
        "records",
        "NEEDS has 'why' without 'sm'; add the sm that it explains",
        "NEEDS.variants.a has the unknown key 2; known are sm, cpu, why",
        "NEEDS.variants.c.why is '', not a reason; fix it",
        "NEEDS.variants.c has 'why' without 'sm'; add the sm that it explains",
    ]


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        '{"seconds": 0.5}',
        '{"seconds": 3600, "sm": 90, "gpus": 2, "cpu": "no host execution"}',
        '{"variants": {"product": {"sm": 90, "cpu": "why"}, "torch": {}}}',
        '{"sm": ">=80", "variants": {"product": {"sm": [90, 100]}}}',
    ],
)
def test_sound_needs_pass(bare_project: Project, value: str) -> None:
    text = re.sub(r"^NEEDS = .*$", f"NEEDS = {value}", sound_snippet(), flags=re.M)
    assert list_findings(bare_project, text) == []


def test_what_a_snippet_needs_decides_where_it_runs(bare_project: Project) -> None:
    found = Snippet(
        bare_project, "given", bare_project.snippets / "given", needs={"sm": 90, "gpus": 2}
    )
    assert found.cannot_run(None, 0) == "needs a GPU"
    assert found.cannot_run(80, 2) == "needs SM 90; this GPU is SM 80"
    assert found.cannot_run(100, 2) == "needs SM 90; this GPU is SM 100"
    assert found.cannot_run(90, 1) == "needs 2 GPUs; this machine has 1"
    assert found.cannot_run(90, 2) is None
    told = Snippet(
        bare_project, "given", bare_project.snippets / "given", needs={"cpu": "no clusters"}
    )
    assert (told.cannot_run(None, 0), told.cannot_run(80, 1)) == ("no clusters", None)
    interpreted = Snippet(bare_project, "given", bare_project.snippets / "given", needs={"sm": 90})
    assert interpreted.cannot_run(None, 0) is None


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("import warpshelf", "imports the tooling"),
        ("import warpshelf.units", "imports the tooling"),
        ("from warpshelf import units", "imports the tooling"),
        ("def late():\n    import warpshelf.units as u\n    return u", "imports the tooling"),
        ("import cuda", "imports the top-level `cuda`; write `from snippets import cuda`"),
        ("from cuda import Source", "imports the top-level `cuda`"),
    ],
)
def test_forbidden_imports_are_told_with_their_line(
    bare_project: Project, statement: str, says: str
) -> None:
    text = PROGRAM.replace("import torch\n", f"import torch\n{statement}\n", 1)
    found = list_findings(bare_project, text)
    assert found and all(says in line for line in found)
    place = next(
        n for n, line in enumerate(text.splitlines(), 1) if re.search("warpshelf|cuda", line)
    )
    assert all(f"given.py:{place}: " in line for line in found)


@pytest.mark.parametrize("statement", ["from snippets import cuda", "import cuda.core"])
def test_the_allowed_imports_pass(bare_project: Project, statement: str) -> None:
    assert (
        list_findings(
            bare_project, PROGRAM.replace("import torch\n", f"import torch\n{statement}\n")
        )
        == []
    )


def test_a_snippet_that_does_nothing_when_run_is_told(bare_project: Project) -> None:
    head, _, tail = PROGRAM.partition("\n\nif __name__")
    [line] = list_findings(bare_project, head + "\n" + CUT + tail.partition(CUT)[2])
    assert "does nothing when run; end with `if __name__" in line


@pytest.mark.parametrize("name", ["Given", "2d", "_given", "a-b", "a b", "\u00e9tude", "a.b"])
def test_bad_folder_names_are_told(bare_project: Project, name: str) -> None:
    (bare_project.snippets / name).mkdir()
    [found] = [one for one in discover_snippets(bare_project) if one.id == name]
    [line] = map(str, found.findings)
    assert line == (
        f"snippets/{name}/{name}.py: {name!r} is not a snippet id; "
        "name the folder with small letters, digits and underscores, a letter first"
    )


@pytest.mark.parametrize("name", ["torch", "random", "class", "readings", "home", "cuda"])
def test_a_name_with_another_meaning_is_told(bare_project: Project, name: str) -> None:
    [line] = map(str, read_given(bare_project, PROGRAM, name).findings)
    assert line == (f"snippets/{name}/{name}.py: {name!r} is a reserved name; choose another id")


def test_a_missing_module_is_told(bare_project: Project) -> None:
    folder = read_given(bare_project, PROGRAM).folder
    (folder / "given.py").rename(folder / "other.py")
    [found] = discover_snippets(bare_project)
    [line] = map(str, found.findings)
    assert line == "snippets/given/given.py: is missing; name the snippet's module given.py"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def demo(:\n", ":1: is not valid Python: "),
        ("import os\nx = (\n", ":2: is not valid Python: "),
        ("x = 1\0\n", ": is not valid Python: "),
        (b'"""caf\xe9."""\n', ": is not UTF-8 at byte 6; save the file as UTF-8"),
        (f"x = {'-' * 100_000}1\n", ": is not valid Python: "),
        (f"x = {'(' * 1000}\n", ": is not valid Python: "),
    ],
    ids=["syntax", "end", "nul", "latin", "deep", "nested"],
)
def test_what_is_no_python_is_told_and_harms_no_other(
    bare_project: Project, text: str | bytes, says: str
) -> None:
    read_given(bare_project, PROGRAM, "sound")
    whole = text if isinstance(text, bytes) else text + CUT + PROGRAM.partition(CUT)[2]
    [line] = list_findings(bare_project, whole)
    assert says in line
    assert [bool(one.findings) for one in discover_snippets(bare_project)] == [True, False]


def test_hostile_values_stay_on_one_line(bare_project: Project) -> None:
    text = f'{PROGRAM}\n\nNEEDS = {{"a\\n\\x1b[2Jb": 1}}\n'
    [line] = list_findings(bare_project, text)
    assert "\x1b" not in line


def test_hidden_folders_are_no_snippets(bare_project: Project) -> None:
    for name in (".git", "__pycache__"):
        (bare_project.snippets / name).mkdir()
    (bare_project.snippets / "cuda.py").write_text("")
    assert discover_snippets(bare_project) == []


@given(st.text())
def test_any_text_splits(text: str) -> None:
    title, sections = split_docstring(text)
    assert "\n" not in title
    assert set(sections) <= set(SECTIONS)


WORDS = st.text("abcxyz09(),*/-> ", min_size=1, max_size=30).map(str.strip).filter(bool)
PARTS = st.dictionaries(st.sampled_from(SECTIONS), st.lists(WORDS, min_size=1, max_size=3))


@given(WORDS, PARTS)
def test_sections_come_back_as_written(title: str, parts: dict[str, list[str]]) -> None:
    body = [
        f"{name:<7} {line}" if index == 0 else textwrap.indent(line, " " * 8)
        for name, rows in parts.items()
        for index, line in enumerate(rows)
    ]
    text = f"{title}.\n\n" + "\n".join(body) + "\n"
    found, sections = split_docstring(text)
    assert found == " ".join(f"{title}.".split())
    assert sections == {name: "\n".join(rows) for name, rows in parts.items()}


def test_prose_between_sections_belongs_to_none() -> None:
    text = "A title.\n\nShapes  x\nA remark.\n        of two lines\nError   e\n\n\nRaises  r\n"
    assert split_docstring(text)[1] == {"Shapes": "x", "Error": "e", "Raises": "r"}
