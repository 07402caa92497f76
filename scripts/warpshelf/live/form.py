"""A calculator on its page: its form, and a question answered, at the build and in a browser alike.

The page is whole without scripts: the form is then disabled, and shows what the answer was computed
from. A script enables it and puts a second configuration beside the first.

A question is {"id", "root", "context", "configurations"}: texts of the form by name, one or two.
The answer has "answer" and "details" in HTML, "json" and "csv", or says in "errors" what is wrong
with which input. The details are the lines that the answer rests on, plots and notes; all text is
escaped, and none of it can act.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.live import charts, quantities
from warpshelf.live.quantities import InputError
from warpshelf.render import tables

Result = Mapping[str, Any]
Input = Mapping[str, Any]
NAMES = {1: ("",), 2: ("first", "second")}  # what one or two results are called
MANY = 10  # published rows from which on nine in ten are something


def render_answers(found: Sequence[Result]) -> str:
    """The sentence that each of one or two results comes to."""
    return "\n".join(
        f'<p class="ws-calc-answer">{f"<strong>{name}</strong> " if name else ""}'
        f"{escape_markdown(result['answer'])}</p>"
        for name, result in zip(NAMES[len(found)], found, strict=True)
    )


def render_details(found: Sequence[Result], context: Mapping[str, Any], root: str) -> str:
    """What error to expect of one or two results, their lines, plots and notes.

    `context` has the titles and places of sources, the place of the tests and the bands of error;
    `root` leads from the page to the site's own address.
    """
    bands = filter(None, dict.fromkeys(_error_band(result, context) for result in found))
    plots = [result.get("plots") or () for result in found]
    drawn = "\n".join(charts.draw_charts(plots, NAMES[len(found)]))
    notes = dict.fromkeys(str(note) for result in found for note in result.get("notes") or ())
    items = "\n".join(f"<li>{escape_markdown(note)}</li>" for note in notes)
    parts = [
        *(f'<p class="ws-calc-band">{escape_markdown(words)}</p>' for words in bands),
        _result_table(found, context, root),
        f'<div class="ws-plots">\n{drawn}\n</div>' if drawn else "",
        f'<ul class="ws-calc-notes">\n{items}\n</ul>' if items else "",
    ]
    return "\n".join(part for part in parts if part)


def _error_band(result: Result, context: Mapping[str, Any]) -> str:
    """The error to expect of such a prediction, in words; "" if unknown."""
    if not (named := result.get("band")):
        return ""
    known = context.get("bands", {}).get(named["set"])
    if known is None:
        return f"No current record compares it with {named['set']}."
    half, most, worst = (f"{100 * known[key]:.1f} %" for key in ("half", "most", "worst"))
    between = f", nine in ten within {most}" if known["count"] >= MANY else ""
    return (
        f"Error to expect: of the {known['count']} published rows of {named['set']}, half were "
        f"predicted within {half}{between}, all within {worst}."
    )


def _result_table(found: Sequence[Result], context: Mapping[str, Any], root: str) -> str:
    head = ("Quantity", *(("Value",) if len(found) == 1 else ("First", "Second", "Ratio")))
    groups = []
    for rows in quantities.pair_rows(found):
        there = [row for row in rows if row]
        one, values = there[0], [row["value"] for row in there]
        cells = [
            quantities.format_value(row["value"], row["unit"]) if row else "none" for row in rows
        ]
        if len(rows) == 2:
            cells.append(quantities.compare_values(*values) if len(values) == 2 else "")
        groups.append(
            f"<tbody>{tables.table_row(one['name'], cells)}\n"
            f'<tr class="ws-calc-how"><td colspan="{len(head)}">'
            f"<div>{_row_provenance(one, context, root)}</div></td></tr></tbody>"
        )
    return tables.render_table("Result", head, groups, "calc-table", searched=True)


def _row_provenance(row: Mapping[str, Any], context: Mapping[str, Any], root: str) -> str:
    """Formula, source and test of a line."""

    def link_text(text: str, place: str | None) -> str:
        shown = escape_markdown(text)
        return f"<a href={quote_attribute(root + place)}>{shown}</a>" if place else shown

    parts = [f"<code>{escape_markdown(row['formula'])}</code>"] if row["formula"] else []
    if name := str(row["source"] or ""):
        parts.append(f"from {link_text(*context.get('sources', {}).get(name, (name, None)))}")
    if row["test"]:
        parts.append(f"checked by {link_text(row['test'], context.get('page'))}")
    return "; ".join(parts)


CLOSED = "Computed when this page was built, from the values in the form."
SHUT = f"{CLOSED} This build has no Python for the browser, so they cannot be changed here."
SHORT = 11  # characters of a choice that have room beside its label


def render_calculator(
    name: str, spec: Sequence[Input], result: Result, context: Mapping[str, Any], root: str,
    files: Mapping[str, str], weight: int = 0,
) -> str:  # fmt: skip
    """The HTML of a calculator; `files` are what a browser runs, if anything, of `weight` bytes."""
    data = "".join(f" data-{key}={quote_attribute(root + where)}" for key, where in files.items())
    fields = "\n".join(
        f"<fieldset disabled><legend>{escape_markdown(group)}</legend>\n"
        + "\n".join(map(_render_field, members))
        + "\n</fieldset>"
        for group, members in groupby(spec, lambda one: one["group"])
    )
    scripts = ""
    if files:
        data += f' data-weight="{weight}"'
        source = quote_attribute(root + "assets/calculators.js")
        scripts = f'\n<script type="module" src={source}></script>'
    style = f'<link rel="stylesheet" href={quote_attribute(root + "assets/calculators.css")}>'
    return (
        f'<div class="ws-calc" data-calculator="{name}" data-root={quote_attribute(root)}{data}>\n'
        f'{style}<div class="ws-calc-said">\n{render_answers([result])}\n</div>\n'
        f'<form class="ws-calc-form" aria-label="Inputs" autocomplete="off" novalidate>\n'
        f'{fields}\n</form>\n<div class="ws-calc-out">\n'
        f'<p class="ws-calc-state">{CLOSED if files else SHUT}</p>\n'
        f'<div class="ws-calc-result">\n{render_details([result], context, root)}\n</div>\n'
        f"</div>{scripts}\n</div>\n"
    )


def _render_field(one: Input) -> str:
    name, kind, unit, told = one["name"], one["kind"], str(one.get("unit") or ""), str(one["help"])
    label = escape_markdown(one["label"])
    if unit and unit not in one["label"].lower():
        label += f" <span>{escape_markdown(unit)}</span>"
    wide = " ws-calc-wide" if max(map(len, one.get("choices", ("",)))) > SHORT else ""
    if kind in ("integer", "number"):
        least, most = (quantities.format_input_limit(one, key) for key in ("least", "most"))
        told = f"{told} {least} to {most}.".strip()
    return (
        f'<div class="ws-calc-field ws-calc-{kind}{wide}"><label for="calc-{name}">{label}</label>'
        f'<span class="ws-calc-values">{_input_control(one)}</span>'
        f'<small id="calc-{name}-help">{escape_markdown(told)}</small></div>'
    )


def _input_control(one: Input) -> str:
    value, name, kind = quantities.format_input(one, one["default"]), one["name"], one["kind"]
    common = (
        f'id="calc-{name}" name="{name}" data-default={quote_attribute(value)} '
        f'data-kind="{kind}" aria-describedby="calc-{name}-help"'
    )
    if kind == "choice":
        options = "".join(
            f"<option value={quote_attribute(choice)}{' selected' if choice == value else ''}>"
            f"{escape_markdown(choice)}</option>"
            for choice in one["choices"]
        )
        return f"<select {common}>{options}</select>"
    if kind == "flag":
        checked = " checked" if value == quantities.TRUE else ""
        return f'<input {common} type="checkbox"{checked}>'
    if kind == "config":
        return (
            f'<textarea {common} rows="4" spellcheck="false" maxlength="{quantities.LONGEST}" '
            f"placeholder={quote_attribute('{ … }')}>{escape_markdown(value)}</textarea>"
        )
    mode = "numeric" if kind == "integer" else "decimal"
    return (
        f'<input {common} type="text" inputmode="{mode}" spellcheck="false" maxlength="40" '
        f"value={quote_attribute(value)}>"
    )


def load_calculator(name: str) -> Any:
    """The module `calculator.py` of a snippet."""
    return importlib.import_module(f"snippets.{name}.calculator")


def answer_question(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a question."""
    module = load_calculator(question["id"])
    found, errors, kept = [], [], []
    for place, texts in enumerate(question["configurations"]):
        try:
            values = quantities.parse_inputs(module.INPUTS, texts)
            found.append(module.calculate(**values))
            kept.append({"inputs": values, **found[-1]})
        except ValueError as error:
            line = " ".join(str(error).split()) or "these values cannot be calculated"
            # The input that the line names, as in `memory_model: tensor = 3 does not divide 32`.
            inputs = (one["name"] for one in module.INPUTS)
            named = next((one for one in inputs if re.search(rf"\b{one} = ", line)), "")
            name = error.name if isinstance(error, InputError) else named
            errors.append({"place": place, "name": name, "line": line})
    if errors:
        return {"errors": errors}
    whole = {"calculator": question["id"], "configurations": kept}
    return {
        "answer": render_answers(found),
        "details": render_details(found, question.get("context", {}), question.get("root", "")),
        "json": json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False),
        "csv": quantities.csv_table(found, [name or "value" for name in NAMES[len(found)]]),
    }


def answered(question: str) -> str:
    """`answer_question`, from JSON to JSON."""
    return json.dumps(answer_question(json.loads(question)), ensure_ascii=False)


def describe_calculator(name: str) -> dict[str, Any]:
    """What a build needs to know of a calculator: its inputs, its defaults' result, its faults."""
    module = load_calculator(name)
    wrong = list(quantities.input_faults(getattr(module, "INPUTS", None)))
    if not callable(getattr(module, "calculate", None)):
        wrong.append("has no function calculate")
    found: dict[str, Any] = {"inputs": [], "result": {}, "faults": wrong}
    if not wrong:
        result = module.calculate(**{one["name"]: one["default"] for one in module.INPUTS})
        wrong += quantities.result_faults(result)
    return found if wrong else {**found, "inputs": module.INPUTS, "result": result}


if __name__ == "__main__":
    print(json.dumps(describe_calculator(sys.argv[1])))
