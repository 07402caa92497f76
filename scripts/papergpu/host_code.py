"""The device's part of a .cu file: what only its host needs is left out, and every line stays.

NVRTC compiles for the device alone, and a real file holds `main`, launches and timers beside its
kernels. What stays is whatever says `__global__`, `__device__`, `__constant__` or `__managed__`,
and what that names, directly or through others: other functions, types and variables are left out.
Includes of files beside the source are put in their place, so that theirs are treated alike.
An include of what is nowhere to be found is left out, and named where the rest does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# ---- C++ cut into words, as far as its declarations have to be told apart

_TOKEN = re.compile(
    r'''(?P<skip>\s+|//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/)'''
    r'''|(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'''
    r'''|(?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')'''
    r'''|(?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)'''
    r'''|(?P<name>[A-Za-z_]\w*)'''
    r'''|(?P<mark2>.)''',
    re.DOTALL,
)  # fmt: skip
_LINE = re.compile(r"[ \t]*#(?:[^\n\\/]|\\\n|\\.|/(?![*/])|/\*.*?\*/|//[^\n]*)*", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A word of C++; `kind` is name, number, text, mark, or line for a line of the preprocessor."""

    kind: str
    text: str
    start: int
    end: int


def split_tokens(text: str) -> Iterator[Token]:
    """The words of a text, without spaces and comments; a line of the preprocessor is one."""
    at, fresh = 0, True
    while at < len(text):
        if fresh:
            found = _LINE.match(text, at)
            if found:
                yield Token("line", found[0], found.start(), found.end())
                at, fresh = found.end(), False
                continue
        one = _TOKEN.match(text, at)
        assert one is not None
        at = one.end()
        if one.lastgroup == "skip" or one["skip"] is not None:
            fresh = fresh or "\n" in one[0]
            # Spaces in front of a # on a fresh line were taken with it or stand here.
            if "\n" in one[0]:
                at = one.start() + one[0].rindex("\n") + 1 if one[0].isspace() else at
            continue
        fresh = False
        kind = one.lastgroup or "mark"
        yield Token({"mark2": "mark", "mark": "text", "raw": "text"}.get(kind, kind), one[0],
                    one.start(), one.end())  # fmt: skip


def blank_text(text: str) -> str:
    """Spaces for a text; its lines, and those of the preprocessor, stay."""
    kept, at = [], 0
    for one in split_tokens("\n" + text):
        if one.kind == "line":
            start, end = one.start - 1, one.end - 1
            kept.append(re.sub(r"[^\n]", " ", text[at:start]) + text[start:end])
            at = end
    kept.append(re.sub(r"[^\n]", " ", text[at:]))
    return "".join(kept)


def find_macros(words: Sequence[Token]) -> dict[str, set[str]]:
    """The names of macros, and the names in what they stand for."""
    found: dict[str, set[str]] = {}
    for one in words:
        define = re.match(r"\s*#\s*define\s+(\w+)(.*)", one.text, re.DOTALL)
        if define and one.kind == "line":
            found.setdefault(define[1], set()).update(re.findall(r"[A-Za-z_]\w*|^\(", define[2]))
    return found


def resolve_conditionals(words: Sequence[Token]) -> list[Token]:
    """Words without lines of the preprocessor; where a branch of #if opens what another closes, or
    both open it, only the first branch is read."""
    found: list[Token] = []
    starts: list[list[int]] = []  # of each branch of each #if that is open
    for one in words:
        if one.kind != "line":
            found.append(one)
            continue
        what = one.text.lstrip(" \t#").split(maxsplit=1)[:1]
        word = re.sub(r"\W.*", "", what[0]) if what else ""
        if word in ("if", "ifdef", "ifndef"):
            starts.append([len(found)])
        elif word in ("else", "elif") and starts:
            starts[-1].append(len(found))
        elif word == "endif" and starts:
            branches = starts.pop()
            ends = [*branches[1:], len(found)]
            depths = [
                sum((t.text in ("(", "{", "[")) - (t.text in (")", "}", "]")) for t in found[a:b])
                for a, b in zip(branches, ends, strict=True)
            ]
            if len(branches) > 1 and any(depths):
                del found[branches[1] :]
    return found


def strip_templates(texts: Sequence[str]) -> list[str]:
    """Words without what stands between < and >, where that is a list of a template."""
    found: list[str] = []
    depth = 0
    for at, text in enumerate(texts):
        if text == "<" and (depth or (at and re.match(r"[A-Za-z_]", texts[at - 1]))):
            depth += 1
        elif text == ">" and depth:
            depth -= 1
        elif depth and text in (";", "{"):
            return list(texts)  # it was "less than"
        elif not depth:
            found.append(text)
    return list(texts) if depth else found


