"""What names mean where they stand: between two braces, and between those around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from papergpu.steps import Label, Register, Symbol, room


@dataclass
class Scope:
    """What names mean between two braces."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[str, int]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Names:
    """The scopes that are open, the innermost last."""

    def __init__(self, symbols: dict[str, Symbol]) -> None:
        self.scopes: list[Scope] = [Scope(symbols=symbols)]

    def register(self, name: str) -> Register | None:
        """The register that a name means here."""
        found = self.scopes[-1].registers.get(name)
        if found is not None:
            return found
        for scope in reversed(self.scopes):
            found = scope.registers.get(name)
            if found is not None:
                return found
        stem = name.rstrip("0123456789")
        if stem != name:
            for scope in reversed(self.scopes):
                known = scope.ranges.get(stem)
                if known and int(name[len(stem) :]) < known[1]:
                    made = scope.registers[name] = Register(room(known[0]), known[0])
                    return made
        return None

    def symbol(self, name: str) -> Symbol | None:
        """The variable that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return None
