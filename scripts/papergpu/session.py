"""What applies to every launch of this process: the settings, and who is told of launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar, Unpack

from papergpu.errors import Finding
from papergpu.launch import AUTOTUNE, DEFAULTS, SCHEDULES, Kernel, Memory, Options, Result, Settings
from papergpu.program import Program, Three


@dataclass(frozen=True)
class Launched:
    """A launch that has ended: what ran, over what grid and under what settings, and what it did.

    `program.locate_instruction(k)` says where instruction k stands in the source, and
    `result.counts[k]` what it did, where `settings.profile` is on. `ptx` is the text of the
    kernel's module, whose lines `program.places` names, and `shared` the bytes of shared memory of
    a block, static and dynamic.
    """

    name: str
    program: Program
    result: Result
    grid: Three
    block: Three
    cluster: Three
    settings: Settings
    ptx: str = ""
    shared: int = 0


class Undo(ExitStack):
    """Undoes what was just set: `undo()`, or the end of a `with` block."""

    def __init__(self, how: Callable[[], None]) -> None:
        super().__init__()
        self.callback(how)

    undo = ExitStack.close  # doing so twice changes nothing more


T = TypeVar("T")


def append_until_undone(items: list[T], item: T) -> Undo:
    """Append an item to a list until that is taken back, in whatever order others are."""
    items.append(item)

    def undo() -> None:
        for number in range(len(items) - 1, -1, -1):
            if items[number] is item:
                del items[number]
                return

    return Undo(undo)


CHOICES: dict[str, Sequence[str]] = {"schedule": [*SCHEDULES], "autotune": AUTOTUNE}
_settings = [Settings()]
_told: list[Callable[[Launched], None]] = []
_before: list[Callable[..., None]] = []
_told_findings: list[Callable[[Finding], None]] = []


def current_settings() -> Settings:
    """The settings of the next launch."""
    return _settings[-1]


def settings(**changes: bool | int | str) -> Undo:
    """Change settings from here on; of a `with` statement, until its end.

    `papergpu.settings(seed=7)` or `with papergpu.settings(checks=False, profile=True):`; the names
    are those of `papergpu.Settings`.

    Raises:
        ValueError: there is no such setting, or the value is not allowed.
    """
    known = {one.name: one.default for one in fields(Settings)}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"no setting {name}: the settings are {', '.join(known)}")
        if name in CHOICES and value not in CHOICES[name]:
            raise ValueError(f"{name} is one of {', '.join(CHOICES[name])}, not {value!r}")
        if isinstance(known[name], str) != isinstance(value, str):
            raise ValueError(f"{name} is {known[name]!r} by default and cannot be {value!r}")
    given: dict[str, Any] = {**asdict(current_settings()), **changes}
    return replace_settings(Settings(**given))


def replace_settings(by: Settings) -> Undo:
    """Other settings from here on, or until the end of a `with` block."""
    return append_until_undone(_settings, by)


def on_launch(callback: Callable[[Launched], None]) -> Undo:
    """Have `callback` told of every launch that ends, until that is taken back."""
    return append_until_undone(_told, callback)


def before_launch(callback: Callable[..., None]) -> Undo:
    """Have `callback` called with all that a launch is called with, before it begins."""
    return append_until_undone(_before, callback)


def on_finding(callback: Callable[[Finding], None]) -> Undo:
    """Have `callback` told of a finding of a launch that went on to its end: it is not raised."""
    return append_until_undone(_told_findings, callback)


def launch(
    kernel: Kernel,
    grid: Three,
    block: Three,
    parameters: Sequence[bytes],
    touched: Sequence[Memory] = (),
    **options: Unpack[Options],
) -> Result:
    """Launch a kernel, under the current settings unless it has its own, and tell who asked."""
    chosen = options.get("settings") or current_settings()
    if chosen.kernel not in kernel.program.name:
        chosen = replace(chosen, checks=False, profile=False)
    options["settings"], finding = chosen, None
    for callback in tuple(_before):
        callback(kernel, grid, block, parameters, touched, **options)
    try:
        result = kernel.launch(grid, block, parameters, touched, **options)
    except Finding as found:
        if found.result is None:
            raise
        finding, result = found, found.result
    if _told:
        program, cluster = kernel.program, options.get("cluster", DEFAULTS["cluster"])
        # What groups of several warps meet in is the engine's own.
        static = program.reserved - 1 if program.reserved else program.shared
        shared = static + options.get("dynamic", DEFAULTS["dynamic"])
        done = Launched(
            program.name, program, result, grid, block, cluster, chosen, kernel.ptx, shared
        )
        for told in tuple(_told):
            told(done)
    if finding:
        if not _told_findings:
            raise finding
        for tell in tuple(_told_findings):
            tell(finding)
    return result