# ---- the declarations at the top of a .cu file, and what each of them names

DEVICE = {"__global__", "__device__", "__constant__", "__managed__", "__shared__"}
# What a macro says that writes something at the top of a file which kernels may name.
DECLARES = DEVICE | {"struct", "class", "typedef", "using", "template", "constexpr", "enum"}
ATTRIBUTES = ("__align__", "alignas", "__attribute__", "__declspec")


@dataclass
class Declaration:
    """A declaration at the top of a file or of a namespace, and what it names."""

    start: int
    end: int
    name: str
    kind: str  # function, type, variable, other
    words: set[str]
    device: bool
    host: bool = False  # it can be nothing but the host's
    kept: bool = False


class DeclarationScanner:
    """Goes through the declarations of a file."""

    def __init__(self, words: Sequence[Token], macros: dict[str, set[str]]) -> None:
        self.words = resolve_conditionals(words)
        self.macros = macros
        self.at = 0

    def scan_declarations(self) -> Iterator[Declaration]:
        """Those up to the end, or to the brace that closes a namespace."""
        while self.at < len(self.words) and self.words[self.at].text != "}":
            if self.words[self.at].text == ";":
                self.at += 1
            elif self.open_namespace():
                yield from self.scan_declarations()
                self.at += 1
                if self.at > len(self.words):
                    raise IndexError
            else:
                yield self.scan_declaration()

    def open_namespace(self) -> bool:
        """Whether a namespace or `extern "C" {` opens here; goes behind its brace if so."""
        at = self.at
        if self.words[at].text == "inline" and self.words[at + 1].text == "namespace":
            at += 1
        if self.words[at].text == "namespace":
            while self.words[at].text not in ("{", "=", ";"):
                at += 1
        elif self.words[at].text == "extern" and self.words[at + 1].kind == "text":
            at += 2
        if self.words[at].text != "{" or at == self.at:
            return False
        self.at = at + 1
        return True

    def find_closing(self, at: int) -> int:
        """The word behind the bracket that closes the one at `at`."""
        opening = self.words[at].text
        closing = {"(": ")", "{": "}", "[": "]"}[opening]
        depth = 0
        while True:
            text = self.words[at].text
            depth += (text == opening) - (text == closing)
            at += 1
            if not depth:
                return at

    def scan_declaration(self) -> Declaration:
        first = self.at
        one = self.words[first]
        after = self.words[first + 1].text if first + 1 < len(self.words) else ""
        if one.kind == "name" and "(" in self.macros.get(one.text, ()) and after == "(":
            end = self.find_closing(first + 1)
            following = self.words[end].text if end < len(self.words) else ";"
            if following == "{":  # a macro that stands for the head of a function
                end = self.find_closing(end)
            elif following == ";":
                end = min(end + 1, len(self.words))
            declares = (
                bool(self.macros[one.text] & DECLARES) and "torch" not in self.macros[one.text]
            )
            self.at = end
            return self.make_declaration(
                first, end, "", "other" if declares else "function", declares
            )
        at = first
        while at < len(self.words):
            text = self.words[at].text
            if text == ";":
                at += 1
                break
            if text in "([" and len(text) == 1:
                at = self.find_closing(at)
                continue
            if text == "{":
                head = [word.text for word in self.words[first:at]]
                at = self.find_closing(at)
                if self.is_type(head) or self.is_value(head):
                    continue
                if at < len(self.words) and self.words[at].text == ";":
                    at += 1
                break
            if text == "}":
                raise IndexError
            at += 1
        self.at = at
        return self.classify_declaration(first, at)

    @staticmethod
    def is_type(head: Sequence[str]) -> bool:
        """Whether a brace is of a class or an enumeration, which goes up to a semicolon."""
        plain, depth = strip_templates(head), 0
        for at, word in enumerate(plain):
            if word == "(" and not depth and plain[at - 1] not in ATTRIBUTES:
                return False
            depth += (word == "(") - (word == ")")
        return bool({"struct", "class", "union", "enum"}.intersection(plain))

    @staticmethod
    def is_value(head: Sequence[str]) -> bool:
        """Whether a brace is a variable's initial value: it follows =, or no parameters."""
        plain = strip_templates(head)
        depth, equals = 0, False
        for text in plain:
            depth += (text == "(") - (text == ")")
            equals = equals or (text == "=" and not depth)  # no parameter's default
        return "operator" not in plain and ("(" not in plain or equals)

    def make_declaration(
        self, first: int, end: int, name: str, kind: str, device: bool
    ) -> Declaration:
        words = {one.text for one in self.words[first:end] if one.kind == "name"}
        return Declaration(
            self.words[first].start, self.words[end - 1].end, name, kind, words, device
        )

    def classify_declaration(self, first: int, end: int) -> Declaration:
        texts = [one.text for one in self.words[first:end]]
        brace = texts.index("{") if "{" in texts else len(texts)
        plain = strip_templates(texts[:brace])
        device = bool(DEVICE.intersection(texts))
        if plain[:1] == ["namespace"] or plain[:2] == ["using", "namespace"]:
            return self.make_declaration(first, end, "", "other", device)
        if plain[:1] == ["using"]:
            name = "" if len(plain) < 3 else plain[1] if plain[2] == "=" else plain[-2]
            return self.make_declaration(first, end, name, "type", device)
        if plain[:1] == ["static_assert"] or plain[:1] == ["asm"]:
            return self.make_declaration(first, end, "", "function", False)
        if plain[:1] == ["typedef"]:
            names = [text for text in texts if re.match(r"[A-Za-z_]", text)]
            pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", " ".join(plain))
            return self.make_declaration(
                first, end, pointer[1] if pointer else names[-1], "type", device
            )
        if plain[:1] == ["template"] and texts[1:2] != ["<"] and not device and "(" in plain:
            # An instance of a template is asked for: it goes with what it is of.
            return self.make_declaration(first, end, plain[plain.index("(") - 1], "instance", False)
        if self.is_type(texts[:brace]) and brace < len(texts):
            start = next(at for at, word in enumerate(plain)
                         if word in ("struct", "class", "union", "enum"))  # fmt: skip
            name = _class_name(plain[start + 1 :])
            part = self.make_declaration(first, end, name, "type", device)
            if "enum" in plain[: start + 1] and not device:
                # Its enumerators are named without it.
                part.kind = "other"
            return part
        if "operator" in plain and not device:
            host = bool({"ostream", "istream", "std"}.intersection(texts))
            return self.make_declaration(first, end, "", "function" if host else "other", False)
        if "(" in plain and ("=" not in plain or plain.index("(") < plain.index("=")):
            at = plain.index("(")
            while at and plain[at - 1] in ("__launch_bounds__", "__align__", "__attribute__",
                                           "alignas", "__declspec", "__cluster_dims__",
                                           "__maxnreg__", "decltype"):  # fmt: skip
                depth, at = 1, at + 1
                while depth and at < len(plain):
                    depth += (plain[at] == "(") - (plain[at] == ")")
                    at += 1
                at = next((k for k in range(at, len(plain)) if plain[k] == "("), 0)
            name = plain[at - 1] if at else ""
            return self.make_declaration(first, end, name, "function", device)
        stop = next((at for at, word in enumerate(plain) if word in ("=", "[", "{", ";", ",")), 0)
        return self.make_declaration(
            first, end, plain[stop - 1] if stop else "", "variable", device
        )


