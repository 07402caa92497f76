"""The declarations at the top of a .cu file, and what each of them names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from papergpu.cplusplus import Token, straight, untemplated

DEVICE = {"__global__", "__device__", "__constant__", "__managed__", "__shared__"}
# What a macro says that writes something at the top of a file which kernels may name.
DECLARES = DEVICE | {"struct", "class", "typedef", "using", "template", "constexpr", "enum"}


@dataclass
class Part:
    """A declaration at the top of a file or of a namespace, and what it names."""

    start: int
    end: int
    name: str
    kind: str  # function, type, variable, other
    words: set[str]
    device: bool
    host: bool = False  # it can be nothing but the host's
    kept: bool = False


class Declarations:
    """Goes through the declarations of a file."""

    def __init__(self, words: Sequence[Token], macros: dict[str, set[str]]) -> None:
        self.words = straight(words)
        self.macros = macros
        self.at = 0

    def parts(self) -> Iterator[Part]:
        """Those up to the end, or to the brace that closes a namespace."""
        while self.at < len(self.words) and self.words[self.at].text != "}":
            if self.words[self.at].text == ";":
                self.at += 1
            elif self.namespace():
                yield from self.parts()
                self.at += 1
                if self.at > len(self.words):
                    raise IndexError
            else:
                yield self.part()

    def namespace(self) -> bool:
        """Whether a namespace or `extern "C" {` opens here; goes behind its brace if so."""
        at = self.at
        text = self.words[at].text
        if text == "inline" and self.words[at + 1].text == "namespace":
            at, text = at + 1, "namespace"
        if text == "namespace":
            while self.words[at].text not in ("{", "=", ";"):
                at += 1
            if self.words[at].text != "{":
                return False
        elif text == "extern" and self.words[at + 1].kind == "text":
            at += 2
            if self.words[at].text != "{":
                return False
        else:
            return False
        self.at = at + 1
        return True

    def closed(self, at: int) -> int:
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

    def part(self) -> Part:
        first = self.at
        one = self.words[first]
        after = self.words[first + 1].text if first + 1 < len(self.words) else ""
        if one.kind == "name" and "(" in self.macros.get(one.text, ()) and after == "(":
            end = self.closed(first + 1)
            following = self.words[end].text if end < len(self.words) else ";"
            if following == "{":  # a macro that stands for the head of a function
                end = self.closed(end)
            elif following == ";":
                end = min(end + 1, len(self.words))
            declares = (
                bool(self.macros[one.text] & DECLARES) and "torch" not in self.macros[one.text]
            )
            self.at = end
            return self.made(first, end, "", "other" if declares else "function", declares)
        at = first
        while at < len(self.words):
            text = self.words[at].text
            if text == ";":
                at += 1
                break
            if text in "([" and len(text) == 1:
                at = self.closed(at)
                continue
            if text == "{":
                head = [word.text for word in self.words[first:at]]
                at = self.closed(at)
                if self.is_type(head) or self.is_value(head):
                    continue
                if at < len(self.words) and self.words[at].text == ";":
                    at += 1
                break
            if text == "}":
                raise IndexError
            at += 1
        self.at = at
        return self.described(first, at)

    @staticmethod
    def is_type(head: Sequence[str]) -> bool:
        """Whether a brace is of a class or an enumeration, which goes up to a semicolon."""
        plain = untemplated(head)
        kinds = [
            at for at, word in enumerate(plain) if word in ("struct", "class", "union", "enum")
        ]
        depth, brackets = 0, []
        for at, word in enumerate(plain):
            if word == "(" and not depth:
                brackets.append(at)
            depth += (word == "(") - (word == ")")
        return bool(kinds) and all(_within_attribute(plain, at) for at in brackets)

    @staticmethod
    def is_value(head: Sequence[str]) -> bool:
        """Whether a brace is a variable's initial value: it follows =, or no parameters."""
        plain = untemplated(head)
        depth, equals = 0, False
        for text in plain:
            depth += (text == "(") - (text == ")")
            equals = equals or (text == "=" and not depth)  # no parameter's default
        return "operator" not in plain and ("(" not in plain or equals)

    def made(self, first: int, end: int, name: str, kind: str, device: bool) -> Part:
        words = {one.text for one in self.words[first:end] if one.kind == "name"}
        return Part(self.words[first].start, self.words[end - 1].end, name, kind, words, device)

    def described(self, first: int, end: int) -> Part:
        texts = [one.text for one in self.words[first:end]]
        brace = texts.index("{") if "{" in texts else len(texts)
        plain = untemplated(texts[:brace])
        device = bool(DEVICE.intersection(texts))
        if plain[:1] == ["using"] or plain[:1] == ["namespace"]:
            if len(plain) > 2 and plain[2] == "=" and plain[0] == "using":
                return self.made(first, end, plain[1], "type", device)
            if plain[1:2] != ["namespace"] and plain[0] == "using":
                return self.made(first, end, plain[-2] if len(plain) > 2 else "", "type", device)
            return self.made(first, end, "", "other", device)
        if plain[:1] == ["static_assert"] or plain[:1] == ["asm"]:
            return self.made(first, end, "", "function", False)
        if plain[:1] == ["typedef"]:
            names = [text for text in texts if re.match(r"[A-Za-z_]", text)]
            pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", " ".join(plain))
            return self.made(first, end, pointer[1] if pointer else names[-1], "type", device)
        if plain[:1] == ["template"] and texts[1:2] != ["<"] and not device and "(" in plain:
            # An instance of a template is asked for: it goes with what it is of.
            return self.made(first, end, plain[plain.index("(") - 1], "instance", False)
        if self.is_type(texts[:brace]) and brace < len(texts):
            start = next(at for at, word in enumerate(plain)
                         if word in ("struct", "class", "union", "enum"))  # fmt: skip
            name = _class_name(plain[start + 1 :])
            part = self.made(first, end, name, "type", device)
            if "enum" in plain[: start + 1] and not device:
                # Its enumerators are named without it.
                part.kind = "other"
            return part
        if "operator" in plain and not device:
            host = bool({"ostream", "istream", "std"}.intersection(texts))
            return self.made(first, end, "", "function" if host else "other", False)
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
            return self.made(first, end, name, "function", device)
        stop = next((at for at, word in enumerate(plain) if word in ("=", "[", "{", ";", ",")), 0)
        return self.made(first, end, plain[stop - 1] if stop else "", "variable", device)


def _within_attribute(plain: Sequence[str], at: int) -> bool:
    """Whether the bracket at `at` belongs to __align__(n) and the like."""
    return plain[at] == "(" and plain[at - 1] in (
        "__align__",
        "alignas",
        "__attribute__",
        "__declspec",
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
