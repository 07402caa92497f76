"""The PTX of one kernel out of a module, without what is for debuggers, lines still numbered."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

HEAD = re.compile(r"(?:\.\w+\s+)*\.(?:entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")
NAME = re.compile(r"[%$\w]+")
LABEL = re.compile(r"([%$\w]+):")
REGISTER = re.compile(r"%([a-z]+)(\d+)\b")
DISTANCE = re.compile(r"%([a-z]+)([+-]\d+)")
SPARE = re.compile(r"\.(?:loc|file|pragma|reg|maxntid|reqntid|minnctapersm|section|b8|b32|b64)\b")


def function_ranges(lines: Sequence[str]) -> dict[str, range]:
    """Where each kernel and function of a module stands, its head included: lines from 1."""
    found: dict[str, range] = {}
    name, start, depth, opened = "", 0, 0, False
    for number, line in enumerate(lines, 1):
        text = _strip_comment(line)
        if not name:
            if text.startswith(".") and (match := HEAD.match(_function_head(lines, number))):
                name, start, depth, opened = match[1], number, 0, False
            else:
                continue
        depth += text.count("{") - text.count("}")
        opened = opened or "{" in text
        if opened and depth <= 0:
            found[name], name = range(start, number + 1), ""
        elif not opened and text.endswith(";"):
            name = ""  # declared alone
    return found


def kernel_names(lines: Sequence[str]) -> list[str]:
    """The names of the kernels of a module, without the functions that they call."""
    return [
        name
        for name, body in function_ranges(lines).items()
        if re.match(r"(?:\.\w+\s+)*\.entry\b", _strip_comment(lines[body[0] - 1]))
    ]


def _function_head(lines: Sequence[str], number: int) -> str:
    """A line with the next, on which the name of a function with results stands."""
    if not re.match(r"(?:\.\w+\s+)*\.(?:entry|func)\b", _strip_comment(lines[number - 1])):
        return ""
    return " ".join(_strip_comment(one) for one in lines[number - 1 : number + 2])


def enclosing_kernel(lines: Sequence[str], number: int) -> str:
    """The name of the kernel or function that line `number`, from 1, stands in.

    Raises:
        ValueError: it stands in none.
    """
    for name, body in function_ranges(lines).items():
        if number in body:
            return name
    raise ValueError(f"line {number} of the PTX stands in no kernel")


def kernel_lines(
    lines: Sequence[str], name: str, numbers: Collection[int] = ()
) -> list[tuple[int, str]]:
    """A kernel, and the functions that `numbers` reach into: (line from 1, text) of each line.

    Declarations of registers, marks for debuggers, comments, and labels that nothing names are
    left out.

    Raises:
        KeyError: there is no such kernel.
    """
    known = function_ranges(lines)
    known[name]
    wanted = [
        body
        for one, body in known.items()
        if one == name or any(number in body for number in numbers)
    ]
    kept = [
        (number, text)
        for body in wanted
        for number in body
        if (text := _strip_comment(lines[number - 1])) and not SPARE.match(text)
    ]
    named = {word for _, text in kept if not LABEL.fullmatch(text) for word in NAME.findall(text)}
    return [
        (number, text)
        for number, text in kept
        if not (match := LABEL.fullmatch(text)) or match[1] in named
    ]


def encode_registers(lines: Iterable[str]) -> list[str]:
    """Lines in which each register is the distance from the one of its type before: `%r+1`.

    So a register more does not give all others behind it another name, and the text is compressed
    to two thirds.
    """
    before: dict[str, int] = {}

    def encode_register(found: re.Match[str]) -> str:
        name, number = found[1], int(found[2])
        far = number - before.get(name, 0)
        before[name] = number
        return f"%{name}{far:+d}"

    return [REGISTER.sub(encode_register, line) for line in lines]


def decode_registers(lines: Iterable[str]) -> list[str]:
    """What `encode_registers` was made of."""
    before: dict[str, int] = {}

    def decode_register(found: re.Match[str]) -> str:
        before[found[1]] = before.get(found[1], 0) + int(found[2])
        return f"%{found[1]}{before[found[1]]}"

    return [DISTANCE.sub(decode_register, line) for line in lines]


def _strip_comment(line: str) -> str:
    """A line without its comment, its spaces one at a time."""
    return " ".join(line.partition("//")[0].split())
