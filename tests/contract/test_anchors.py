from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.contract.syntax import Anchors, cpp_tokens

SNIPPETS = Path(__file__).parents[2] / "snippets"
PYTHON = ("softmax/softmax.py", "conv1d/conv1d.py", "tensor_parallel/meeting.py")
CPP = ("warp_primitives/warp_primitives.cu", "sgemm/sgemm.cu", "stencil/stencil.cu")
KERNELS = """\
#define FOR(i, n) for (int i = 0; i < n; ++i)
namespace {
template <int N, class T = Pair<int, int>>
struct __align__(16) Pack {
    T at[N];
    __device__ T sum() const { T all = 0; FOR(i, N) { all += at[i]; } return all; }
};
constexpr int table[] = {1, 2, 3};
}  // namespace
__device__ float twice(float x) { return x + x; }
__device__ int twice(int x) { return x + x; }
__global__ void __launch_bounds__(256) scale(float* y, const float* x) {
    int i = threadIdx.x;
    if (i < 3) {
        y[i] = twice(x[i]);
    }
}
"""


def read_snippet_text(name: str) -> str:
    return (SNIPPETS / name).read_text()


def test_an_anchor_names_the_function_and_counts_within_it() -> None:
    text = "import math\n\n\ndef f(x):\n    def g():\n        return 1\n    return g\n"
    anchors = Anchors(text, ".py")
    assert [anchors.anchor_at(n) for n in (1, 4, 5, 6, 7)] == ["+0", "f+0", "f.g+0", "f.g+1", "f+2"]
    assert anchors.anchor_at(2) == anchors.anchor_at(3) == anchors.anchor_at(1)
    assert anchors.anchor_at(99) == anchors.anchor_at(7)


def test_decorators_belong_to_what_they_decorate() -> None:
    anchors = Anchors("@jit\ndef f():\n    pass\n@jit\nclass F:\n    x = 1\n", ".py")
    assert [anchors.anchor_at(n)[:2] for n in range(1, 7)] == ["f+"] * 3 + ["F+"] * 3
    assert anchors.find_line(anchors.anchor_at(1)) == 1


def test_kernels_of_cpp_are_found_by_name() -> None:
    anchors = Anchors(KERNELS, ".cu")
    names = [anchors.anchor_at(n).rpartition("+")[0] for n in (1, 3, 6, 8, 10, 11, 12, 15)]
    inner = ["namespace.Pack", "namespace.Pack.sum", "namespace"]
    assert names == ["", *inner, "twice", "twice~2", "scale", "scale"]


@pytest.mark.parametrize("name", (*PYTHON, *CPP))
def test_each_line_on_which_something_starts_comes_back(name: str) -> None:
    anchors, text = Anchors(read_snippet_text(name), Path(name).suffix), read_snippet_text(name)
    if name in CPP:
        lines = {line for _, line in cpp_tokens(text)}
    else:
        lines = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
        lines -= {node.lineno for node in list_docstrings(text)}
    assert {line for line in lines if anchors.find_line(anchors.anchor_at(line)) != line} == set()


def list_docstrings(text: str) -> list[ast.stmt]:
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]


@settings(max_examples=12)
@given(st.sampled_from(PYTHON), st.integers(0, 10**6))
def test_comments_and_docstrings_move_no_anchor_of_python(name: str, seed: int) -> None:
    dice, text = random.Random(seed), read_snippet_text(name)
    before, lines = Anchors(text, ".py"), text.splitlines()
    wordy = {
        line
        for node in list_docstrings(text)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    starts = [n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt)]
    told = {n: [lines[n - 1]] for n in range(1, len(lines) + 1)}
    for line in dice.sample(sorted(set(starts) - wordy), 8):
        told[line].insert(0, dice.choice(("", "# why", "    # far from it")))
    for node in dice.sample(list_docstrings(text), 1):
        last = node.end_lineno or 0
        told[last] = [*told[last], " " * node.col_offset + '"""More,', "", 'of it."""']
    moved, now = 0, {}
    for line, instead in told.items():
        now[line] = line + moved + instead.index(lines[line - 1])
        moved += len(instead) - 1
    after = Anchors("\n".join(each for one in told.values() for each in one), ".py")
    for line in set(starts) - wordy:
        assert after.anchor_at(now[line]) == before.anchor_at(line)
        assert after.find_line(before.anchor_at(line)) == now[line]


