from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import (
    CODE,
    GPU,
    make_case,
    make_compiled,
    make_exhibit,
    make_facts,
    make_measured,
    make_record,
    make_result,
    make_sweep,
    make_verified,
)

from warpshelf.render import fragments
from warpshelf.render.fragments import KEYS, build_fragments
from warpshelf.render.listings import Listing, extract_section
from warpshelf.render.snippet_page import (
    STATES,
    MachineState,
    SnippetPage,
    SourceLink,
    render_badges,
)

ROOT = Path(__file__).resolve().parents[2]
VOID = {"input", "br", "hr", "img", "meta", "link"}
SVG_EMPTY = {"line", "polyline", "rect", "circle", "path"}
RUN = "`shelf run softmax`"
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"quote\" 'q' `code` ``` ~~~ **b** "
    '| pipe | --8<-- "softmax/code.md" [link](javascript:alert(1)) { .x onclick=y } &lt; '
    "\x1b[31mred\x1b[0m \x00\x02wzxhzdk:1\x03 === ??? # * - $x$ \\"
)
LINES = '--8<-- "nowhere.md"\n```\n</code></pre>\n\n<script>alert(2)</script>\n    === "x"\n\t* a\n'


class Page(HTMLParser):
    """A page that must be balanced; collects tags, classes, ids, links and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == [], self.open
        ids = [value for name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids)), ids

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        # A block in a paragraph would be torn apart by a browser.
        assert not ("p" in self.open[:-1] and tag in ("p", "div", "table", "figure", "ul", "dl"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID | SVG_EMPTY, tag
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def joined_words(self) -> str:
        return " ".join(self.text.split())

    def list_targets(self) -> list[str | None]:
        return [value for name, value in self.attributes if name == "href"]


def read_extensions() -> tuple[list[str], dict]:
    """The Markdown extensions of the site, from its own configuration."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = yaml.safe_load(text[text.index("markdown_extensions:") :])["markdown_extensions"]
    del found["material.extensions.preview"]  # works on links that MkDocs has resolved
    return list(found), found


