"""Signals that ask a run to stop: the first raises `Stopped`, another ends the process.

Ctrl-C sends SIGINT. Slurm, preemptible clouds and containers send SIGTERM a while before SIGKILL,
and a terminal that is closed sends SIGHUP. What is ignored, as below nohup, stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows lacks the last


_holding: list[bool] = []  # as many as there are blocks of `defer_signals` around what runs
_held: list[int] = []  # the signal that came meanwhile


class Stopped(BaseException):
    """A signal came; no handler of errors is meant to take it up on the way."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        self.status = 128 + number  # as a shell has it
        super().__init__(self.name)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Keep `Stopped` back until the block is done: what belongs together is kept together.

    Raises:
        Stopped: a signal came inside the block.
    """
    _holding.append(True)
    try:
        yield
    finally:
        _holding.pop()
        if _held and not _holding:
            raise Stopped(_held.pop())


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Have the first signal raise `Stopped` inside the block.

    Raises:
        Stopped: there was one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before: dict[signal.Signals, Any] = {}

    def handle_signal(number: int, frame: FrameType | None) -> None:
        restore_handlers()  # a second signal, from someone who will not wait, ends the process
        if _holding:
            _held.append(number)
        else:
            raise Stopped(number)

    def restore_handlers() -> None:
        while before:
            one, handler = before.popitem()
            signal.signal(one, handler)

    for name in NAMES:
        one = getattr(signal, name, None)
        handler = signal.getsignal(one) if one else None
        if one is not None and handler not in (None, signal.SIG_IGN):
            before[one] = handler
            signal.signal(one, handle_signal)
    try:
        yield
    finally:
        restore_handlers()
