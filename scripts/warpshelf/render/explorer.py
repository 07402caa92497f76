"""Links that open a file of a snippet in Compiler Explorer, the source inside the link.

The whole state of the site's page stands in the fragment of the address, behind the `#`: what is
written there a browser keeps to itself, so no server bounds its length, and nothing is asked of
anybody before the link is followed. It is the form of Compiler Explorer's own "full link": a
layout of panes (version 4), in Rison. Only letters, digits and `%._-~` are left in it, none of
which means anything to Markdown inside a link.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

SITE = "https://godbolt.org/"
# Browsers follow at least 2**20 characters; a page should not grow by that for one link.
LONGEST = 131_072
# Compilers by Compiler Explorer's names for them, of the releases that the records are made with.
CUDA = {"lang": "cuda", "compiler": "nvrtc130u2", "options": "-arch=sm_90 -std=c++17"}
TRITON = {"lang": "triton", "compiler": "triton_nvidia_370", "options": ""}
PYTHON = {"lang": "python", "compiler": "python314", "options": ""}
# How a snippet has a CPU execute its kernels. There they are only compiled, without papergpu.
ACTIVATION = re.compile(
    r"^if not torch\.cuda\.is_available\(\):\n"
    r"    import papergpu.*\n\n    papergpu\.activate\(\)\n\n",
    re.MULTILINE,
)
INCLUDES = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
UNQUOTED = re.compile(r"[A-Za-z_.][A-Za-z0-9_.-]*")  # what Rison writes without quotes


def cuda(name: str, text: str, kernels: Sequence[str] = ()) -> str | None:
    """A link to the PTX of a .cu file; None where it would be too long, or the file has includes.

    Whether NVRTC has the included headers there is not known. A template has no code of its own, so
    the instances named in `kernels`, `scale<float>` and the like, are asked for below the source.
    """
    if INCLUDES.search(text):
        return None
    wanted = [kernel for kernel in kernels if "<" in kernel]
    asked = [f"template __global__ decltype({kernel}) {kernel};" for kernel in wanted]
    note = ["", "// The instances that the snippet launches."] if asked else []
    return _link(name, "\n".join([text.rstrip("\n"), *note, *asked, ""]), CUDA, "compiler")


def triton(name: str, text: str, calls: str = "") -> str | None:
    """A link to the PTX of a file with Triton kernels; None where it would be too long.

    A kernel is compiled as it is called, so `calls` are made below the source.
    """
    text = ACTIVATION.sub("", text)
    whole = f"{text.rstrip()}\n\n\n{calls.strip()}\n" if calls.strip() else text
    return _link(name, whole, TRITON, "compiler")


def python(name: str, text: str) -> str | None:
    """A link that runs a program; None where it needs more than Python, or would be too long."""
    return _link(name, text, PYTHON, "executor") if alone(text) else None


def alone(text: str) -> bool:
    """Whether a module imports nothing but Python's own library."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.append("" if node.level else node.module or "")
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def _link(name: str, text: str, tool: dict[str, str], pane: str, **more: Any) -> str | None:
    lang, compiler, options = tool["lang"], tool["compiler"], tool["options"]
    editor = {"id": 1, "lang": lang, "filename": name, "source": text}
    output = {"source": 1, "lang": lang, "compiler": compiler, "options": options, **more}
    panes = [_pane("codeEditor", editor), _pane(pane, output)]
    state = {"version": 4, "content": [{"type": "row", "content": panes}]}
    address = f"{SITE}#{quote(rison(state)[1:-1], safe='')}"
    return address if len(address) <= LONGEST else None


def _pane(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {"type": "component", "componentName": name, "componentState": state}


def rison(value: Any) -> str:
    """`value`, of which JSON could be made, in Rison."""
    if isinstance(value, str):
        plain = UNQUOTED.fullmatch(value)
        return value if plain else "'" + re.sub(r"([!'])", r"!\1", value) + "'"
    if isinstance(value, dict):
        return f"({','.join(f'{rison(key)}:{rison(item)}' for key, item in value.items())})"
    if isinstance(value, list):
        return f"!({','.join(map(rison, value))})"
    return {"true": "!t", "false": "!f", "null": "!n"}.get(said := json.dumps(value), said)