@pytest.fixture(scope="module")
def render_texts(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("fragments")
    names, given_configs = read_extensions()
    snippets = dict(given_configs["pymdownx.snippets"], base_path=[str(folder)])
    assert snippets["check_paths"] is True
    configs = given_configs | {"pymdownx.snippets": snippets}

    def include_texts(*texts: str) -> Page:
        """A page that includes each text, as the site does."""
        includes = []
        for number, text in enumerate(texts):
            (folder / f"{number}.md").write_text(text + "\n", encoding="utf-8")
            includes.append(f'## Part {number}\n\n--8<-- "{number}.md"\n\n')
        md = markdown.Markdown(extensions=names, extension_configs=configs)
        return Page(md.convert("# Page\n\n" + "".join(includes) + "The end of the page.\n"))

    return include_texts


def show_evidence(page: SnippetPage) -> Page:
    """The page of its evidence."""
    return Page(fragments.render_evidence(page, "/kernels/softmax.md#snippet-softmax", "Softmax"))


def make_stale_state(found: dict) -> MachineState:
    return MachineState(found, "stale", found["machine"]["slug"])


def only_compiled() -> MachineState:
    return MachineState(
        make_record(0, [], demo=""), "compiled", "cpu", "TMA has no host execution."
    )


def test_a_measured_kernel_has_all_pieces() -> None:
    parts = build_fragments(make_exhibit(make_measured(), make_verified()))
    assert tuple(parts) == KEYS
    assert all(parts[key].strip() for key in ("whole", "folded", "ladder"))


def test_a_measured_page_shows_its_plot_and_opens_its_evidence(render_texts) -> None:
    made = make_exhibit(make_measured(), make_verified())
    page = render_texts(build_fragments(made)["whole"])
    assert "svg" in page.tags and "3.10e-8" in page.joined_words
    assert "/evidence/softmax.html" in page.list_targets()
    assert f"verified and timed on {GPU}, 6 May 2031" in page.joined_words
    executed = "executed from its PTX for sm_80, sm_90 and sm_100 on a CPU, 6 May 2031"
    assert executed in page.joined_words
    assert "Not measured on a GPU" not in page.joined_words
    assert page.joined_words.endswith("The end of the page.")
    assert "49.1 µs" in render_texts(build_fragments(made)["ladder"]).joined_words


def test_the_evidence_has_numbers_plots_and_provenance() -> None:
    page = show_evidence(make_exhibit(make_measured(), make_verified()))
    assert "49.1 µs" in page.joined_words and "3.10e-8" in page.joined_words and "svg" in page.tags
    assert f"Measured on {GPU}, 6 May 2031, commit abc1234" in page.joined_words
    assert "1980 MHz SM" in page.joined_words and "sha256:5a5a5a5a5a5a" in page.joined_words
    assert "../records/softmax/imaginary-g9-80gb.json" in page.list_targets()
    assert "../records/softmax/cpu.json" in page.list_targets()
    assert page.list_targets()[2] == "../assets/warpshelf.css"
    assert "../kernels/softmax/#snippet-softmax" in page.list_targets()


def test_folded_is_the_whole_without_open_code(render_texts) -> None:
    both = make_exhibit(make_measured(), make_verified())
    shown = replace(both, code=both.code[:1])
    parts = build_fragments(shown)
    whole, folded = parts["whole"], parts["folded"]
    assert folded.count('"All of ') == 1
    opened = re.search(r"\n\n```python title=.*?\n```(?=\n\n)", whole, re.S)
    assert opened is not None and whole.replace(opened[0], "") == folded
    assert render_texts(folded).joined_words.endswith("The end of the page.")


def test_a_file_without_sections_stands_open_and_whole() -> None:
    file = Listing("Python", "python", "x.py", "a = 1\n", "")
    bare = build_fragments(replace(make_exhibit(make_verified()), code=[file]))
    assert "All of x.py" not in bare["whole"]
    assert "\n```python" in bare["whole"] and "\n```python" not in bare["folded"]
    assert "[x.py](/sources/softmax/x.py){ download=x.py }" in bare["folded"]


def test_a_verified_page_has_errors_and_output_and_no_times(render_texts) -> None:
    found = make_record(0)
    for item in found["cases"]:
        for entry in item["results"]:
            entry["time"] = {"median": 7.77e-5, "p20": 7.77e-5, "p80": 7.77e-5, "n": 777}
        item["timed"] = True
    made = make_exhibit(make_verified(found))
    parts = build_fragments(made)
    for page in (*map(render_texts, parts.values()), show_evidence(made)):
        assert "svg" not in page.tags and "77" not in page.joined_words.replace("777×", "")
    page = render_texts(parts["whole"])
    assert "executed from its PTX" in page.joined_words and "row sums 1.000" in page.joined_words
    assert "3.10e-8" in page.joined_words
    assert (
        "Not measured on a GPU yet. On a machine with a GPU, shelf run softmax" in page.joined_words
    )
    assert "shelf run softmax" in render_texts(parts["ladder"]).joined_words


def test_a_compiled_page_has_figures_and_the_reason(render_texts) -> None:
    made = make_exhibit(only_compiled())
    page = render_texts(build_fragments(made)["whole"])
    assert "Compiled only, not run on CPU: TMA has no host execution." in page.joined_words
    assert "registers 32 32 32" in show_evidence(made).joined_words
    assert "3.10e-8" not in page.joined_words and "prints" not in page.joined_words


def test_a_page_of_nothing_says_what_would_measure_it(render_texts) -> None:
    for states in ((), (MachineState(None, "not measured", "gpu", "no GPU was here"),)):
        parts = build_fragments(make_exhibit(*states))
        page = render_texts(parts["whole"])
        assert (
            "Not measured on a GPU yet" in page.joined_words
            and "shelf run softmax" in page.joined_words
        )
        assert "def softmax" in page.joined_words and "not measured on a GPU" in page.joined_words
    assert "yet: no GPU was here. On a machine" in page.joined_words


def test_a_second_gpu_without_a_record_is_named(render_texts) -> None:
    absent = MachineState(None, "not measured", "imaginary-g7", "never lent")
    page = render_texts(build_fragments(make_exhibit(make_measured(), absent))["whole"])
    assert (
        "Not measured on imaginary-g7 yet: never lent. There, shelf run softmax"
        in page.joined_words
    )
    assert "Not measured on a GPU yet" not in page.joined_words


def test_an_unchecked_cpu_says_so(render_texts) -> None:
    absent = MachineState(None, "not measured", "cpu", "Triton is not for this system")
    page = render_texts(build_fragments(make_exhibit(absent))["whole"])
    said = "Not checked on a CPU: Triton is not for this system."
    assert f"{said} On a machine without a GPU, shelf run softmax does it." in page.joined_words
    page = render_texts(build_fragments(make_exhibit(absent, needs={"gpus": 2}))["whole"])
    assert said in page.joined_words and "without a GPU" not in page.joined_words


@pytest.mark.parametrize("state", ["stale", "failed"])
def test_withheld_numbers_reach_no_page(state: str) -> None:
    """Two records with nothing in common but machine and date must look the same."""
    other = make_record(
        cases=make_sweep(("alpha", "beta")),
        demo="other output 4711\n",
        ceilings={"copy_bytes_per_second": 1.234e12},
        conditions={"load": {"sm_mhz": 1111}},
        compiled=[make_compiled("sm_75", "strange", registers=99)],
        skips=[{"what": "secret", "reason": "secret"}],
        facts=make_facts(),
        commit="fedcba9",
        digest="sha256:" + "77" * 32,
        command="shelf run --force",
    )
    made = [
        make_exhibit(MachineState(r, state, r["machine"]["slug"], "why"))
        for r in (make_record(), other)
    ]
    assert build_fragments(made[0]) == build_fragments(made[1])
    shown = [fragments.render_evidence(one, None, "Home") for one in made]
    assert shown[0] == shown[1]
    assert render_badges(made[0]) == render_badges(made[1])


def test_no_digits_of_stale_times_anywhere(render_texts) -> None:
    old = make_record(
        cases=[
            make_case(
                4096, 4096, [make_result("one pass", 7.654321e-5, error=8.7654e-9)], timed=True
            )
        ],
        date="2030-01-02T03:04:05Z",
    )
    made = make_exhibit(make_stale_state(old), make_verified())
    parts = build_fragments(made)
    for text in (*parts.values(), fragments.render_evidence(made, None, "Home")):
        assert not re.search(r"7[.]?6[.]?5|8[.]?7[.]?6[.]?5|4096", text)
    page = render_texts(parts["whole"])
    assert f"Source changed since 2 Jan 2030 on {GPU}: the numbers of that run" in page.joined_words
    assert "def softmax" in page.joined_words and "svg" not in page.tags
    assert not [one for one in show_evidence(made).list_targets() if "imaginary" in (one or "")]
    assert "3.10e-8" in page.joined_words  # of the CPU, whose record is current


def test_a_failed_run_shows_its_line_and_nothing_else(render_texts) -> None:
    line = "one pass: error 3e-2 over 5e-6 <at m = 37>"
    state = MachineState(None, "failed", "imaginary-g9-80gb", line)
    page = render_texts(build_fragments(make_exhibit(state))["whole"])
    assert (
        f"The last run here failed (imaginary-g9-80gb): {line}. Nothing of it" in page.joined_words
    )
    assert "not measured" not in page.joined_words.lower()


def test_machines_follow_each_other_the_newest_gpu_first() -> None:
    old = make_record(slug="g7", device="Imaginary G7", date="2030-01-01T00:00:00Z")
    newer_cpu = make_record(0, date="2032-01-01T00:00:00Z")
    states = make_verified(newer_cpu), make_measured(old), make_measured()
    text = fragments.render_evidence(make_exhibit(*states), None, "Home")
    assert re.findall(r"<h2>(.*?)</h2>", text) == [GPU, "Imaginary G7", "CPU", "On any machine"]
    alone = fragments.render_evidence(make_exhibit(make_measured()), None, "Home")
    assert "<h2>" not in alone


def test_the_idea_carries_its_anchor_sections_and_sources(render_texts) -> None:
    sources = [SourceLink("A [title](x)", "/kernels/softmax.md#reading-a"), SourceLink("Unlisted")]
    needs = {"sm": ">=90", "gpus": 2, "cpu": "no TMA"}
    needs["variants"] = {"bulk": {"sm": [90, 100], "why": "TMA", "cpu": "x"}}
    page = render_texts(build_fragments(make_exhibit(sources=sources, needs=needs))["folded"])
    assert ("id", "snippet-softmax") in page.attributes
    assert "/kernels/softmax.md#reading-a" in page.list_targets()
    assert "Source: A [title](x); Unlisted" in page.joined_words
    assert "Shapes x (M, N) float32, rows contiguous -> y (M, N) float32" in page.joined_words
    assert "a GPU of SM 90 or above; 2 GPUs; not on a CPU: no TMA" in page.joined_words
    assert "bulk: SM 90 or 100 (TMA), not on a CPU: x" in page.joined_words


def test_code_opens_at_its_section_with_the_whole_file_below(render_texts) -> None:
    parts = build_fragments(make_exhibit())
    page = render_texts(parts["whole"])
    assert page.joined_words.index("def softmax") < page.joined_words.index("All of softmax.py")
    assert "8<" not in page.joined_words and "import triton" not in page.joined_words
    assert "__global__ void softmax" in page.joined_words
    assert extract_section(CODE, "kernel").startswith("@triton.jit")


def test_a_model_has_facts_and_is_not_expected_on_a_gpu(render_texts) -> None:
    found = make_record(0, [], facts=make_facts(), compiled=[], skips=[], kind="model")
    made = make_exhibit(make_verified(found), kind="model")
    page = render_texts(build_fragments(made)["whole"])
    assert "Verified: 3 facts" in page.joined_words or "Verified: " in page.joined_words
    page = show_evidence(made)
    assert (
        "Online normalizer calculation" in page.joined_words
        and "6 738 415 616" in page.joined_words
    )
    assert "GPU" not in page.joined_words.replace("times on a GPU", "")


def test_skips_are_listed_with_their_reasons() -> None:
    page = show_evidence(make_exhibit(make_verified()))
    assert "Not run here: bulk copy: needs SM 90 or above; this GPU is SM 80" in page.joined_words


def test_the_commands_are_shown() -> None:
    page = show_evidence(make_exhibit())
    for command in ("python snippets/softmax/softmax.py", "shelf run softmax", "shelf compare"):
        assert command in page.joined_words


def hostile_exhibit(text: str, lines: str) -> SnippetPage:
    found = make_record(demo=lines, device=text, commit=text, command=text)
    for item in found["cases"]:
        item["case"]["dtype"] = text
        for entry in item["results"]:
            entry |= {"name": text + entry["name"], "reason": text}
    found["compiled"] = [make_compiled(text, text, variant=text, compiler=text)]
    found["skips"] = [{"what": text, "reason": text}]
    found["facts"] = [fact | {"name": text, "unit": text, "source": text} for fact in make_facts()]
    for key in ("driver", "cuda", "torch", "triton", "python", "os"):
        found["machine"][key] = text
    return make_exhibit(
        make_measured(found),
        MachineState(None, "failed", "g7", text),
        MachineState(None, "not measured", "cpu", text),
        title=text,
        sections={"Shapes": text, text: lines},
        sources=[SourceLink(text, "/kernels/softmax.md#reading-a"), SourceLink(text)],
        needs={"cpu": text, "variants": {text: {"cpu": text}}},
        code=[Listing(text, "python", "softmax.py", CODE + lines + text + "\n" + lines)],
    )


def test_hostile_text_is_shown_and_does_nothing(render_texts) -> None:
    made = hostile_exhibit(HOSTILE, LINES)
    parts = build_fragments(made)
    for key, page in {key: render_texts(text) for key, text in parts.items()}.items():
        assert not {"script", "img", "strong>b"} & set(page.tags), key
        assert not [k for k, _ in page.attributes if k.startswith("on")], key
        assert all((link or "").startswith(("/", "#")) for link in page.list_targets()), key
        assert page.joined_words.endswith("The end of the page."), key
    proof = show_evidence(made)
    assert proof.tags.count("script") == 2 and "img" not in proof.tags  # its own two
    assert not [k for k, _ in proof.attributes if k.startswith("on")]
    shown = render_texts(parts["whole"])
    for page in (shown, proof):
        assert "<script>alert(1)</script> <img src=x onerror=alert(1)>" in page.joined_words
        assert "\x1b" not in page.text and "[31m" not in page.text
    assert '--8<-- "nowhere.md"' in shown.joined_words


TOKENS = """--8<-- "x.md" ``` < script > </ & &#60; * _ | [ ]( { } : === ??? !!! \\ # - $ é 数 a1"""
BLANKS = ["\n", "\n\n", "    ", "\t", "\x02", "\x1b[1m", "\u2028", "\r"]
TEXT = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(TOKENS.split() + BLANKS), max_size=8).map("".join),
)


