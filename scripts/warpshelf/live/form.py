"""A calculator on its page: its form, and a question answered, at the build and in a browser alike.

The page is whole without scripts: then the form is shut, and shows what the answer was computed
from. A script opens it and puts a second configuration beside the first.

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

FIRST, SECOND = "first", "second"
MANY = 10  # published rows from which on nine in ten are something


def result_names(count: int) -> tuple[str, ...]:
    """What the results are called: nothing where there is but one."""
    return ("",) if count == 1 else (FIRST, SECOND)


def render_answers(found: Sequence[Mapping[str, Any]]) -> str:
    """The sentence that each of one or two results comes to."""
    names = result_names(len(found))
    heads = (f"<strong>{name}</strong> " if name else "" for name in names)
    return "\n".join(
        f'<p class="ws-calc-answer">{head}{escape_markdown(result["answer"])}</p>'
        for head, result in zip(heads, found, strict=True)
    )


def render_details(
    found: Sequence[Mapping[str, Any]], context: Mapping[str, Any], root: str
) -> str:
    """What error to expect of one or two results, their lines, plots and notes.

    `context` has the titles and places of sources, the place of the tests and the bands of error;
    `root` leads from the page to the site's own address.
    """
    names = result_names(len(found))
    plots = charts.draw_charts([result.get("plots") or () for result in found], names)
    bands = dict.fromkeys(error_band(result, context) for result in found)
    parts = [
        *(f'<p class="ws-calc-band">{escape_markdown(words)}</p>' for words in bands if words),
        _result_table(found, names, context, root),
        '<div class="ws-plots">\n' + "\n".join(plots) + "\n</div>" if plots else "",
        _render_notes(found),
    ]
    return "\n".join(part for part in parts if part)


def error_band(result: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """How far such a prediction was off where it could be compared, in words; "" where unknown."""
    named = result.get("band")
    if not named:
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


def _result_table(
    found: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    context: Mapping[str, Any],
    root: str,
) -> str:
    heads = ["Quantity", *(("Value",) if len(found) == 1 else ("First", "Second", "Ratio"))]
    cells = " ".join(f'<th scope="col">{head}</th>' for head in heads)
    bodies = []
    for rows in quantities.pair_rows(found):
        one = next(row for row in rows if row)
        shown = ["none" if row is None else quantities.format_value(row["value"], row["unit"])
                 for row in rows]  # fmt: skip
        if len(rows) == 2:
            first, second = rows
            shown.append(quantities.compare_values(second["value"], first["value"])
                         if first and second else "")  # fmt: skip
        values = "".join(f" <td>{escape_markdown(value)}</td>" for value in shown)
        bodies.append(
            f'<tbody><tr><th scope="row">{escape_markdown(one["name"])}</th>{values}</tr>\n'
            f'<tr class="ws-calc-how"><td colspan="{len(heads)}">'
            f"<div>{_row_provenance(one, context, root)}</div></td></tr></tbody>"
        )
    title = "What it comes to"
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={quote_attribute(title)}>'
        f'<table class="ws-table ws-calc-table"><caption><strong>{title}</strong></caption>\n'
        f"<thead><tr>{cells}</tr></thead>\n" + "\n".join(bodies) + "\n</table></div>"
    )


def _row_provenance(row: Mapping[str, Any], context: Mapping[str, Any], root: str) -> str:
    """Formula, source and test of a line."""
    parts = [f"<code>{escape_markdown(row['formula'])}</code>"] if row["formula"] else []
    if row["source"]:
        parts.append(f"from {_source_link(str(row['source']), context, root)}")
    if row["test"]:
        place = context.get("page")
        test = escape_markdown(row["test"])
        linked = f"<a href={quote_attribute(root + place)}>{test}</a>" if place else test
        parts.append(f"held by {linked}")
    return "; ".join(parts)


def _source_link(name: str, context: Mapping[str, Any], root: str) -> str:
    known = context.get("sources", {}).get(name)
    if known is None:
        return escape_markdown(name)
    title, place = known
    return f"<a href={quote_attribute(root + place)}>{escape_markdown(title)}</a>"


def _render_notes(found: Sequence[Mapping[str, Any]]) -> str:
    notes = dict.fromkeys(str(note) for result in found for note in result.get("notes") or ())
    if not notes:
        return ""
    items = "\n".join(f"<li>{escape_markdown(note)}</li>" for note in notes)
    return f'<ul class="ws-calc-notes">\n{items}\n</ul>'


SHUT = (
    "Worked out when this page was built, from the values in the form. This build has no Python "
    "for the browser, so they cannot be changed here."
)
SHORT = 11  # characters of a choice that have room beside its label
CLOSED = "Worked out when this page was built, from the values in the form."


def render_calculator(
    name: str,
    spec: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    context: Mapping[str, Any],
    root: str,
    files: Mapping[str, str],
    weight: int = 0,
) -> str:
    """The HTML of a calculator.

    `files` are the addresses of what a browser runs, if there is anything, and `weight` its bytes.
    """
    data = "".join(f" data-{key}={quote_attribute(root + where)}" for key, where in files.items())
    data += f' data-weight="{weight}"' if files else ""
    groups = [(group, list(members)) for group, members in groupby(spec, lambda one: one["group"])]
    fields = "\n".join(_render_fieldset(group, members) for group, members in groups)
    scripts = ""
    if files:
        source = quote_attribute(root + "assets/calculators.js")
        scripts = f'\n<script type="module" src={source}></script>'
    style = f'<link rel="stylesheet" href={quote_attribute(root + "assets/calculators.css")}>'
    return (
        f'<div class="ws-calc" data-calculator="{name}" data-root={quote_attribute(root)}{data}>\n'
        f"{style}"
        f'<div class="ws-calc-said">\n{render_answers([result])}\n</div>\n'
        f'<form class="ws-calc-form" aria-label="Inputs" autocomplete="off" novalidate>\n'
        f"{fields}\n</form>\n"
        f'<div class="ws-calc-out">\n'
        f'<p class="ws-calc-state">{CLOSED if files else SHUT}</p>\n'
        f'<div class="ws-calc-result">\n{render_details([result], context, root)}\n</div>\n'
        f"</div>{scripts}\n</div>\n"
    )


def _render_fieldset(name: str, members: Sequence[Mapping[str, Any]]) -> str:
    inner = "\n".join(_render_field(one) for one in members)
    return f"<fieldset disabled><legend>{escape_markdown(name)}</legend>\n{inner}\n</fieldset>"


def _render_field(one: Mapping[str, Any]) -> str:
    name = one["name"]
    said = str(one.get("unit") or "")
    unit = (
        f" <span>{escape_markdown(said)}</span>"
        if said and said not in one["label"].lower()
        else ""
    )
    label = f'<label for="calc-{name}">{escape_markdown(one["label"])}{unit}</label>'
    wide = " ws-calc-wide" if max(map(len, one.get("choices", ("",)))) > SHORT else ""
    note = f'<small id="calc-{name}-help">{escape_markdown(_field_help(one))}</small>'
    return (
        f'<div class="ws-calc-field ws-calc-{one["kind"]}{wide}">{label}'
        f'<span class="ws-calc-values">{_input_control(one)}</span>{note}</div>'
    )


def _field_help(one: Mapping[str, Any]) -> str:
    said = str(one["help"])
    if one["kind"] not in ("integer", "number"):
        return said
    least = quantities.format_input_limit(one, "least")
    most = quantities.format_input_limit(one, "most")
    return f"{said} {least} to {most}.".strip()


def _input_control(one: Mapping[str, Any]) -> str:
    value = quantities.format_input(one, one["default"])
    name = one["name"]
    common = (
        f'id="calc-{name}" name="{name}" data-default={quote_attribute(value)} '
        f'data-kind="{one["kind"]}" aria-describedby="calc-{name}-help"'
    )
    if one["kind"] == "choice":
        options = "".join(
            f"<option value={quote_attribute(choice)}{' selected' if choice == value else ''}>"
            f"{escape_markdown(choice)}</option>"
            for choice in one["choices"]
        )
        return f"<select {common}>{options}</select>"
    if one["kind"] == "flag":
        checked = " checked" if value == quantities.TRUE else ""
        return f'<input {common} type="checkbox"{checked}>'
    if one["kind"] == "config":
        most = quantities.LONGEST
        return (
            f'<textarea {common} rows="4" spellcheck="false" maxlength="{most}" '
            f"placeholder={quote_attribute('{ … }')}>{escape_markdown(value)}</textarea>"
        )
    mode = "numeric" if one["kind"] == "integer" else "decimal"
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
    found, errors, given = [], [], []
    for place, texts in enumerate(question["configurations"]):
        try:
            values = quantities.parse_inputs(module.INPUTS, texts)
            result = module.calculate(**values)
        except InputError as error:
            errors.append({"place": place, "name": error.name, "line": str(error)})
        except ValueError as error:
            name = _named_input(str(error), module.INPUTS)
            errors.append({"place": place, "name": name, "line": _error_line(error)})
        else:
            found.append(result)
            given.append(values)
    if errors:
        return {"errors": errors}
    names = result_names(len(found))
    kept = [{"inputs": values, **result} for values, result in zip(given, found, strict=True)]
    around = question.get("context", {})
    return {
        "answer": render_answers(found),
        "details": render_details(found, around, question.get("root", "")),
        "json": json.dumps(
            {"calculator": question["id"], "configurations": kept},
            indent=1, ensure_ascii=False, allow_nan=False,
        ),
        "csv": quantities.csv_table(found, [name or "value" for name in names]),
    }  # fmt: skip


def _error_line(error: ValueError) -> str:
    return " ".join(str(error).split()) or "these values cannot be calculated"


def _named_input(line: str, spec: Sequence[Mapping[str, Any]]) -> str:
    """The input that an error names, as in `memory_model: tensor = 3 does not divide 32`."""
    names = [one["name"] for one in spec if re.search(rf"\b{one['name']} = ", line)]
    return names[0] if names else ""


def answered(question: str) -> str:
    """`answer_question`, from JSON to JSON."""
    return json.dumps(answer_question(json.loads(question)), ensure_ascii=False)


def describe_calculator(name: str) -> dict[str, Any]:
    """What a build needs to know of a calculator: its inputs, its defaults' result, its faults."""
    module = load_calculator(name)
    spec = getattr(module, "INPUTS", None)
    wrong = list(quantities.input_faults(spec))
    if not callable(getattr(module, "calculate", None)):
        wrong.append("has no function calculate")
    if wrong:
        return {"faults": wrong}
    result = module.calculate(**{one["name"]: one["default"] for one in module.INPUTS})
    if wrong := list(quantities.result_faults(result)):
        return {"faults": wrong}
    return {"inputs": module.INPUTS, "result": result, "faults": []}


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    print(json.dumps({name: describe_calculator(name) for name in asked}))
