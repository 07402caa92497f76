"""The names of C++ in the symbols of PTX, as far as they find a kernel or a variable."""

from __future__ import annotations

import re


def qualified(symbol: str) -> tuple[str, ...]:
    """The parts of a symbol's name, `("ns", "scale")` of `_ZN2ns5scaleEPf`; templates keep no list.

    Unnamed namespaces are left out. A symbol that is not mangled is its own name.
    """
    if not symbol.startswith("_Z"):
        return (symbol,)
    at = 2
    nested = symbol.startswith("N", at)
    at += nested
    parts: list[str] = []
    while at < len(symbol):
        if symbol.startswith("L", at):
            at += 1
        length = re.match(r"\d+", symbol[at:])
        if length is None:
            break
        at += len(length[0])
        part = symbol[at : at + int(length[0])]
        at += len(part)
        if not re.match(r"_GLOBAL__N_|_INTERNAL_|\d*_GLOBAL__N|_NV_ANON", part):
            parts.append(part)
        if symbol.startswith("I", at) or not nested:
            break
    return tuple(parts) or (symbol,)


def matching(symbols: list[str], name: str) -> list[str]:
    """The symbols that a name without template arguments may mean."""
    if name in symbols:
        return [name]
    wanted = tuple(part for part in name.replace(" ", "").split("::") if part)
    found = [one for one in symbols if qualified(one) == wanted]
    return found or [one for one in symbols if qualified(one)[-len(wanted) :] == wanted]
