"""Paths: what a goal needs comes before it, once; what cannot be built is said."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from conftest import ROOT, Trial
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.catalogue import learning_paths
from warpshelf.catalogue.learning_paths import Stage
from warpshelf.catalogue.reading_lists import REFUSED
from warpshelf.core import pages
from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.readings.model import Kind, Reading, Shelf
from warpshelf.render.listings import Listing
from warpshelf.render.snippet_page import SnippetPage


def make_shelf(needs: dict[str, list[str]], snippets: dict[str, list[str]] | None = None) -> Shelf:
    """Readings by id, and what each needs."""
    found = Shelf()
    for name, first in needs.items():
        fields = {
            "id": name, "title": f"About {name}", "url": f"https://example.org/{name}",
            "kind": "post", "why": "Because.", "needs": first,
            "snippets": (snippets or {}).get(name, []),
        }  # fmt: skip
        found.readings[name] = Reading.model_validate(fields)
    return found


def make_path_page(path: object, where: str = "paths/a") -> dict[str, Page]:
    lines = f"---\ntitle: A\npath:\n{path}\n---\n"
    return {where: Page(where, f"docs/{where}.md", {"title": "A", "path": path}, lines)}


def list_steps(stages: list[Stage]) -> list[str]:
    return [step.reading.id for stage in stages for step in stage.steps]


def build_stages(on: Shelf, *goals: list[str]) -> list[Stage]:
    given = [{"stage": f"Stage {n}", "goals": names} for n, names in enumerate(goals, 1)]
    built, findings = learning_paths.build_paths(make_path_page(given), on)
    assert findings == []
    return built["paths/a"]


def test_what_a_goal_needs_comes_first_and_once() -> None:
    on = make_shelf({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": [], "z": []})
    assert list_steps(build_stages(on, ["d"])) == ["a", "b", "c", "d"]
    first, second = build_stages(on, ["c", "z"], ["d"])
    assert [step.reading.id for step in first.steps] == ["a", "c", "z"]
    assert [step.reading.id for step in second.steps] == ["b", "d"]


def test_a_step_says_who_needs_it_unless_it_is_a_goal() -> None:
    on = make_shelf({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": [], "other": ["a"]})
    asked = {
        step.reading.id: [one.id for one in step.asked_by]
        for stage in build_stages(on, ["c", "d"])
        for step in stage.steps
    }
    assert asked == {"a": ["b", "c"], "b": ["d"], "c": [], "d": []}


def test_a_snippet_runs_after_the_first_reading_that_names_it() -> None:
    on = make_shelf({"a": [], "b": ["a"]}, {"a": ["stream"], "b": ["stream", "softmax"]})
    stages = build_stages(on, ["b"])
    assert [step.snippets for step in stages[0].steps] == [("stream",), ("softmax",)]
    text = learning_paths.render_paths(
        {"paths/a": stages},
        {"stream": "/kernels/bandwidth.md#snippet-stream"},
        [SnippetPage("stream", "kernel", "Copy *it*")],
    )["paths/a.md"]
    assert "2 readings, 2 snippets to run: about 1 h 5 min" in text
    assert "[stream](/kernels/bandwidth.md#snippet-stream)" in text
    assert "Copy &#42;it&#42;" in text and "*it*" not in text
    assert text.index("About a") < text.index("snippet-stream") < text.index("reading-b")


def test_numbers_go_on_from_stage_to_stage() -> None:
    on = make_shelf({"a": [], "b": [], "c": []})
    text = learning_paths.render_paths({"paths/a": build_stages(on, ["a", "b"], ["c"])}, {})[
        "paths/a.md"
    ]
    assert re.findall(r'start="(\d)"', text) == ["1", "3"]


def test_pages_of_ours_are_steps_and_come_first_in_their_stage() -> None:
    on = make_shelf({"a": [], "b": []})
    own = Page(
        "kernels/x", "docs/kernels/x.md", {"title": "The *x*", "description": "Why x"}, "w " * 250
    )
    given = [{"stage": "One", "goals": ["a"], "pages": ["kernels/x"]},
             {"stage": "Two", "goals": ["b"]}]  # fmt: skip
    built, findings = learning_paths.build_paths({**make_path_page(given), "kernels/x": own}, on)
    assert findings == []
    text = learning_paths.render_paths(built, {})["paths/a.md"]
    assert "1 page here, 2 readings: about 1 h" in text and 'data-walk="62"' in text
    assert "[The &#42;x&#42;](/kernels/x.md)" in text and "page here · 2 min" in text
    steps = re.findall(r'data-step="(\S+)" data-minutes="(\d+)"', text)
    assert steps == [("page:kernels/x", "2"), ("reading:a", "30"), ("reading:b", "30")]
    assert re.findall(r'start="(\d)"', text) == ["1", "3"]


CODE = "a = 1\n# --8<-- [start:kernel]\n" + "b = 2\n\n" * 30 + "# --8<-- [end:kernel]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 1),
        ("word " * 1200, 10),
        ("---\ntitle: " + "word " * 1200 + "\n---\nword", 1),  # its front matter is not read
        ("word " * 1200 + "\n## Readings\n\n" + "word " * 9000, 10),
        ("```python\n" + "x = y + z\n\n" * 100 + "```\n", 10),
        ('<figure class="a b c d e f">' * 900, 1),
        ('--8<-- "x/whole.md"\n', 3),
        ('    --8<-- "x/code.md"\n', 3),
        ('--8<-- "x/folded.md"\n', 1),
        ('```\n--8<-- "x/x.py:kernel"\n```\n', 3),
        ('--8<-- "x/idea.md"\n--8<-- "none/whole.md"\n--8<-- "x/x.py:none"\n', 1),
    ],
)
def test_minutes_of_a_page_are_those_of_its_words_and_code(text: str, expected: int) -> None:
    code = [Listing("Python", "python", "x.py", CODE)]
    shown = {"x": SnippetPage("x", "kernel", "Title", code=code)}
    assert learning_paths.minutes_of_page(Page("a", "docs/a.md", {}, text), shown) == expected


def test_minutes_of_a_reading_are_its_own_or_those_of_its_kind() -> None:
    reading = make_shelf({"a": []}).readings["a"]
    assert learning_paths.minutes_of_reading(reading) == learning_paths.MINUTES["post"]
    assert learning_paths.minutes_of_reading(reading.model_copy(update={"minutes": 7})) == 7
    rule = learning_paths.minutes_rule()
    assert all(
        learning_paths.format_minutes(number) in rule for number in learning_paths.MINUTES.values()
    )
    assert set(learning_paths.MINUTES) == set(get_args(Kind))


@pytest.mark.parametrize(
    ("number", "told"),
    [(1, "1 min"), (19, "19 min"), (22, "20 min"), (60, "1 h"), (63, "1 h 5 min"),
     (90, "1 h 30 min"), (599, "10 h"), (1250, "21 h"), (0, "0 min"), (58, "1 h")],
)  # fmt: skip
def test_minutes_are_told_as_exactly_as_they_are_known(number: int, told: str) -> None:
    assert learning_paths.format_minutes(number) == told


@given(st.data())
def test_any_shelf_is_put_in_an_order_that_works(data: st.DataObject) -> None:
    names = [f"r{number}" for number in range(data.draw(st.integers(1, 12)))]
    needs = {
        name: data.draw(
            st.lists(st.sampled_from(names[:place]), unique=True) if place else st.just([])
        )
        for place, name in enumerate(names)
    }
    goals = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    found = list_steps(build_stages(make_shelf(needs), goals))
    assert len(found) == len(set(found)) and set(goals) <= set(found)
    for place, name in enumerate(found):
        assert set(needs[name]) <= set(found[:place])


def test_a_circle_of_needs_ends() -> None:
    """`shelf check` finds the circle; building a path must not hang on it."""
    on = make_shelf({"a": ["b"], "b": ["a"]})
    assert sorted(list_steps(build_stages(on, ["a"]))) == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "what", "mend"),
    [
        ([], "path is not a list of stages", learning_paths.MEND),
        ("softmax", "path is not a list of stages", learning_paths.MEND),
        (["a"], "stage 1 of path is not an object", learning_paths.MEND),
        ([{"stage": "A"}], "stage 1 of path lacks 'goals'", learning_paths.MEND),
        ([{"stage": 3, "goals": ["a"]}], "stage 1 of path.stage is 3", learning_paths.MEND),
        ([{"stage": "A", "goals": []}], "stage 1 of path has no goals", learning_paths.MEND),
        ([{"stage": "A", "goals": ["alpah"]}],
         "path names 'alpah', which is not the id of a reading", "write alpha"),
        ([{"stage": "A", "goals": "a"}], "stage 1 of path.goals is not a list",
         learning_paths.MEND),
        ([{"stage": "A", "goals": [7]}], "stage 1 of path.goals[0] is 7", learning_paths.MEND),
        ([{"stage": "A", "goals": ["a"], "aim": 1}], "stage 1 of path has the unknown key 'aim'",
         learning_paths.MEND),
        ([{"stage": "A", "goals": ["alpha", "alpha"]}], "names 'alpha' twice", "remove one"),
        ([{"stage": "A", "goals": ["a"], "pages": ["paths/b"]}],
         "path names 'paths/b', which is not a page below docs/", "write paths/a"),
        ([{"stage": "A", "goals": ["a"], "pages": ["paths/a", "paths/a"]}],
         "names 'paths/a' twice", "remove one"),
        ([{"stage": "A", "goals": ["a"], "pages": "paths/a"}],
         "stage 1 of path.pages is not a list", learning_paths.MEND),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(path: object, what: str, mend: str) -> None:
    built, [finding] = learning_paths.build_paths(
        make_path_page(path), make_shelf({"alpha": [], "a": []})
    )
    assert built == {"paths/a": []}
    assert learning_paths.ABSENT in learning_paths.render_paths(built, {})["paths/a.md"]
    assert (finding.path, finding.what, finding.mend) == ("docs/paths/a.md", what, mend)
    assert finding.line is not None and finding.line >= 3


def test_a_goal_is_suggested_that_a_path_can_have() -> None:
    on = make_shelf({"gemm-b": [], "gemm-a": []})
    on.refused |= {"gemm-xy", "None"}
    given = [{"stage": "A", "goals": ["gemm-x", "Nine"]}]
    found = learning_paths.build_paths(make_path_page(given), on)[1]
    assert [one.mend for one in found] == ["write gemm-a", "correct it, or remove it"]


def test_a_stage_without_goals_has_its_pages_checked() -> None:
    given = [{"stage": "A", "goals": [], "pages": ["paths/b"]}]
    found = learning_paths.build_paths(make_path_page(given), make_shelf({}))[1]
    assert [one.what for one in found] == [
        "stage 1 of path has no goals",
        "path names 'paths/b', which is not a page below docs/",
    ]


def test_a_path_stands_among_the_paths() -> None:
    given = [{"stage": "A", "goals": ["a"]}]
    _, [finding] = learning_paths.build_paths(
        make_path_page(given, "kernels/a"), make_shelf({"a": []})
    )
    assert finding == Finding(
        "docs/kernels/a.md",
        3,
        "has a path, but is not under docs/paths/",
        "move the page to docs/paths/",
    )


def test_check_and_site_say_what_is_wrong_with_a_path(trial: Trial) -> None:
    trial.add_page("paths/a.md", "---\npath:\n  - stage: A\n    goals: [nowhere]\n---\n# A\n")
    trial.add_page("paths/b.md", "---\ntitle: {\n---\n# B\n")
    trial.add_page("c.md", '# C\n\n--8<-- "paths/c.md"\n')
    said = trial.run_shelf("check").stderr.splitlines()
    assert any(line.startswith("docs/paths/a.md:4: path names 'nowhere'") for line in said)
    assert any(line.startswith("docs/paths/b.md:") and "not YAML" in line for line in said)
    assert any("docs/c.md:3: embeds 'paths/c.md'" in line for line in said)
    rendered = trial.run_shelf("site", "--render-only")
    assert rendered.returncode == 1 and "docs/paths/a.md:4" in rendered.stderr


def test_a_fault_costs_its_own_place_on_a_page_and_no_more(trial: Trial) -> None:
    trial.add_page("list.yml", "- id: broken\n  title: Without an address\n")
    trial.add_page("list.md", '# List\n\n--8<-- "readings/list.md"\n')
    trial.add_page("session.md", '# Session\n\n--8<-- "reading/broken.md"\n')
    trial.add_page(
        "paths/a.md",
        '---\npath:\n  - stage: A\n    goals: [nowhere]\n---\n# A\n\n--8<-- "paths/a.md"\n',
    )
    built = trial.run_shelf("site")
    assert built.returncode == 1 and "docs/paths/a.md:4" in built.stderr
    for page, note in (("session", REFUSED), ("paths/a", learning_paths.ABSENT)):
        assert note in (trial.root / "site" / page / "index.html").read_text()


def test_every_path_of_ours_is_whole() -> None:
    project = Project(ROOT)
    built, findings = learning_paths.build_paths(
        pages.load_pages(project)[0], model.load_shelf(ROOT)
    )
    assert findings == [] and len(built) == 4
    for where, stages in built.items():
        steps = [step for stage in stages for step in stage.steps]
        assert len(steps) >= 8 and any(step.snippets for step in steps), where
        assert sum(len(stage.pages) for stage in stages) >= 3, where
        text = (ROOT / "docs" / f"{where}.md").read_text(encoding="utf-8")
        assert f'--8<-- "{where}.md"' in text
