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

from warpshelf.core.markup import attribute, escape
from warpshelf.live import charts, quantities
from warpshelf.live.quantities import InputError

FIRST, SECOND = "first", "second"
MANY = 10  # published rows from which on nine in ten are something


def names_of(count: int) -> tuple[str, ...]:
    """What the results are called: nothing where there is but one."""
    return ("",) if count == 1 else (FIRST, SECOND)


def answers(found: Sequence[Mapping[str, Any]]) -> str:
    """The sentence that each of one or two results comes to."""
    names = names_of(len(found))
    heads = (f"<strong>{name}</strong> " if name else "" for name in names)
    return "\n".join(
        f'<p class="ws-calc-answer">{head}{escape(result["answer"])}</p>'
        for head, result in zip(heads, found, strict=True)
    )


def details(found: Sequence[Mapping[str, Any]], context: Mapping[str, Any], root: str) -> str:
    """What error to expect of one or two results, their lines, plots and notes.

    `context` has the titles and places of sources, the place of the tests and the bands of error;
    `root` leads from the page to the site's own address.
    """
    names = names_of(len(found))
    plots = charts.figures([result.get("plots") or () for result in found], names)
    bands = dict.fromkeys(band(result, context) for result in found)
    parts = [
        *(f'<p class="ws-calc-band">{escape(words)}</p>' for words in bands if words),
        _table(found, names, context, root),
        '<div class="ws-plots">\n' + "\n".join(plots) + "\n</div>" if plots else "",
        _notes(found),
    ]
    return "\n".join(part for part in parts if part)


def band(result: Mapping[str, Any], context: Mapping[str, Any]) -> str:
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


def _table(
    found: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    context: Mapping[str, Any],
    root: str,
) -> str:
    heads = ["Quantity", *(("Value",) if len(found) == 1 else ("First", "Second", "Ratio"))]
    cells = " ".join(f'<th scope="col">{head}</th>' for head in heads)
    bodies = []
    for rows in quantities.paired(found):
        one = next(row for row in rows if row)
        shown = ["none" if row is None else quantities.shown(row["value"], row["unit"])
                 for row in rows]  # fmt: skip
        if len(rows) == 2:
            first, second = rows
            shown.append(quantities.against(second["value"], first["value"])
                         if first and second else "")  # fmt: skip
        values = "".join(f" <td>{escape(value)}</td>" for value in shown)
        bodies.append(
            f'<tbody><tr><th scope="row">{escape(one["name"])}</th>{values}</tr>\n'
            f'<tr class="ws-calc-how"><td colspan="{len(heads)}">'
            f"<div>{_how(one, context, root)}</div></td></tr></tbody>"
        )
    title = "What it comes to"
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={attribute(title)}>'
        f'<table class="ws-table ws-calc-table"><caption><strong>{title}</strong></caption>\n'
        f"<thead><tr>{cells}</tr></thead>\n" + "\n".join(bodies) + "\n</table></div>"
    )


def _how(row: Mapping[str, Any], context: Mapping[str, Any], root: str) -> str:
    """Formula, source and test of a line."""
    parts = [f"<code>{escape(row['formula'])}</code>"] if row["formula"] else []
    if row["source"]:
        parts.append(f"from {_source(str(row['source']), context, root)}")
    if row["test"]:
        place = context.get("page")
        test = escape(row["test"])
        linked = f"<a href={attribute(root + place)}>{test}</a>" if place else test
        parts.append(f"held by {linked}")
    return "; ".join(parts)


def _source(name: str, context: Mapping[str, Any], root: str) -> str:
    known = context.get("sources", {}).get(name)
    if known is None:
        return escape(name)
    title, place = known
    return f"<a href={attribute(root + place)}>{escape(title)}</a>"


def _notes(found: Sequence[Mapping[str, Any]]) -> str:
    notes = dict.fromkeys(str(note) for result in found for note in result.get("notes") or ())
    if not notes:
        return ""
    items = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="ws-calc-notes">\n{items}\n</ul>'


SHUT = (
    "Worked out when this page was built, from the values in the form. This build has no Python "
    "for the browser, so they cannot be changed here."
)
SHORT = 11  # characters of a choice that have room beside its label
CLOSED = "Worked out when this page was built, from the values in the form."


