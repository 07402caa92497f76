"""Where the functions are noted that compute an opcode's results, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Handler = Callable[..., int | tuple[int, ...]]
H = TypeVar("H", bound=Handler)
HANDLERS: dict[str, Handler] = {}


def handles(*opcodes: str) -> Callable[[H], H]:
    """The function below computes what the forms of these opcodes do.

    It gets the row that a form has matched, and the bits of each operand.

    Raises:
        ValueError: another one does so already.
    """

    def note(handler: H) -> H:
        for opcode in opcodes:
            if opcode in HANDLERS:
                raise ValueError(f"two handlers compute {opcode}")
            HANDLERS[opcode] = handler
        return handler

    return note
