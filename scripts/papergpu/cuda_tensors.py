"""Scripts that ask torch for CUDA, as they are: their tensors lie on the CPU and say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from papergpu.device import TorchInterface

DEVICE = torch.device("cuda", 0)
# What every tensor answers. One that is moved to the CPU does too: whoever compares the devices of
# two tensors finds them alike.
ANSWERS: dict[Any, Any] = {
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: 0,
}


def _is_device(value: Any) -> bool:
    return isinstance(value, str | torch.device) or type(value) is int


def _is_cuda(device: Any) -> bool:
    return _is_device(device) and (type(device) is int or str(device).startswith("cuda"))


def _is_marked(values: Any) -> bool:
    """Whether one of them is a tensor on CUDA, as far as is known."""
    if isinstance(values, list | tuple):
        return any(map(_is_marked, values))
    return getattr(values, "_on_cuda", False)


def _mark(values: Any) -> Any:
    if isinstance(values, list | tuple):
        for one in values:
            _mark(one)
    elif isinstance(values, torch.Tensor):
        values._on_cuda = True  # type: ignore[attr-defined]
    return values


class CudaTensors(TorchFunctionMode):
    """Makes on the CPU what is asked for on CUDA.

    A move between the two copies, as it does with a GPU, so that no two names have one memory.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, given: Sequence[Any] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if function in ANSWERS:
            return ANSWERS[function]
        named = {key: value for key, value in (named or {}).items() if key != "pin_memory"}
        if function is torch.Tensor.pin_memory:
            return given[0]
        if function in (torch.Tensor.cuda, torch.Tensor.cpu):
            named = {"device": "cuda" if function is torch.Tensor.cuda else "cpu"}
            function, given = torch.Tensor.to, given[:1]
        asked = named.get("device")
        if function is torch.Tensor.to:
            asked = next((one for one in (*given[1:], asked) if _is_device(one)), None)
            given = tuple("cpu" if at and _is_cuda(one) else one for at, one in enumerate(given))
            if asked is not None and _is_cuda(asked) != _is_marked(given[0]):
                named["copy"] = True
        if _is_cuda(named.get("device")):
            named["device"] = "cpu"
        found = function(*given, **named)
        there = _is_marked([*given, *named.values()]) if asked is None else _is_cuda(asked)
        return _mark(found) if there else found


class _Device(nullcontext[None]):
    """`torch.cuda.device(0)`, and `torch.cuda.stream(...)`: there is but one."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class _Stream:
    """A stream, on which everything has happened already."""

    cuda_stream = 0
    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def host_patches(interface: TorchInterface) -> Iterator[tuple[Any, str, Any]]:
    """What a script asks `torch.cuda` for, where there is no GPU."""

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(number)

    answers = SimpleNamespace(
        is_available=lambda: True, is_bf16_supported=lambda *_, **__: True, init=lambda: None,
        device_count=lambda: 1, set_device=lambda _: None, empty_cache=lambda: None,
        reset_peak_memory_stats=lambda *_: None, manual_seed=seed, manual_seed_all=seed,
        Event=interface.Event, Stream=_Stream, stream=_Device, device=_Device, device_of=_Device,
        current_stream=_Stream, default_stream=_Stream,
    )  # fmt: skip
    for name, value in vars(answers).items():
        yield torch.cuda, name, value
    yield torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda")
    yield torch.accelerator, "is_available", lambda: True
    yield torch, "Generator", _Generator