@settings(max_examples=30)
@given(TEXT, TEXT)
def test_no_text_breaks_the_page(render_texts, text: str, lines: str) -> None:
    made = build_fragments(hostile_exhibit(text, lines))
    page = render_texts(made["whole"])
    expected = render_texts(build_fragments(hostile_exhibit("word", lines and "word\n"))["whole"])
    show_evidence(hostile_exhibit(text, lines))
    assert {t for t in page.tags if t != "span"} <= {t for t in expected.tags} | {"dl", "dt", "dd"}
    assert page.joined_words.endswith("The end of the page.")


NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63))
POSITIVE = st.floats(min_value=1e-12, max_value=1e9)
RESULTS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c"]),
        "role": st.sampled_from(["variant", "peer"]),
        "verdict": st.sampled_from(["passed", "failed", "skipped"]),
    },
    optional={
        "reason": TEXT,
        "error": NUMBERS,
        "tolerance": NUMBERS,
        "max_error": NUMBERS,
        "max_error_limit": NUMBERS,
        "time": st.builds(
            lambda m, n: {"median": m, "p20": m * 0.9, "p80": m * 1.1, "n": n},
            POSITIVE,
            st.integers(1, 10**6),
        ),
    },
)
CASES = st.fixed_dictionaries(
    {
        "case": st.dictionaries(
            st.sampled_from(["m", "n", "scale", "dtype"]),
            st.one_of(st.integers(0, 10**6), st.floats(allow_nan=False), st.text(max_size=5)),
        ),
        "timed": st.booleans(),
        "results": st.lists(RESULTS, max_size=4),
    },
    optional={
        "bytes": st.integers(0, 2**62),
        "flops": st.integers(0, 2**62),
        "unit": st.sampled_from(["fp32", "bf16", "odd"]),
    },
)
FACTS = st.fixed_dictionaries(
    {"name": TEXT, "value": NUMBERS, "expected": NUMBERS, "tolerance": NUMBERS, "unit": TEXT,
     "source": TEXT, "verdict": st.just("passed")}
)  # fmt: skip


def collect_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from collect_texts(inner)


@settings(max_examples=60)
@given(
    st.lists(CASES, max_size=6),
    st.lists(FACTS, max_size=2),
    st.sampled_from(STATES),
    st.integers(0, 3),
    st.text(max_size=30),
)
def test_any_record_gives_a_sound_page(
    render_texts, cases: list[dict], rows: list[dict], state: str, gpus: int, date: str
) -> None:
    found = make_record(gpus, cases, facts=rows, date=date)
    made = build_fragments(make_exhibit(MachineState(found, state, found["machine"]["slug"])))
    page = render_texts(made["whole"])
    unread = re.compile(r"(?<![\w/])(nan|inf|None|-0)(?![\w.])")
    if not unread.search(
        " ".join(collect_texts([cases, rows, date]))
    ):  # such a text is shown as it is
        assert not unread.search(page.joined_words.split("All of")[-1])
    assert "Exception" not in page.joined_words
    show_evidence(make_exhibit(MachineState(found, state, found["machine"]["slug"])))


def test_the_name_of_a_file_is_checked() -> None:
    with pytest.raises(ValueError, match="is not a plain file name"):
        make_exhibit(code=[Listing("x", "python", 'a" onclick="b', "")])
