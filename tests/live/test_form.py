"""Questions and answers: what is shown of one or two results, and whose line an error is."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import calculator_project
import pytest
from conftest import Trial

from warpshelf.live import form

AROUND = {
    "sources": {"a-paper": ["A paper <on> products", "kernels/products/#reading-a-paper"]},
    "bands": {"Measured, 2024": {"count": 10, "half": 0.01, "most": 0.05, "worst": 0.125}},
    "page": "kernels/products/#snippet-doubled",
}


@pytest.fixture
def importable_calculator(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The made-up calculator, importable as `snippets.doubled`."""
    import snippets

    calculator_project.write_calculator(trial)
    monkeypatch.setattr(snippets, "__path__", [str(trial.root / "snippets")])
    yield
    for name in [name for name in sys.modules if name.startswith("snippets.doubled")]:
        del sys.modules[name]


def ask_form(*configurations: dict[str, str], **more: Any) -> dict[str, Any]:
    question = {"id": "doubled", "root": "../../", "context": AROUND, **more}
    return form.answer_question({**question, "configurations": list(configurations)})


@pytest.mark.usefixtures("importable_calculator")
class TestAnswers:
    def test_an_answer_with_its_formula_source_test_and_band(self) -> None:
        found = ask_form({"number": "4"})
        assert "8 B of plain things" in found["answer"].replace("&#32;", " ")
        assert "half were predicted within 1.0 &#37;" in found["details"]
        assert "nine in ten within 5.0 &#37;, all within 12.5 &#37;" in found["details"]
        details = found["details"]
        assert "<code>2 &#42; number</code>" in details
        assert "A paper &#60;on&#62; products" in details and "<on>" not in details
        link = "..&#47;..&#47;kernels&#47;products&#47;&#35;snippet&#45;doubled"
        assert f'<a href="{link}">twice 2</a>' in details
        assert details.count("<svg") == 1

    def test_two_stand_side_by_side(self) -> None:
        found = ask_form({"number": "4"}, {"number": "6", "kind": "odd"})
        assert found["answer"].count("ws-calc-answer") == 2
        assert "<td>8 B</td> <td>12 B</td> <td>1.50×</td>" in found["details"]
        assert found["details"].count("<svg") == 2
        rows = list(csv.reader(io.StringIO(found["csv"])))
        assert rows[0][:4] == ["quantity", "first", "second", "unit"]
        assert rows[1][:4] == ["doubled", "8.0", "12.0", "B"]
        whole = json.loads(found["json"])
        assert [one["inputs"]["number"] for one in whole["configurations"]] == [4.0, 6.0]
        assert whole["configurations"][1]["rows"][0]["value"] == 12.0

    def test_no_band_where_no_record_has_the_set(self) -> None:
        found = ask_form({}, context={"sources": {}, "bands": {}, "page": None})
        assert "No current record compares it with Measured, 2024" in found["details"]
        assert "checked by twice 2" in found["details"]

    def test_what_is_wrong_is_one_line_at_its_input(self) -> None:
        assert ask_form({"number": "x"})["errors"] == [
            {
                "place": 0,
                "name": "number",
                "line": "Number is 'x', which is not a number; write one such as 2",
            }
        ]
        both = ask_form({"often": "13"}, {"number": "-1", "often": "17"})["errors"]
        assert both == [
            {"place": 0, "name": "often", "line": "doubled: often = 13 is unlucky; take another"},
            {"place": 1, "name": "number", "line": "Number = -1 is below 0; write 0 to 1e9"},
        ]
        [error] = ask_form({"often": "17"})["errors"]
        assert error == {"place": 0, "name": "", "line": "doubled: nothing is twice 17"}

    def test_what_is_no_error_of_values_is_not_taken_for_one(self) -> None:
        with pytest.raises(RuntimeError):
            ask_form({"often": "19"})

    def test_text_in_text_out(self) -> None:
        question = json.dumps({"id": "doubled", "configurations": [{"number": "4"}]})
        assert json.loads(form.answered(question))["csv"].startswith("quantity,value,unit")

    def test_a_field_that_is_unknown_is_named_and_does_not_act(self) -> None:
        found = ask_form({"config": json.dumps({"size": 1, "<img src=x>": 2})})
        assert "Unknown field&#58; &#60;img src&#61;x&#62;" in found["details"]
        assert "<img" not in found["details"]

    def test_a_calculator_describes_itself(self) -> None:
        found = form.describe_calculator("doubled")
        assert found["faults"] == [] and found["result"]["answer"] == "4 B of plain things"
        assert [one["name"] for one in found["inputs"]][:2] == ["number", "often"]