@pytest.mark.parametrize("name", PYTHON)
def test_another_layout_moves_no_anchor_of_python(name: str) -> None:
    text = read_snippet_text(name)
    old, new = ast.parse(text), ast.unparse(ast.parse(text))
    twins: dict[int, set[int]] = {}
    for node, twin in zip(ast.walk(old), ast.walk(ast.parse(new)), strict=True):
        if hasattr(node, "lineno"):
            twins.setdefault(node.lineno, set()).add(twin.lineno)  # type: ignore[attr-defined]
    before, after = Anchors(text, ".py"), Anchors(new, ".py")
    for line in {n.lineno for n in ast.walk(old) if isinstance(n, ast.stmt)}:
        if before.find_line(before.anchor_at(line)) == line:
            assert after.find_line(before.anchor_at(line)) in twins[line]


@settings(max_examples=12)
@given(st.sampled_from(CPP), st.integers(0, 10**6))
def test_comments_and_layout_move_no_anchor_of_cpp(name: str, seed: int) -> None:
    dice, text = random.Random(seed), read_snippet_text(name)
    old = list(cpp_tokens(text))
    parts, line, now = [], 1, []
    for token, _ in old:
        blank = dice.choice((" ", "\n", " // } why\n", " /* { \n */ ", "\n\n"))
        parts.append("\n" if token.startswith("#") else blank)
        line += parts[-1].count("\n")
        now.append(line)
        parts.append(token + "\n" * token.startswith("#"))
        line += parts[-1].count("\n")
    before, after = Anchors(text, ".cu"), Anchors("".join(parts), ".cu")
    first: dict[int, int] = {}
    for (_, was), there in zip(old, now, strict=True):
        first.setdefault(was, there)
    for was, there in first.items():
        assert after.find_line(before.anchor_at(was)) == there


def test_what_is_no_place_of_a_file_is_told() -> None:
    anchors = Anchors("def f():\n    pass\n", ".py")
    for anchor in ("g+0", "f+99", "f", "f+x", ""):
        with pytest.raises(LookupError, match="run its snippet again"):
            anchors.find_line(anchor)
    assert anchors.find_line("f+0") == 1
    with pytest.raises(ValueError, match="Python and C"):
        Anchors("x", ".rs")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a /* b */ c // d\n", "a\nc"),
        ('f("/* no */ // comment")', 'f ( "/* no */ // comment" )'),
        ("#define F(x) x\nint a;", "# define  F(x)  x  // why\n\n int a ;"),
        ("#if A\n#endif", "  #if A /* b\n */\n#endif\n"),
        ("x = 1'000 + '\\'';", "x=1'000+'\\'' ;"),
        ('R"a(// )" )a"', 'R"a(// )" )a" // b'),
        ("a\r\nb", "a\nb"),
    ],
)
def test_tokens_of_cpp_are_the_same_without_what_a_compiler_skips(one: str, other: str) -> None:
    assert [t for t, _ in cpp_tokens(one)] == [t for t, _ in cpp_tokens(other)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ab", "a b"),
        ("a++ + b", "a + ++b"),
        ("a >> b", "a > > b"),
        ("#define F(x) x", "#define F (x) x"),
        ("#define A\nb", "#define A b"),
        ('"a  b"', '"a b"'),
        ("1.0f", "1 .0f"),
    ],
)
def test_tokens_of_cpp_differ_where_a_compiler_sees_it(one: str, other: str) -> None:
    assert [t for t, _ in cpp_tokens(one)] != [t for t, _ in cpp_tokens(other)]
