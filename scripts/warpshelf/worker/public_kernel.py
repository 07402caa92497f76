"""A public kernel, compiled as ours are: `python -m warpshelf.worker.public_kernel`.

A process of its own reads on its standard input where a kernel is and how it is compiled, as JSON,
and writes its figures by architecture. What a Python file imports and this environment lacks is
replaced by something empty: a kernel needs none of it. Of CUDA C++ the host's part is left out.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from warpshelf.look import builds

DEFINES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.If,
    ast.Try,
)  # fmt: skip


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that it is told of, which are not installed, and their submodules: these
    have every attribute, and none does anything. It comes last."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not any(f"{name}.".startswith(f"{one}.") for one in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return MagicMock(name=spec.name, __path__=[])

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


def import_file(root: Path, file: str) -> ModuleType:
    """The module of a file in a checkout, by the name that its package gives it, of the statements
    that define something: a tutorial also runs it. What fails, for want of a GPU for instance, is
    left out. SyntaxError if it is no Python."""
    path = root / file
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    absentees = StubFinder()
    sys.meta_path.append(absentees)
    module = ModuleType(".".join(names))
    module.__file__ = str(path)
    module.__package__ = ".".join(names[:-1])
    for depth in range(1, len(names)):  # what packages do as they are imported, is left out
        package = ModuleType(".".join(names[:depth]))
        package.__path__ = [str(folder.joinpath(*names[:depth]))]
        sys.modules[package.__name__] = package
    sys.modules[module.__name__] = module
    for one in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(one, DEFINES) or _execute_statement(one, module, absentees, str(root)):
            continue
        if isinstance(one, ast.FunctionDef) and len(one.decorator_list) > 1:
            # What chooses its configurations may ask more of a GPU. Without it the kernel is there.
            del one.decorator_list[:-1]
            _execute_statement(one, module, absentees, str(root))
    return module


def _execute_statement(one: ast.stmt, module: ModuleType, absentees: StubFinder, root: str) -> bool:
    """Whether a statement of a module could be executed; if not, print why. Something empty stands
    for each module that it lacks; what was imported of the checkout is then read again."""
    part = compile(ast.Module([one], []), str(module.__file__), "exec")
    before = {*sys.modules}
    while True:
        try:
            exec(part, module.__dict__)
            return True
        except Exception as error:
            name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
            paths = getattr(sys.modules.get(name.split(".")[0]), "__path__", ())
            own = any(str(path).startswith(root) for path in paths)
            if not name or name in absentees.names or own:
                place = f"{module.__file__}:{one.lineno}"
                sys.stderr.write(f"{place}: {type(error).__name__}: {error}\n")
                return False
        absentees.names.add(name)
        for known in {*sys.modules} - before:
            if (getattr(sys.modules[known], "__file__", None) or "").startswith(root):
                del sys.modules[known]


def find_kernel(module: ModuleType, name: str) -> Any:
    """The function that Triton compiles, without its wrappers; ValueError if there is none."""
    from triton.runtime.jit import JITFunction

    found = getattr(module, name, None)
    while found is not None and not isinstance(found, JITFunction):
        found = getattr(found, "fn", None)
    if found is None:
        raise ValueError(f"has no kernel {name}")
    return found


def compile_kernel(function: Any, job: dict[str, Any], target: int) -> Any:
    """What Triton makes of it for an SM version; ValueError if it is not called so."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(function.arg_names)
    given = {**job["constants"], **dict.fromkeys(job["absent"])}
    if missing := [name for name in names if name not in given and name not in job["signature"]]:
        raise ValueError(f"takes {missing[0]}, which signature and constants lack")
    if unknown := [name for name in (*given, *job["signature"]) if name not in names]:
        raise ValueError(f"does not take {unknown[0]}; it takes {', '.join(names)}")
    for name, value in given.items():
        if isinstance(value, str) and value.startswith("tl."):
            given[name] = getattr(tl, value[3:])
    constants = {(names.index(name),): value for name, value in given.items()}
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    known = {(names.index(name),): [["tt.divisibility", 16]] for name in job["divisible"]}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=known)
    asked: Any = GPUTarget("cuda", target, 32)
    return triton.compile(source, target=asked, options=dict(job["options"]))


def triton_figures(job: dict[str, Any]) -> dict[str, Any]:
    """Who compiled a kernel in Triton, and its figures by architecture."""
    import triton
    from triton.backends.compiler import GPUTarget

    # Stands for a GPU where a file asks, as it is read, which one it runs on. What is drawn on the
    # device "meta" takes no memory and no time.
    stand_in: Any = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_active_torch_device=lambda: importlib.import_module("torch").device("meta"),
        get_current_device=lambda: 0,
    )
    triton.runtime.driver.set_active(stand_in)
    backend = triton.backends.backends.get("nvidia")
    if backend is not None and backend.driver is not None:  # some ask whether there is one at all
        backend.driver.is_active = staticmethod(lambda: True)
    function = find_kernel(import_file(Path(job["root"]), job["file"]), job["kernel"])
    found = {}
    for target in job["targets"]:
        made = compile_kernel(function, job, target)
        parts = made.asm["cubin"], made.metadata.name, made.metadata.shared
        found[f"sm_{target}"] = builds.build_from_binary(*parts)
    return {"compiler": f"Triton {triton.__version__}", "builds": found}


def cuda_figures(job: dict[str, Any]) -> dict[str, Any]:
    """The same of a kernel in CUDA C++, by NVRTC or nvcc; CompileError if neither takes it."""
    from papergpu import compiler

    path = Path(job["root"], job["file"])
    text = path.read_text(encoding="utf-8", errors="replace")
    found, name = {}, job["kernel"]
    flags = [f"-I{job['root']}/{one[2:]}" if one.startswith("-I") else one for one in job["flags"]]
    for target in job["targets"]:
        arch = next(one for one in compiler.TARGETS if one.rstrip("a") == f"sm_{target}")
        made = compiler.compiled(compiler.unit(text, path, flags, arch), [name])
        cubin = compiler.binary(made.ptx, lines=False)
        found[f"sm_{target}"] = builds.build_from_binary(cubin, made.symbols[name], job["shared"])
    major, minor = compiler.load_bindings().nvrtcVersion()[1:]
    return {"compiler": f"{made.by} {major}.{minor}", "builds": found}


def package_figures(job: dict[str, Any]) -> dict[str, Any]:
    """The same of a kernel in a language of its own: `binary("sm_90")` of its file gives the cubin,
    the symbol in it and the bytes of shared memory that a launch asks for. PackageNotFoundError if
    the package is not installed."""
    made_by = f"{job['package']} {metadata.version(job['package'])}"
    path = Path(job["root"], job["file"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # some read the source of what they compile
    spec.loader.exec_module(module)
    archs = [f"sm_{target}" for target in job["targets"]]
    found = {arch: builds.build_from_binary(*module.binary(arch)) for arch in archs}
    return {"compiler": made_by, "builds": found}


def main() -> None:
    """Answer one job."""
    job = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # what a file prints as it is imported is no answer
    try:
        by_language = triton_figures if job["file"].endswith(".py") else cuda_figures
        answer = (package_figures if job.get("package") else by_language)(job)
    except Exception as error:  # whatever somebody else's file or the compiler raises
        said = str(error).strip().splitlines() or [""]  # Triton gives the cause behind the code
        cause = next((line for line in said if ": error: " in line), said[-1])  # and NVRTC first
        answer = {"error": f"{type(error).__name__}: {cause.strip()}"}
    json.dump(answer, out)


if __name__ == "__main__":
    main()
