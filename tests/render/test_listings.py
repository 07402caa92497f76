"""Listings and the links below them: what a reader copies is the file, byte for byte."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import markdown
import pytest
from conftest import ROOT, exhaustive, snippets_of_the_shelf
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import CODE, CUDA

from warpshelf.core.project import Project
from warpshelf.records import store
from warpshelf.render import listings
from warpshelf.render.listings import Listing
from warpshelf.site import project_content

HOSTILE = [
    '--8<-- "/etc/passwd"',
    '  ;--8<-- "x.md"',
    "-8<- 'x'",
    "--8<--",
    ";;---8<---",
    "    --8<-- ",
    'x = 1  # --8<-- "not.md"',
    'print("--8<-- [start:kernel]")',
    "# ;--8<-- [end:a]",
    "a;b ;;--8<-- [START: q ] tail",
    "x -8<- [start:a] --8<-- [end:b]",
    '--8<-- "a\\"b"',
    "```",
    "~~~~",
    "`````",
    '=== "tab"',
    "??? note",
    "</code></pre><script>alert(1)</script>",
    "{: .x onclick=alert(1) }",
    "[^1]: x",
    "",
]


def read_shown_lines(fenced: str) -> str:
    """The lines of a fence as pymdownx.snippets leaves them."""
    md = markdown.Markdown(
        extensions=["pymdownx.snippets"],
        extension_configs={"pymdownx.snippets": {"check_paths": True}},
    )
    lines = md.preprocessors["snippet"].run(fenced.split("\n"))
    return "\n".join(lines[1:-1])


@pytest.mark.parametrize("line", HOSTILE)
def test_a_line_for_the_snippet_extension_is_shown_as_it_is(line: str) -> None:
    assert (
        read_shown_lines(listings.code_fence(f"a\n{line}\nb", "python", "x.py")) == f"a\n{line}\nb"
    )


PIECES = [
    "--8<--",
    "-8<-",
    ";",
    " ",
    "\t",
    '"x"',
    "'y'",
    "[start:a]",
    "[ End : b-1 ]",
    "#",
    "//",
    "-",
    "z",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), max_size=6))
def test_no_line_vanishes_changes_or_includes(lines: list[str]) -> None:
    kept = [line for line in lines if not listings.MARKER.fullmatch(line)]
    text = read_shown_lines(
        listings.code_fence("\n".join(["first", *lines, "last"]), "python", "x.py")
    )
    assert text == "\n".join(["first", *kept, "last"])


@given(st.text("`~a\n", max_size=60))
def test_the_fence_is_longer_than_any_inside(text: str) -> None:
    fenced = listings.code_fence(text, "python", "x.py")
    ticks = re.match("`+", fenced)
    assert ticks is not None
    inside = re.findall("`+", fenced[ticks.end() : -ticks.end()])
    assert ticks.end() >= 3 and fenced.endswith("\n" + ticks[0])
    assert all(len(run) < ticks.end() for run in inside)


def test_sections_are_found_and_their_marks_left_out() -> None:
    text = "a\n# --8<-- [start:kernel]\nb\n  # --8<-- [start:copy]\nc\n# --8<-- [end:copy]\n\n# --8<-- [end:kernel]\nd"  # noqa: E501
    assert listings.section_names(text) == ["kernel", "copy"]
    assert listings.extract_section(text, "kernel") == "b\nc"
    assert listings.extract_section(text, "copy") == "c"
    assert listings.extract_section(CUDA, "kernel").startswith("__global__")
    assert listings.extract_section(
        CODE.replace("\n", "\r\n"), "kernel"
    ) == listings.extract_section(CODE, "kernel")


def test_a_section_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no section 'copy', only kernel; mark it with"):
        listings.extract_section(CODE, "copy")
    assert listings.section_names("# [start:kernel]\n--8<-- [start:kernel] x") == []


def test_one_file_has_no_tab_and_two_have() -> None:
    one = listings.Listing("Triton", "python", "softmax.py", CODE)
    two = listings.Listing("CUDA C++", "cuda", "softmax.cu", CUDA)
    assert "===" not in listings.render_listings([one], "softmax", "kernel")
    both = listings.render_listings([one, two], "softmax", "kernel")
    assert both.count('=== "') == 2 and "```c++ " in both
    assert "===" not in listings.render_listings([one, two], "softmax", "kernel", folded=True)
    assert listings.render_listings([], "softmax", "kernel") == ""


def test_the_section_named_by_the_kind_opens_first_and_the_whole_file_is_folded() -> None:
    text = "# --8<-- [start:a]\nfirst\n# --8<-- [end:a]\n# --8<-- [start:kernel]\nsecond\n"
    marked = Listing("x", "python", "x.py", text)
    opened, fold = listings.render_listing(marked, "x", "kernel").split("???")
    assert "second" in opened and "first" not in opened
    assert "All of x.py, 5 lines" in fold and "[x.py](/sources/x/x.py)" in fold
    opened, _ = listings.render_listing(marked, "x", "model").split("???")
    assert "first" in opened
    plain = Listing("x", "python", "x.py", "plain = 1")
    assert "???" not in listings.render_listing(plain, "x", "kernel")


def test_a_step_is_the_difference_of_two_sections() -> None:
    text = (
        "# --8<-- [start:naive]\ndef sum(x):\n    return x\n# --8<-- [end:naive]\n"
        "# --8<-- [start:tiled]\ndef sum(x):\n    return x + 1\n# --8<-- [end:tiled]\n"
    )
    code = [Listing("x", "python", "x.py", text)]
    assert listings.render_step(code, "naive", "tiled") == (
        '```diff title="from naive to tiled"\n def sum(x):\n-    return x\n+    return x + 1\n```\n'
    )
    with pytest.raises(ValueError, match="no section 'shared'"):
        listings.render_step(code, "naive", "shared")


class Rison:
    """Reads Rison as its grammar has it: https://github.com/Nanonid/rison."""

    WORDS = {"!t": True, "!f": False, "!n": None}

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def read_value(self) -> Any:
        if self.text.startswith("!(", self.at):
            self.at += 2
            return self.read_items(lambda: self.read_value())
        if self.text.startswith("(", self.at):
            self.at += 1
            return dict(self.read_items(self.read_pair))
        if self.text.startswith("'", self.at):
            return self.read_string()
        found = re.compile(r"![tfn]|[^ '!:(),*@$]+").match(self.text, self.at)
        assert found, f"no value at {self.text[self.at : self.at + 20]!r}"
        self.at = found.end()
        word = found[0]
        if word in self.WORDS:
            return self.WORDS[word]
        return json.loads(word) if word[0] in "-0123456789" else word

    def read_items(self, read: Any) -> list[Any]:
        found = []
        while self.text[self.at] != ")":
            found.append(read())
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1
        return found

    def read_pair(self) -> tuple[str, Any]:
        key = self.read_value()
        assert self.text[self.at] == ":"
        self.at += 1
        return key, self.read_value()

    def read_string(self) -> str:
        found = re.compile(r"'((?:[^'!]|!['!])*)'").match(self.text, self.at)
        assert found
        self.at = found.end()
        return re.sub("!(.)", r"\1", found[1])


