"""A public Triton kernel, compiled as ours are: `python -m warpshelf.worker.rival`.

A process of its own reads on its standard input where a kernel is and how it is compiled, as JSON,
and writes its figures by architecture. What the file imports and this environment lacks is replaced
by something empty: a kernel needs none of it to be compiled.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import MutableSequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from warpshelf.look import builds


class Absent(ModuleType):
    """A module that is not installed: whatever is asked of it is there, and does nothing."""

    __path__: MutableSequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class Absentees(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that it is told of, and what is inside them. It stands last."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not any(f"{name}.".startswith(f"{one}.") for one in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


def imported(root: Path, file: str) -> ModuleType:
    """The module of a file in a checkout, by the name that its package gives it.

    Raises:
        ImportError: it cannot be imported whatever stands in for what is missing.
    """
    path = root / file
    names = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    absentees = Absentees()
    sys.meta_path.append(absentees)
    before = {*sys.modules}
    while True:
        try:
            return importlib.import_module(".".join(names))
        except ModuleNotFoundError as error:
            # What a file can do without, it asks for and catches this itself: only what it cannot
            # do without is replaced. Its modules are then read from the start.
            if error.name is None or error.name.split(".")[0] == names[0]:
                raise
            absentees.names.add(error.name)
            for name in {*sys.modules} - before:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(root)):
                    del sys.modules[name]


def kernel(module: ModuleType, name: str) -> Any:
    """The function that Triton compiles, out of what else it is wrapped in.

    Raises:
        ValueError: there is none of that name.
    """
    from triton.runtime.jit import JITFunction

    found = getattr(module, name, None)
    while found is not None and not isinstance(found, JITFunction):
        found = getattr(found, "fn", None)
    if found is None:
        raise ValueError(f"has no kernel {name}")
    return found


def compiled(function: Any, job: dict[str, Any], target: int) -> Any:
    """What Triton makes of it for an SM version."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(function.arg_names)
    given = {**job["constants"], **dict.fromkeys(job["absent"])}
    if missing := [name for name in names if name not in given and name not in job["signature"]]:
        raise ValueError(f"takes {missing[0]}, which is neither in signature nor in constants")
    if unknown := [name for name in (*given, *job["signature"]) if name not in names]:
        raise ValueError(f"takes no {unknown[0]}; it takes {', '.join(names)}")
    constants = {
        (names.index(name),): getattr(tl, value[3:])
        if isinstance(value, str) and value.startswith("tl.")
        else value
        for name, value in given.items()
    }
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    known = {(names.index(name),): [["tt.divisibility", 16]] for name in job["divisible"]}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=known)
    asked: Any = GPUTarget("cuda", target, 32)
    return triton.compile(source, target=asked, options=dict(job["options"]))


def figures(job: dict[str, Any]) -> dict[str, Any]:
    """Who compiled it, and its figures by architecture.

    Raises:
        ValueError: it is not there, or not called so.
    """
    import triton

    function = kernel(imported(Path(job["root"]), job["file"]), job["kernel"])
    found = {}
    for target in job["targets"]:
        made = compiled(function, job, target)
        build = builds.of_binary(made.asm["cubin"], made.metadata.name, made.metadata.shared)
        found[f"sm_{target}"] = build
    return {"compiler": f"Triton {triton.__version__}", "builds": found}


def main() -> None:
    """Answer one job."""
    job = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # what a file prints as it is imported is no answer
    try:
        answer = figures(job)
    except Exception as error:  # whatever somebody else's file or the compiler raises
        said = str(error).strip().splitlines() or [""]  # Triton gives the cause behind the code
        answer = {"error": f"{type(error).__name__}: {said[-1].strip()}"}
    json.dump(answer, out)


if __name__ == "__main__":
    main()
