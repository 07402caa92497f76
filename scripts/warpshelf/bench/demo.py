"""What a snippet's demo() printed: cut out of a child's output and checked."""

from __future__ import annotations

import re

from warpshelf.records.printed import agree as agree
from warpshelf.records.printed import difference as difference

LINES = 30  # that a demo may print


class Unfit(Exception):
    """A demo's output cannot be published; the text says why."""


def between_marks(output: bytes, token: str, runs: int = 2) -> tuple[bytes, ...]:
    """The output of each of the runs of demo(), between the marks that the child printed.

    Raises:
        Unfit: there are more marks than that, or fewer.
    """
    parts = re.split(rb"\n" + token.encode() + rb" [a-z0-9 ]+\n", output)
    if len(parts) != runs + 2:
        raise Unfit("demo() printed nothing that could be read")
    return tuple(parts[1:-1])


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
