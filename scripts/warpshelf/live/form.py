"""A calculator on its page: the form, and below it the answer to the defaults.

It is whole without scripts: then the form is shut, and shows what the answer was computed from. A
script opens it and puts a second configuration beside the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from warpshelf.core.markup import attribute, escape
from warpshelf.live import inputs, shown

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
        f'<div class="ws-calc-said">\n{shown.answers([result])}\n</div>\n'
        f'<form class="ws-calc-form" aria-label="Inputs" autocomplete="off" novalidate>\n'
        f"{fields}\n</form>\n"
        f'<div class="ws-calc-out">\n'
        f'<p class="ws-calc-state">{CLOSED if files else SHUT}</p>\n'
        f'<div class="ws-calc-result">\n{shown.details([result], context, root)}\n</div>\n'
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
    return f"{said} {inputs.limit_of(one, 'least')} to {inputs.limit_of(one, 'most')}.".strip()


def _control(one: Mapping[str, Any]) -> str:
    value = inputs.text_of(one, one["default"])
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
        checked = " checked" if value == inputs.TRUE else ""
        return f'<input {common} type="checkbox"{checked}>'
    if one["kind"] == "config":
        most = inputs.LONGEST
        return (
            f'<textarea {common} rows="4" spellcheck="false" maxlength="{most}" '
            f"placeholder={attribute('{ … }')}>{escape(value)}</textarea>"
        )
    mode = "numeric" if one["kind"] == "integer" else "decimal"
    return (
        f'<input {common} type="text" inputmode="{mode}" spellcheck="false" maxlength="40" '
        f"value={attribute(value)}>"
    )
