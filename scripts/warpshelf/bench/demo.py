"""What a snippet's demo() printed: cut out of a child's output, checked, compared."""

from __future__ import annotations

import math
import re

LINES = 30  # that a demo may print
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
RELATIVE = 1e-3  # by which a number may differ from machine to machine


class Unfit(Exception):
    """A demo's output cannot be published; the text says why."""


def between_marks(output: bytes, token: str) -> tuple[bytes, bytes]:
    """The output of the two runs of demo(), between the marks that the child printed."""
    parts = re.split(rb"\n" + token.encode() + rb" [a-z0-9 ]+\n", output)
    if len(parts) != 4:
        raise Unfit("demo() printed nothing that could be read")
    return parts[1], parts[2]


def checked(first: bytes, second: bytes) -> str:
    """The text to publish.

    Raises:
        Unfit: it is empty, too long, not UTF-8, or was other the second time.
    """
    texts = []
    for printed in (first, second):
        try:
            texts.append(printed.decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = printed[error.start]
            raise Unfit(f"demo() printed the byte 0x{byte:02x}, which is not UTF-8") from None
    if not texts[0].strip():
        raise Unfit("demo() printed nothing")
    if (count := len(texts[0].splitlines())) > LINES:
        raise Unfit(f"demo() printed {count} lines; the limit is {LINES}")
    if len(texts[0]) > 200 * LINES:
        raise Unfit(f"demo() printed {len(texts[0])} characters; the limit is {200 * LINES}")
    if texts[0] != texts[1]:
        raise Unfit(f"demo() printed something else the second time: {difference(*texts)}")
    return texts[0]


def agree(first: str, second: str) -> bool:
    """Whether two texts are the same but for numbers that are close.

    Blanks beside a number do not count: a column has one more where 10.001 becomes 9.999.
    """
    old, new = ([part.strip(" \t") for part in NUMBER.split(text)] for text in (first, second))
    if old != new:
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=RELATIVE) for a, b in pairs)


def difference(first: str, second: str) -> str:
    """The first line in which two texts differ, from both."""
    old, new = first.splitlines(), second.splitlines()
    for index in range(max(len(old), len(new))):
        a = old[index] if index < len(old) else "nothing"
        b = new[index] if index < len(new) else "nothing"
        if a != b:
            return f"line {index + 1} is {b!r:.80} where {a!r:.80} stood"
    return "the line ends differ"