def decode_state(link: str) -> dict[str, Any]:
    """What Compiler Explorer makes of a link: its layout."""
    parts = urlsplit(link)
    assert (parts.scheme, parts.netloc, parts.path, parts.query) == (
        "https", "godbolt.org", "/", "",
    )  # fmt: skip
    text = f"({unquote(parts.fragment, errors='strict')})"
    reader = Rison(text)
    found = reader.read_value()
    assert reader.at == len(text)
    assert isinstance(found, dict)
    return found


def decode_panes(link: str) -> dict[str, dict[str, Any]]:
    """The state of each pane by its name."""
    layout = decode_state(link)
    assert layout["version"] == 4 and [row["type"] for row in layout["content"]] == ["row"]
    return {one["componentName"]: one["componentState"] for one in layout["content"][0]["content"]}


values = st.recursive(
    st.text(max_size=9) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(values)
def test_rison_is_read_back(value: Any) -> None:
    assert Rison(listings.to_rison(value)).read_value() == value


@given(st.text(max_size=80).filter(lambda text: "\ud800" not in text))
def test_any_source_is_found_in_its_link(text: str) -> None:
    link = listings.explorer_link(Listing("Triton", "python", "x.py", text), calls="f()")
    assert link and re.fullmatch(r"https://godbolt\.org/#[A-Za-z0-9%._~-]+", link)
    assert decode_panes(link)["codeEditor"]["source"] == f"{text.rstrip()}\n\n\nf()\n"
    link = listings._full_link("x.py", text, listings.PYTHON, "executor")
    assert link and re.fullmatch(r"https://godbolt\.org/#[A-Za-z0-9%._~-]+", link)
    assert decode_panes(link)["codeEditor"]["source"] == text


@cache
def collect_links() -> dict[str, tuple[Listing, str]]:
    """The link of each file of ours that has one."""
    found = {}
    for one in snippets_of_the_shelf():
        record = store.load_record(one.project, one.results / "cpu.json")
        calls = project_content.load_published(one)[0].calls
        rows = [
            row["kernel"] for row in record.get("compiled", ()) if row["language"] == "CUDA C++"
        ]
        for listing in filter(None, project_content.code_listings(one)):
            if not listing.label:
                continue  # a module beside it
            link = listings.explorer_link(listing, sorted(set(rows)), calls, one.parsed.imports)
            if link:
                found[listing.name] = (listing, link)
    return found


def test_the_kernels_and_the_programs_of_python_alone_have_a_link() -> None:
    assert {"sgemm.cu", "stream.cu", "softmax.py", "flash_steps.py"} <= collect_links().keys()
    assert {"model_flops.py", "tile_order.py"} <= collect_links().keys()
    # These need the shared module beside them, or torch: there they would not run.
    assert not {"sgemm.py", "stream.py", "ring_attention.py"} & collect_links().keys()
    assert "warp_primitives.cu" not in collect_links()  # headers of libraries may not be there
    for above, has in (("// no #include", True), ("  # include <cub/cub.cuh>", False)):
        file = Listing("CUDA C++", "cuda", "x.cu", f"{above}\n__global__ void k() {{}}\n")
        assert (listings.explorer_link(file) is not None) == has


def test_a_link_carries_the_file() -> None:
    for name, (listing, link) in collect_links().items():
        assert_whole_file(name, listing, link)


def assert_whole_file(name: str, listing: Listing, link: str) -> None:
    """Fail unless a link leads to the whole of its file, and to the compiler of its language."""
    found = decode_panes(link)
    editor = found["codeEditor"]
    [output] = [pane for kind, pane in found.items() if kind != "codeEditor"]
    path = ROOT / "snippets" / name.partition(".")[0] / name
    text = path.read_text(encoding="utf-8").rstrip("\n")
    if "papergpu" in text:  # there kernels are compiled, and nothing executes them
        before, _, rest = text.partition("if not torch.cuda.is_available():")
        text = before + rest.partition("papergpu.activate()\n\n")[2]
    assert editor["source"].startswith(text) and "papergpu" not in editor["source"]
    assert editor["lang"] == output["lang"] and output["source"] == editor["id"] == 1
    tool = {"cu": listings.CUDA, "py": listings.TRITON}[name[-2:]]
    if listing.label == "Python":
        tool = listings.PYTHON
        assert "executor" in found and editor["source"] == path.read_text(encoding="utf-8")
    assert output["compiler"] == tool["compiler"]


# One that includes a header has no link.
SOURCES = sorted(
    path.name
    for path in (ROOT / "snippets").glob("*/*.cu")
    if not listings.INCLUDES.search(path.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("name", exhaustive(SOURCES, "all kernels of CUDA C++, compiled"))
def test_the_source_in_a_link_has_every_instance_compiled(name: str) -> None:
    """By NVRTC as there: the kernels of the record come out, and no template is left idle."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    source = decode_panes(collect_links()[name][1])["codeEditor"]["source"]
    options = [option.encode() for option in listings.CUDA["options"].split()]
    try:
        error, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    except RuntimeError as missing:  # the bindings are there, the compiler is not
        pytest.skip(str(missing))
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert int(error) == 0
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    entries = set(re.findall(rb"\.entry (\w+)", ptx))
    record = store.load_record(
        Project(ROOT), ROOT / "snippets" / name[:-3] / "results" / "cpu.json"
    )
    assert len(entries) == len({row["kernel"] for row in record["compiled"]}) > 1


RUN = """
import runpy, sys, unittest.mock as mock
import torch, triton
from torch._subclasses.fake_tensor import FakeTensorMode
called = set()
triton.runtime.jit.JITFunction.run = lambda self, *a, **k: called.add(self.fn.__name__)
torch._subclasses.FakeTensor.data_ptr = mock.MagicMock(return_value=0)
with FakeTensorMode():
    runpy.run_path(sys.argv[1], run_name="example")
print(*sorted(called))
"""


@pytest.mark.exhaustive("each compiles its kernels anew")
@pytest.mark.parametrize("name", ["softmax.py", "flash_steps.py"])
def test_the_calls_below_a_source_reach_every_kernel(name: str, tmp_path: Path) -> None:
    """As Compiler Explorer does: no GPU, tensors without values, and a call only compiles."""
    pytest.importorskip("triton")
    output = decode_panes(collect_links()[name][1])
    file = tmp_path / name
    file.write_text(output["codeEditor"]["source"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(file)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = store.load_record(
        Project(ROOT), ROOT / "snippets" / name[:-3] / "results" / "cpu.json"
    )
    assert set(done.stdout.split()) == {row["kernel"] for row in record["compiled"]}


def test_what_is_too_long_or_does_nothing_there_has_no_link() -> None:
    for text, imports, has in (
        ("x = 1\n" * listings.LONGEST, (), False),
        ("import json, torch", ("json", "torch"), False),
        ("from os import path\nimport json", ("os", "os.path", "json"), True),
    ):
        listing = Listing("Python", "python", "x.py", text)
        assert (listings.explorer_link(listing, imports=imports) is not None) == has
    plain = Listing("Triton", "python", "x.py", "import triton")
    assert listings.explorer_link(plain) is None  # nothing calls its kernels


def test_the_line_below_a_listing_says_where_the_file_is() -> None:
    line = listings.source_links(
        "softmax", "softmax.py", "https://github.com/o/r", "https://godbolt.org/#x"
    )
    line = html.unescape(line)
    assert '<a href="../sources/softmax/softmax.py" download="softmax.py">' in line
    assert '"https://github.com/o/r/blob/main/snippets/softmax/softmax.py"' in line
    assert "<code>git clone https://github.com/o/r</code>" in line
    assert '"https://godbolt.org/#x"' in line
    bare = listings.source_links("softmax", "softmax.py", None, None)
    assert "clone" not in bare and "godbolt" not in bare and "nvcc" not in bare
    line = listings.source_links("sgemm", "sgemm.cu", None, None)
    assert (
        "<code>nvcc -std=c++17 -arch=native -c sgemm.cu</code>" in line
    )  # tests/snippets/test_cuda.py
    assert "-arch=sm_90a -c a.cu" in listings.source_links("a", "a.cu", None, None, "sm_90a")
