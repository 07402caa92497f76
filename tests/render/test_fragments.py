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
    case,
    compiled,
    exhibit,
    facts,
    measured,
    record,
    result,
    sweep,
    verified,
)

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
VOID = {"input", "br", "hr", "img"}
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
    def words(self) -> str:
        return " ".join(self.text.split())

    def links(self) -> list[str | None]:
        return [value for name, value in self.attributes if name == "href"]


def extensions() -> tuple[list[str], dict]:
    """The Markdown extensions of the site, from its own configuration."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = yaml.safe_load(text[text.index("markdown_extensions:") :])["markdown_extensions"]
    del found["material.extensions.preview"]  # works on links that MkDocs has resolved
    return list(found), found


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("fragments")
    names, given_configs = extensions()
    snippets = dict(given_configs["pymdownx.snippets"], base_path=[str(folder)])
    assert snippets["check_paths"] is True
    configs = given_configs | {"pymdownx.snippets": snippets}

    def through(*texts: str) -> Page:
        """A page that includes each text, as the site does."""
        includes = []
        for number, text in enumerate(texts):
            (folder / f"{number}.md").write_text(text + "\n", encoding="utf-8")
            includes.append(f'## Part {number}\n\n--8<-- "{number}.md"\n\n')
        md = markdown.Markdown(extensions=names, extension_configs=configs)
        return Page(md.convert("# Page\n\n" + "".join(includes) + "The end of the page.\n"))

    return through


def stale(found: dict) -> MachineState:
    return MachineState(found, "stale", found["machine"]["slug"])


def only_compiled() -> MachineState:
    return MachineState(record(0, [], demo=""), "compiled", "cpu", "TMA has no host execution.")


def test_every_key_is_there_and_none_is_empty_for_a_measured_kernel() -> None:
    parts = build_fragments(exhibit(measured(), verified()))
    assert tuple(parts) == KEYS
    assert all(text.strip() for text in parts.values())


def test_a_measured_page_shows_numbers_plot_and_provenance(render) -> None:
    page = render(build_fragments(exhibit(measured(), verified()))["whole"])
    assert "49.1 µs" in page.words and "3.10e-8" in page.words and "svg" in page.tags
    assert f"Measured on {GPU}, 6 May 2031, commit abc1234" in page.words
    assert "1980 MHz SM" in page.words and "sha256:5a5a5a5a5a5a" in page.words
    assert "/records/softmax/imaginary-g9-80gb.json" in page.links()
    assert "/records/softmax/cpu.json" in page.links()
    assert f"verified and timed on {GPU}, 6 May 2031" in page.words
    assert "executed from its PTX for sm_80, sm_90 and sm_100 on a CPU, 6 May 2031" in page.words
    assert "Not measured on a GPU" not in page.words
    assert page.words.endswith("The end of the page.")


def test_each_part_stands_alone(render) -> None:
    second = record(slug="g7", device="Imaginary G7", date="2030-01-01T00:00:00Z")
    parts = build_fragments(exhibit(measured(), measured(second), verified()))
    # Page asserts that ids differ; `whole` brings the idea along, as `folded` does.
    page = render(*(parts[key] for key in KEYS if key not in ("idea", "folded")))
    assert page.words.endswith("The end of the page.")
    for key in ("accuracy", "timing", "plot", "compile", "provenance"):
        single = render(parts[key])
        assert "/records/softmax/imaginary-g9-80gb.json" in single.links(), key
        assert "shelf run softmax" in single.words, key


def test_folded_is_the_whole_without_open_code(render) -> None:
    both = exhibit(measured(), verified())
    shown = replace(both, code=both.code[:1])
    parts = build_fragments(shown)
    whole, folded = parts["whole"], parts["folded"]
    assert folded.count('??? abstract "All of ') == 1
    opened = re.search(r"\n\n```python title=.*?\n```(?=\n\n)", whole, re.S)
    assert opened is not None and whole.replace(opened[0], "") == folded
    assert render(folded).words.endswith("The end of the page.")


def test_a_file_without_sections_is_folded_whole() -> None:
    bare = replace(exhibit(verified()), code=[Listing("Python", "python", "x.py", "a = 1\n", "")])
    fold = 'All of x.py"\n\n    ```{ .python title="x.py" data-search-exclude="yes" }\n'
    assert fold in build_fragments(bare)["folded"]
    assert "\n```python" in build_fragments(bare)["whole"]


def test_a_verified_page_has_errors_and_output_and_no_times(render) -> None:
    found = record(0)
    for item in found["cases"]:
        for entry in item["results"]:
            entry["time"] = {"median": 7.77e-5, "p20": 7.77e-5, "p80": 7.77e-5, "n": 777}
        item["timed"] = True
    parts = build_fragments(exhibit(verified(found)))
    for key, text in parts.items():
        page = render(text)
        assert "svg" not in page.tags and "77" not in page.words.replace("777×", ""), key
    page = render(parts["whole"])
    assert "executed from its PTX" in page.words and "row sums 1.000" in page.words
    assert "3.10e-8" in page.words
    assert "Not measured on a GPU yet. On a machine with a GPU, shelf run softmax" in page.words
    assert "No times are recorded" in render(parts["timing"]).words
    assert "shelf run softmax" in render(parts["timing"]).words


def test_a_compiled_page_has_figures_and_the_reason(render) -> None:
    page = render(build_fragments(exhibit(only_compiled()))["whole"])
    assert "Compiled only, not run on CPU: TMA has no host execution." in page.words
    assert "registers 32 32 32" in page.words.replace("\n", " ")
    assert "3.10e-8" not in page.words and "prints" not in page.words.split("Compiled ahead")[0]


def test_a_page_of_nothing_says_what_would_measure_it(render) -> None:
    for states in ((), (MachineState(None, "not measured", "gpu", "no GPU was here"),)):
        parts = build_fragments(exhibit(*states))
        page = render(parts["whole"])
        assert "Not measured on a GPU yet" in page.words and "shelf run softmax" in page.words
        assert "def softmax" in page.words and "not measured on a GPU" in page.words
        assert "No errors are recorded" in render(parts["accuracy"]).words
    assert "yet: no GPU was here. On a machine" in page.words


def test_a_second_gpu_without_a_record_is_named(render) -> None:
    absent = MachineState(None, "not measured", "imaginary-g7", "never lent")
    page = render(build_fragments(exhibit(measured(), absent))["whole"])
    assert "Not measured on imaginary-g7 yet: never lent. There, shelf run softmax" in page.words
    assert "Not measured on a GPU yet" not in page.words


def test_an_unchecked_cpu_says_so(render) -> None:
    absent = MachineState(None, "not measured", "cpu", "Triton is not for this system")
    page = render(build_fragments(exhibit(absent))["whole"])
    said = "Not checked on a CPU: Triton is not for this system."
    assert f"{said} On a machine without a GPU, shelf run softmax does it." in page.words
    page = render(build_fragments(exhibit(absent, needs={"gpus": 2}))["whole"])
    assert said in page.words and "without a GPU" not in page.words


@pytest.mark.parametrize("state", ["stale", "failed"])
def test_withheld_numbers_reach_no_page(state: str) -> None:
    """Two records with nothing in common but machine and date must look the same."""
    other = record(
        cases=sweep(("alpha", "beta")),
        demo="other output 4711\n",
        ceilings={"copy_bytes_per_second": 1.234e12},
        conditions={"load": {"sm_mhz": 1111}},
        compiled=[compiled("sm_75", "strange", registers=99)],
        skips=[{"what": "secret", "reason": "secret"}],
        facts=facts(),
        commit="fedcba9",
        digest="sha256:" + "77" * 32,
        command="shelf run --force",
    )
    made = [exhibit(MachineState(r, state, r["machine"]["slug"], "why")) for r in (record(), other)]
    assert build_fragments(made[0]) == build_fragments(made[1])
    assert render_badges(made[0]) == render_badges(made[1])


def test_no_digits_of_stale_times_anywhere(render) -> None:
    old = record(
        cases=[case(4096, 4096, [result("one pass", 7.654321e-5, error=8.7654e-9)], timed=True)],
        date="2030-01-02T03:04:05Z",
    )
    parts = build_fragments(exhibit(stale(old), verified()))
    for text in parts.values():
        assert not re.search(r"7[.]?6[.]?5|8[.]?7[.]?6[.]?5|4096", text)
    page = render(parts["whole"])
    assert f"Source changed since 2 Jan 2030 on {GPU}: the numbers of that run" in page.words
    assert "def softmax" in page.words and "svg" not in page.tags
    assert "/records/softmax/imaginary-g9-80gb.json" not in page.links()
    assert "3.10e-8" in page.words  # of the CPU, whose record is current


def test_a_failed_run_shows_its_line_and_nothing_else(render) -> None:
    line = "one pass: error 3e-2 over 5e-6 <at m = 37>"
    state = MachineState(None, "failed", "imaginary-g9-80gb", line)
    page = render(build_fragments(exhibit(state))["whole"])
    assert f"The last run here failed (imaginary-g9-80gb): {line}. Nothing of it" in page.words
    assert "not measured" not in page.words.lower()


def test_several_machines_stand_in_tabs_newest_gpu_first(render) -> None:
    old = record(slug="g7", device="Imaginary G7", date="2030-01-01T00:00:00Z")
    newer_cpu = record(0, date="2032-01-01T00:00:00Z")
    given_states = (verified(newer_cpu), measured(old), measured())
    parts = build_fragments(exhibit(*given_states))
    labels = re.findall(r"<label[^>]*>(.*?)</label>", parts["whole"])
    assert labels == [GPU, "Imaginary G7", "CPU"]
    assert parts["timing"].count("<label") == 2
    page = render(parts["whole"])
    inputs = [v for k, v in page.attributes if k == "name" and (v or "").startswith("ws-softmax")]
    assert len(inputs) == 3 and len(set(inputs)) == 1
    assert "<label" not in build_fragments(exhibit(measured()))["whole"]


def test_the_idea_carries_its_anchor_sections_and_sources(render) -> None:
    sources = [SourceLink("A [title](x)", "/kernels/softmax.md#reading-a"), SourceLink("Unlisted")]
    needs = {"sm": ">=90", "gpus": 2, "cpu": "no TMA"}
    needs["variants"] = {"bulk": {"sm": [90, 100], "why": "TMA", "cpu": "x"}}
    page = render(build_fragments(exhibit(sources=sources, needs=needs))["idea"])
    assert ("id", "snippet-softmax") in page.attributes
    assert page.links()[-1] == "/kernels/softmax.md#reading-a"
    assert "Source: A [title](x); Unlisted" in page.words
    assert "Shapes x (M, N) float32, rows contiguous -> y (M, N) float32" in page.words
    assert "a GPU of SM 90 or above; 2 GPUs; not on a CPU: no TMA" in page.words
    assert "bulk: SM 90 or 100 (TMA), not on a CPU: x" in page.words


def test_code_opens_at_its_section_with_the_whole_file_below(render) -> None:
    parts = build_fragments(exhibit())
    page = render(parts["code"])
    assert page.words.index("def softmax") < page.words.index("All of softmax.py")
    assert "8<" not in page.words and "import triton" in page.words
    assert "__global__ void softmax" in page.words
    assert extract_section(CODE, "kernel").startswith("@triton.jit")


def test_a_model_has_facts_and_is_not_expected_on_a_gpu(render) -> None:
    found = record(0, [], facts=facts(), compiled=[], skips=[], kind="model")
    made = exhibit(verified(found), kind="model")
    page = render(build_fragments(made)["whole"])
    assert "Online normalizer calculation" in page.words and "6 738 415 616" in page.words
    assert "GPU" not in page.words.replace("times on a GPU", "")


def test_skips_are_listed_with_their_reasons(render) -> None:
    page = render(build_fragments(exhibit(verified()))["accuracy"])
    assert "Not run here: bulk copy: needs SM 90 or above; this GPU is SM 80" in page.words


def test_the_commands_are_shown(render) -> None:
    page = render(build_fragments(exhibit())["reproduce"])
    for command in ("python snippets/softmax/softmax.py", "shelf run softmax", "shelf compare"):
        assert command in page.words


def hostile_exhibit(text: str, lines: str) -> SnippetPage:
    found = record(demo=lines, device=text, commit=text, command=text)
    for item in found["cases"]:
        item["case"]["dtype"] = text
        for entry in item["results"]:
            entry |= {"name": text + entry["name"], "reason": text}
    found["compiled"] = [compiled(text, text, variant=text, compiler=text)]
    found["skips"] = [{"what": text, "reason": text}]
    found["facts"] = [fact | {"name": text, "unit": text, "source": text} for fact in facts()]
    for key in ("driver", "cuda", "torch", "triton", "python", "os"):
        found["machine"][key] = text
    return exhibit(
        measured(found),
        MachineState(None, "failed", "g7", text),
        MachineState(None, "not measured", "cpu", text),
        title=text,
        sections={"Shapes": text, text: lines},
        sources=[SourceLink(text, "/kernels/softmax.md#reading-a"), SourceLink(text)],
        needs={"cpu": text, "variants": {text: {"cpu": text}}},
        code=[Listing(text, "python", "softmax.py", CODE + lines + text + "\n" + lines)],
    )


def test_hostile_text_is_shown_and_does_nothing(render) -> None:
    parts = build_fragments(hostile_exhibit(HOSTILE, LINES))
    for key, text in parts.items():
        page = render(text)
        assert not {"script", "img", "strong>b"} & set(page.tags), key
        assert not [k for k, _ in page.attributes if k.startswith("on")], key
        assert all((link or "").startswith(("/", "#")) for link in page.links()), key
        assert page.words.endswith("The end of the page."), key
    shown = render(parts["whole"])
    assert "<script>alert(1)</script> <img src=x onerror=alert(1)>" in shown.words
    assert '--8<-- "nowhere.md"' in render(parts["output"]).words
    assert '--8<-- "nowhere.md"' in render(parts["code"]).words
    assert "\x1b" not in shown.text and "[31m" not in shown.text


TOKENS = """--8<-- "x.md" ``` < script > </ & &#60; * _ | [ ]( { } : === ??? !!! \\ # - $ é 数 a1"""
BLANKS = ["\n", "\n\n", "    ", "\t", "\x02", "\x1b[1m", "\u2028", "\r"]
TEXT = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(TOKENS.split() + BLANKS), max_size=8).map("".join),
)


@settings(max_examples=30)
@given(TEXT, TEXT)
def test_no_text_breaks_the_page(render, text: str, lines: str) -> None:
    made = build_fragments(hostile_exhibit(text, lines))
    page = render(made["whole"], made["accuracy"], made["provenance"])
    calm = build_fragments(hostile_exhibit("word", lines and "word\n"))
    expected = render(calm["whole"], calm["accuracy"], calm["provenance"])
    assert {t for t in page.tags if t != "span"} <= {t for t in expected.tags} | {"dl", "dt", "dd"}
    assert page.words.endswith("The end of the page.")


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


def texts(value: object) -> Iterator[str]:
    """The texts in `value`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


@settings(max_examples=60)
@given(
    st.lists(CASES, max_size=6),
    st.lists(FACTS, max_size=2),
    st.sampled_from(STATES),
    st.integers(0, 3),
    st.text(max_size=30),
)
def test_any_record_gives_a_sound_page(
    render, cases: list[dict], rows: list[dict], state: str, gpus: int, date: str
) -> None:
    found = record(gpus, cases, facts=rows, date=date)
    made = build_fragments(exhibit(MachineState(found, state, found["machine"]["slug"])))
    page = render(made["whole"])
    unread = re.compile(r"(?<![\w/])(nan|inf|None|-0)(?![\w.])")
    if not unread.search(" ".join(texts([cases, rows, date]))):  # such a text is shown as it is
        assert not unread.search(page.words.split("All of")[-1])
    assert "Exception" not in page.words


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"id": "../x"}, "is not a snippet id"),
        ({"kind": "essay"}, "is not one of kernel, program, model"),
        ({"code": [Listing("x", "python", 'a" onclick="b', "")]}, "is not a plain file name"),
        ({"sources": [SourceLink("x", "javascript:alert(1)")]}, "is not docs-absolute"),
    ],
)
def test_what_goes_into_paths_and_links_is_checked(more: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        exhibit(**more)


@pytest.mark.parametrize(
    ("given_state", "said"),
    [
        ((None, "fine", "cpu"), "is not one of measured"),
        ((None, "measured", "cpu"), "needs a record"),
        ((None, "failed", "../cpu"), "is not a machine slug"),
    ],
)
def test_a_state_must_be_possible(given_state: tuple, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MachineState(*given_state)
