"""PTX text read into its tree.

What a reader of PTX need not know is kept nonetheless (alignments, linkage, limits of a launch),
and what it does not know is refused with its line: a directive that is passed over is a program
that does something else.
"""

from __future__ import annotations

import re

from papergpu.bodies import Bodies
from papergpu.declared import SPACES
from papergpu.tree import Function, Module, Variable
from papergpu.words import END, Unreadable

__all__ = ["Unreadable", "parse"]

LIMITS = (".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
          ".reqnctapercluster", ".maxclusterrank", ".explicitcluster",
          ".blocksareclusters")  # fmt: skip

FILE = re.compile(r'(?<![\w$])\.file\s+([0-9]{1,9})\s+"((?:[^"\\\n]|\\.)*)"')
SECTION = re.compile(r'[^{]*\{(?:[^}"/]++|"[^"]*"|//[^\n]*|/)*+\}')


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        Unreadable: it is no PTX that this reads, with the line and what stands there.
    """
    return _Reader(text).module()


class _Reader(Bodies):
    def module(self) -> Module:
        # LLVM writes its files behind the functions that name them.
        self.files.update({int(number): name for number, name in FILE.findall(self.text)})
        self.want(".version")
        line = self.next.line
        major, _, minor = self.take().text.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise Unreadable(line, "the version is none, such as 8.7")
        self.want(".target")
        found = Module((int(major), int(minor)), self.name(), files=self.files, text=self.text)
        while self.took(","):
            self.name()  # debug and texmode_*, which say nothing of what is executed
        while self.next.kind != END:
            self.top(found)
        return found

    def top(self, found: Module) -> None:
        """One statement of the module."""
        line = self.next.line
        if self.took(".address_size"):
            found.address_size = self.number()
        elif self.sees(".file"):
            self.file()
        elif self.took(".section"):
            self.section()
        elif self.took(".pragma"):
            self.take()
            self.want(";")
        else:
            linkage = self.linkage()
            if self.sees(".entry", ".func"):
                found.functions.append(self.function(linkage))
            elif self.sees(*SPACES):
                found.variables += self.variables(linkage)
            else:
                raise Unreadable(line, f"{self.next.text[:40]!r} begins no statement of a module")

    def section(self) -> None:
        """Debugging data, which nobody executes."""
        line, found = self.next.line, SECTION.match(self.text, self.start)
        if found is None:
            raise Unreadable(line, "a .section has no end")
        self.go(found.end())

    def function(self, linkage: tuple[str, ...]) -> Function:
        head = self.take()
        kernel = head.text == ".entry"
        results: list[Variable] = []
        if not kernel and self.took("("):
            results = self.several(self.parameter, ")")
        found = Function(self.name(), kernel, head.line, results=results, linkage=linkage)
        if self.took("("):
            found.parameters = self.several(self.parameter, ")")
        while self.sees(*LIMITS):
            name = self.take().text.removeprefix(".")
            values = [self.number()] if self.next.kind == "integer" else []
            while values and self.took(","):
                values.append(self.number())
            found.directives[name] = tuple(values)
        self.place = None
        self.places = {}
        if self.sees("{"):
            found.body = self.block()
        else:
            self.want(";")
        return found
