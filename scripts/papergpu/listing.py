"""What is executed, for people and for programs: the table of forms, and the forms in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papergpu.forms import FORMS, Form, Slot, Unknown, find
from papergpu.parse import Unreadable, parse

LEGEND = """\
Every form that is executed: opcode, least version of PTX, least target, types, and modifiers in
order. A modifier is one of those with | between them, may be left out where ? stands behind, and
has the name before =. Types are those of the operands, the result first: t is whatever modifier t
is, wide twice as wide, dot u32 where x and y are and s32 elsewhere, preds two predicates, bool a
b32 and a predicate, imm8 a constant; - says that it is no function of one thread's operands."""


def table() -> str:
    """The table of forms by chapters of the PTX ISA, a line for each row."""
    lines, chapter = [LEGEND], ""
    for form in FORMS:
        if form.chapter != chapter:
            chapter = form.chapter
            lines.append(f"\n{chapter}")
        opcode, types = "|".join(form.slots[0][1]), " ".join(form.operands)
        modifiers = map(_pattern, form.slots[1:])
        said = f"  {opcode:21} PTX {_version(form)}  {_target(form):6}  {types:20}"
        lines.append(f"{said} {' '.join(modifiers)}".rstrip())
    return "\n".join(lines)


def _pattern(slot: Slot) -> str:
    """A slot as the table has it: `r=rn|rz?`."""
    name, choices, optional = slot
    written = "|".join(choices)
    return f"{'' if name == written else f'{name}='}{written}{'?' if optional else ''}"


def rows() -> list[dict[str, object]]:
    """The table for programs; `operands` is null where what is done is no function of them."""
    return [_row(form) for form in FORMS]


def _version(form: Form) -> str:
    return ".".join(map(str, form.version))


def _target(form: Form) -> str:
    return f"sm_{form.target}"


def _row(form: Form) -> dict[str, object]:
    (_, opcodes, _), *modifiers = form.slots
    return {
        "name": form.name,
        "opcodes": opcodes,
        "modifiers": [
            {"name": name, "choices": choices, "optional": optional}
            for name, choices, optional in modifiers
        ],
        "operands": None if form.operands == ("-",) else form.operands,
        "version": _version(form),
        "target": _target(form),
        "chapter": form.chapter,
    }


@dataclass(frozen=True)
class Counted:
    """A form in a file: how often it stands there, and its chapter, None if it is not executed."""

    form: str
    count: int
    chapter: str | None


def counted(path: str) -> list[Counted]:
    """The forms in a file of PTX.

    Raises:
        ValueError: the file cannot be read, or is no PTX.
    """
    try:
        module = parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); name a file of PTX"
        raise ValueError(message) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text; name a file of PTX, not a cubin") from None
    except Unreadable as error:
        raise ValueError(f"{path}:{error}; give PTX as a compiler writes it") from None
    found = Counter(one.form for one in module.instructions())
    return [Counted(form, count, _chapter(form)) for form, count in sorted(found.items())]


def _chapter(form: str) -> str | None:
    try:
        return find(form).form.chapter
    except Unknown:
        return None


def of_file(path: str, found: Sequence[Counted]) -> str:
    """What `counted` found, a line for each form and one for all."""
    lines = [
        f"{one.count:6}  {one.form:50}  {one.chapter or 'not in the table of forms'}"
        for one in found
    ]
    total = sum(one.count for one in found)
    missing = sum(one.chapter is None for one in found)
    lines.append(f"{path}: {total} instructions in {len(found)} forms, {missing} not in the table")
    return "\n".join(lines)