def page(
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
    data = "".join(f" data-{key}={attribute(root + where)}" for key, where in files.items())
    data += f' data-weight="{weight}"' if files else ""
    groups = [(group, list(members)) for group, members in groupby(spec, lambda one: one["group"])]
    fields = "\n".join(_group(group, members) for group, members in groups)
    scripts = ""
    if files:
        source = attribute(root + "assets/calculators.js")
        scripts = f'\n<script type="module" src={source}></script>'
    style = f'<link rel="stylesheet" href={attribute(root + "assets/calculators.css")}>'
    return (
        f'<div class="ws-calc" data-calculator="{name}" data-root={attribute(root)}{data}>\n{style}'
        f'<div class="ws-calc-said">\n{answers([result])}\n</div>\n'
        f'<form class="ws-calc-form" aria-label="Inputs" autocomplete="off" novalidate>\n'
        f"{fields}\n</form>\n"
        f'<div class="ws-calc-out">\n'
        f'<p class="ws-calc-state">{CLOSED if files else SHUT}</p>\n'
        f'<div class="ws-calc-result">\n{details([result], context, root)}\n</div>\n'
        f"</div>{scripts}\n</div>\n"
    )


def _group(name: str, members: Sequence[Mapping[str, Any]]) -> str:
    inner = "\n".join(_field(one) for one in members)
    return f"<fieldset disabled><legend>{escape(name)}</legend>\n{inner}\n</fieldset>"


def _field(one: Mapping[str, Any]) -> str:
    name = one["name"]
    said = str(one.get("unit") or "")
    unit = f" <span>{escape(said)}</span>" if said and said not in one["label"].lower() else ""
    label = f'<label for="calc-{name}">{escape(one["label"])}{unit}</label>'
    wide = " ws-calc-wide" if max(map(len, one.get("choices", ("",)))) > SHORT else ""
    note = f'<small id="calc-{name}-help">{escape(_help(one))}</small>'
    return (
        f'<div class="ws-calc-field ws-calc-{one["kind"]}{wide}">{label}'
        f'<span class="ws-calc-values">{_control(one)}</span>{note}</div>'
    )


def _help(one: Mapping[str, Any]) -> str:
    said = str(one["help"])
    if one["kind"] not in ("integer", "number"):
        return said
    return (
        f"{said} {quantities.limit_of(one, 'least')} to {quantities.limit_of(one, 'most')}.".strip()
    )


def _control(one: Mapping[str, Any]) -> str:
    value = quantities.text_of(one, one["default"])
    name = one["name"]
    common = (
        f'id="calc-{name}" name="{name}" data-default={attribute(value)} '
        f'data-kind="{one["kind"]}" aria-describedby="calc-{name}-help"'
    )
    if one["kind"] == "choice":
        options = "".join(
            f"<option value={attribute(choice)}{' selected' if choice == value else ''}>"
            f"{escape(choice)}</option>"
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
            f"placeholder={attribute('{ … }')}>{escape(value)}</textarea>"
        )
    mode = "numeric" if one["kind"] == "integer" else "decimal"
    return (
        f'<input {common} type="text" inputmode="{mode}" spellcheck="false" maxlength="40" '
        f"value={attribute(value)}>"
    )


def calculator(name: str) -> Any:
    """The module `calculator.py` of a snippet."""
    return importlib.import_module(f"snippets.{name}.calculator")


def respond(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a question."""
    module = calculator(question["id"])
    found, errors, given = [], [], []
    for place, texts in enumerate(question["configurations"]):
        try:
            values = quantities.typed(module.INPUTS, texts)
            result = module.calculate(**values)
        except InputError as error:
            errors.append({"place": place, "name": error.name, "line": str(error)})
        except ValueError as error:
            name = _named(str(error), module.INPUTS)
            errors.append({"place": place, "name": name, "line": _line(error)})
        else:
            found.append(result)
            given.append(values)
    if errors:
        return {"errors": errors}
    names = names_of(len(found))
    kept = [{"inputs": values, **result} for values, result in zip(given, found, strict=True)]
    around = question.get("context", {})
    return {
        "answer": answers(found),
        "details": details(found, around, question.get("root", "")),
        "json": json.dumps(
            {"calculator": question["id"], "configurations": kept},
            indent=1, ensure_ascii=False, allow_nan=False,
        ),
        "csv": quantities.table(found, [name or "value" for name in names]),
    }  # fmt: skip


def _line(error: ValueError) -> str:
    return " ".join(str(error).split()) or "these values cannot be calculated"


def _named(line: str, spec: Sequence[Mapping[str, Any]]) -> str:
    """The input that an error names, as in `memory_model: tensor = 3 does not divide 32`."""
    names = [one["name"] for one in spec if re.search(rf"\b{one['name']} = ", line)]
    return names[0] if names else ""


def answered(question: str) -> str:
    """`respond`, from JSON to JSON."""
    return json.dumps(respond(json.loads(question)), ensure_ascii=False)


def described(name: str) -> dict[str, Any]:
    """What a build needs to know of a calculator: its inputs, its defaults' result, its faults."""
    module = calculator(name)
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
    print(json.dumps({name: described(name) for name in asked}))