def _class_name(plain: Sequence[str]) -> str:
    """The name behind `struct`: attributes go before it, bases behind."""
    depth = 0
    for at, text in enumerate(plain):
        depth += (text == "(") - (text == ")")
        following = plain[at + 1] if at + 1 < len(plain) else "{"
        if not depth and re.match(r"[A-Za-z_]", text) and following in ("{", ":", ";", "final"):
            return text
    return ""


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


def extract_device_code(text: str, asked: Sequence[str] = ()) -> str:
    """`text` with spaces in place of what only the host needs.

    What instances that are `asked` for name, such as `scale<Traits<4>>`, is needed by the device.
    A text whose braces do not match is returned as it is: the compiler says what is wrong.
    """
    text = text.removeprefix("\ufeff")
    words = list(split_tokens(text))
    macros = find_macros(words)
    try:
        parts = list(DeclarationScanner(words, macros).scan_declarations())
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
    by_name: dict[str, list[Declaration]] = {}
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
        left.append(blank_text(text[one.start : one.end]))
        at = one.end
    left.append(text[at:])
    return "".join(left)


def inline_includes(
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

    def replace_include(match: re.Match[str]) -> str:
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
            inner, _ = inline_includes(whole, beside, found, own, seen, missing)
            return f'#line 1 "{beside}"\n{inner}\n#line {line} "{said}"\n'
        if found(name) and not name.startswith(OF_HOST):
            return match[0]
        missing.append(name)
        return ""

    return _INCLUDE.sub(replace_include, text), missing
