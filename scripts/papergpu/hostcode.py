"""The device's part of a .cu file: what only its host needs is left out, and every line stays.

NVRTC compiles for the device alone, and a real file holds `main`, launches and timers beside its
kernels. What stays is whatever says `__global__`, `__device__`, `__constant__` or `__managed__`,
and what that names, directly or through others: other functions, types and variables are left out.
Includes of files beside the source are put in their place, so that theirs are treated alike.
An include of what is nowhere to be found is left out, and named where the rest does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from papergpu.cplusplus import blanked, macros_of, tokens
from papergpu.declarations import Declarations, Part

# What a function of the host says, and none that a device could run.
HOST = re.compile(
    r"<<<|\bstd::(?:vector|string|cout|cerr|endl|ostream|ifstream|ofstream|chrono|thread|mutex|map"
    r"|unique_ptr|shared_ptr|runtime_error|random_device|mt19937|unordered_map|set)\b|\bFILE\s*\*"
    r"|\b(?:exit|abort|fprintf|fopen|fread|fwrite|rand|srand|calloc|clock_gettime|getenv|dim3)\s*\("
    r"|\bcuda(?:Malloc|Free|Memcpy|Memset|GetErrorString|GetLastError|DeviceSynchronize|Event|Stream"
    r"|GetDevice|SetDevice|FuncSet|Occupancy|Launch|Host|Error_t\b)|\bcu(?:blas|rand|dnn|fft)\w+\s*\("
    r"|\btorch::|\bat::|\bc10::|\bthrust::(?:host|device)_vector"
)
# Headers of which kernels need nothing, and of which NVRTC takes nothing.
OF_HOST = ("thrust/", "nvtx3/", "GL/", "cuda_gl_interop.h", "cuda_profiler_api.h", "cudaEGL.h")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)[^\n]*', re.MULTILINE)


def device_part(text: str, asked: Sequence[str] = ()) -> str:
    """`text` with spaces in place of what only the host needs.

    What instances that are `asked` for name, such as `scale<Traits<4>>`, is needed by the device.
    A text whose braces do not match is returned as it is: the compiler says what is wrong.
    """
    text = text.removeprefix("\ufeff")
    words = list(tokens(text))
    macros = macros_of(words)
    try:
        parts = list(Declarations(words, macros).parts())
    except IndexError:
        return text
    for one in parts:
        one.host = (
            not one.device
            and one.kind != "other"
            and (one.name == "main" or bool(HOST.search(text[one.start : one.end])))
        )
    unwanted = {one.name for one in parts if one.host}
    for one in parts:
        one.host = one.host or (one.kind == "instance" and one.name in unwanted)
    wanted = {word for name in asked for word in re.findall(r"[A-Za-z_]\w*", name)}
    waiting = [one for one in parts if one.device or one.kind == "other" or one.name in wanted]
    by_name: dict[str, list[Part]] = {}
    for one in parts:
        by_name.setdefault(one.name, []).append(one)
    while waiting:
        one = waiting.pop()
        if one.kept or one.host:
            continue
        one.kept = True
        fresh = set(one.words) - wanted
        while fresh:
            wanted |= fresh
            for name in fresh:
                waiting += [other for other in by_name.get(name, ()) if not other.kept]
            fresh = {inner for name in fresh for inner in macros.get(name, ())} - wanted
    left: list[str] = []
    at = 0
    for one in parts:
        if one.kept:
            continue
        left.append(text[at : one.start])
        left.append(blanked(text[one.start : one.end]))
        at = one.end
    left.append(text[at:])
    return "".join(left)


def spliced(
    text: str, path: Path | None, found: Callable[[str], bool], own: Sequence[Path] = (),
    seen: set[Path] | None = None, missing: list[str] | None = None,
) -> tuple[str, list[str]]:  # fmt: skip
    """`text` with files in place of their includes, and the includes that are nowhere.

    Those are files beside it, and files of the folders `own` that are named without a folder: what
    is named with one, such as `cute/tensor.hpp`, is of a library that knows how to be compiled.
    `found` says whether the compiler has an include of its own.
    """
    seen = set() if seen is None else seen
    missing = [] if missing is None else missing
    said = str(path) if path else "a.cu"

    def replaced(match: re.Match[str]) -> str:
        quoted, name = match[1] is not None, match[1] or match[2]
        line = text.count("\n", 0, match.end()) + 1  # whose rest is empty
        places = [path.parent] if path and quoted else []
        places += own if "/" not in name else ()
        beside = next((folder / name for folder in places if (folder / name).is_file()), None)
        if beside is not None:
            beside = beside.resolve()
            whole = beside.read_text(encoding="utf-8-sig", errors="replace")
            once = re.search(r"^\s*#\s*pragma\s+once", whole, re.MULTILINE)
            if once and beside in seen:
                return ""
            if len(seen) > 200:
                return match[0]
            seen.add(beside)
            whole = re.sub(r"^(\s*)#\s*pragma\s+once.*", r"\1", whole, flags=re.MULTILINE)
            inner, _ = spliced(whole, beside, found, own, seen, missing)
            return f'#line 1 "{beside}"\n{inner}\n#line {line} "{said}"\n'
        if found(name) and not name.startswith(OF_HOST):
            return match[0]
        missing.append(name)
        return ""

    return _INCLUDE.sub(replaced, text), missing
