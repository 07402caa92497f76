"""Operands by their texts, each of which is read once: most stand in a program several times."""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from papergpu.tree import Address, Float, Integer, Name, Operand, Opposite, Vector
from papergpu.words import GAP, INTEGER, NAME

COMMENT = r"//[^\n]*+|/\*.*?\*/"
_INNER = rf"(?:[^;:/{{}}\[\]()\"]++|{COMMENT})*+"
# What an instruction has behind its opcode: no bracket is open at its end.
LIST = (
    rf"(?:[^;:/{{}}\[\]()\"]++|\{{{_INNER}\}}|\({_INNER}\)|{COMMENT}"
    rf"|\[(?:[^;:/\[\]()\"]++|{COMMENT})*+\])*+"
)
_COMMENT = re.compile(COMMENT, re.S)
_PLAIN = re.compile(NAME)
_PART = re.compile(r"(?:[^,\[{(]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+")
_MOVED = re.compile(
    rf"(?:generic{GAP}\(\s*(?P<of>{NAME})\s*\)|(?P<name>{NAME}))"
    rf"(?P<by>(?:\s*[+-]\s*-?\s*{INTEGER})*)"
)
_STEP = re.compile(rf"([+-])\s*(-?)\s*({INTEGER})")
_INTEGER = re.compile(INTEGER)
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_DECIMAL = re.compile(r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?")


def operands(text: str) -> tuple[Operand, ...]:
    """The operands of an instruction, from behind its opcode up to its semicolon.

    Raises:
        ValueError: one of them is none.
    """
    if "/" in text:
        text = _COMMENT.sub(" ", text)
    return tuple([operand(one) for one in parts(text)])


def parts(text: str) -> list[str]:
    """What stands between the commas of a text that are in no bracket."""
    if not text or text.isspace():
        return []
    if not ("[" in text or "{" in text or "(" in text):
        return text.split(",")
    found: list[str] = _PART.findall(text)
    if ",".join(found) != text:
        raise ValueError(f"{text.strip()[:40]!r} are no operands")
    return found


@lru_cache(1 << 16)
def operand(text: str) -> Operand:
    """The operand that a text is.

    Raises:
        ValueError: it is none.
    """
    text = text.strip(" \t\r\n")
    if _PLAIN.fullmatch(text):
        return Name(text)
    brackets = text[:1] + text[-1:]
    if brackets == "[]":
        base, *more = [operand(one) for one in parts(text[1:-1])] or [Name("")]
        return Address(base, tuple(more))
    if brackets in ("{}", "()"):
        return Vector(tuple([operand(one) for one in parts(text[1:-1])]), text[0])
    first, bar, second = text.partition("|")
    if bar and "|" not in second:
        return Vector((operand(first), operand(second)), "|")
    if text[:1] in ("-", "!") and not text[1:].lstrip().startswith(("-", "!")):
        return Opposite(text[0], operand(text[1:]))
    moved = _MOVED.fullmatch(text)
    if moved is not None:
        steps = _STEP.findall(moved["by"])
        by = sum(integer(size).value * (1 if sign == "+" else -1) * (-1 if minus else 1)
                 for sign, minus, size in steps)  # fmt: skip
        return Name(moved["of"] or moved["name"], by)
    if _FLOAT.fullmatch(text):
        return Float(int(text[2:], 16), 32 if text[1] in "fF" else 64)
    if _DECIMAL.fullmatch(text):
        return Float(int.from_bytes(struct.pack(">d", float(text)), "big"), 64)
    if _INTEGER.fullmatch(text):
        return integer(text)
    raise ValueError(f"{text[:40]!r} is no operand")


@lru_cache(1 << 14)
def integer(text: str) -> Integer:
    """The constant that is written so: `0x1F`, `017`, `5U`."""
    digits = text.removesuffix("U")
    base = {"0x": 16, "0b": 2}.get(
        digits[:2].lower(), 8 if digits[0] == "0" and digits != "0" else 10
    )
    try:
        value = int(digits[2:] if base in (16, 2) else digits, base)
    except ValueError:
        value = int(digits)
    return Integer(value, text.endswith("U"))
