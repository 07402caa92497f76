"""The pieces of one snippet's run, put together into a verdict and a record."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warpshelf.bench.pool import Job, Outcome
from warpshelf.contract import architectures, digest
from warpshelf.contract.architectures import EXTRAS
from warpshelf.contract.snippet import Snippet
from warpshelf.core import project
from warpshelf.core.findings import Finding, install_hint
from warpshelf.look import view_store
from warpshelf.look.view import View
from warpshelf.records import claim_check
from warpshelf.records.claim_check import first_difference
from warpshelf.records.claim_check import texts_agree as texts_agree
from warpshelf.records.schema import SCHEMA, Record
from warpshelf.worker.context import Task

RECORDS = ":(exclude)snippets/*/results/*"  # what a run itself changes
TARGETS = claim_check.TARGETS
TRAVELS_WITH = Path(".shelf") / "commit"  # in a copy of a checkout that has no version control
DEMO_LINES = 30  # that a demo may print
SPACE_SECONDS = 3600.0  # to compile and execute every configuration of a space


@dataclass
class SnippetRun:
    """What the children found out about one snippet on this machine so far."""

    snippet: Snippet
    machine: dict[str, Any]
    old: Record | None
    trusted: bool = False  # the record in place, beside which the demo alone runs
    digest: str = ""
    demo: str = ""
    parts: dict[Task, dict[str, Any]] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)  # of all targets
    spaces: list[dict[str, Any]] = field(default_factory=list)  # of all targets
    awaited: set[tuple[Task, str | None]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    spent: dict[str, float] = field(
        default_factory=dict
    )  # seconds by task, of what found nothing wrong

    def __post_init__(self) -> None:
        self.digest = self.snippet.digest

    @property
    def on_cpu(self) -> bool:
        """Whether this machine has no GPU."""
        return int(self.machine["gpus"]) == 0

    @property
    def old_is_current(self) -> bool:
        """Whether the committed record is of the present code."""
        return self.old is not None and self.old["digest"] == self.digest

    @property
    def verified(self) -> bool:
        """Whether every answer but the times is in."""
        return not self.awaited

    def cannot_run(self) -> str | None:
        """Why nothing at all of this snippet can be done on this machine."""
        if self.snippet.uses_triton and self.machine["triton"] is None:
            return "Triton is not installed; it exists for Linux only"
        if self.on_cpu and self.snippet.cuda_path and not self.machine["os"].startswith("Linux"):
            return "without a GPU its PTX is executed, which needs Linux"
        for module in self.snippet.needs.get("modules", ()):
            if find_spec(module) is None:
                mend = install_hint(EXTRAS.get(module, "run"))
                return f"{module} is not installed in this environment; {mend}"
        return None if self._can_compile else self.only_compiled()

    def only_compiled(self) -> str | None:
        """Why it is compiled on this machine and not executed; None where it is executed."""
        return self.snippet.cannot_run(self.machine["sm"], self.machine["gpus"])

    @property
    def _can_compile(self) -> bool:
        # ptxas and cuobjdump, which read the binaries of either language, come with Triton.
        compiled = self.snippet.uses_triton or self.snippet.cuda_path is not None
        return compiled and self.machine["triton"] is not None

    @property
    def _can_execute(self) -> bool:
        return self.only_compiled() is None

    def untimed_jobs(
        self, compile_seconds: float, force: bool = False, viewed: bool = False
    ) -> list[Job]:
        """What to do before any timing. A current record's compile figures are kept on a CPU.

        With `viewed` the views of its kernels are made as well, where PTX is executed, unless those
        of the present code are there. Of a trusted record the demo alone runs.
        """
        if self.trusted:
            self.awaited = {(Task.DEMO, self.targets[0])}
            return [self._make_job(Task.DEMO, self.snippet.seconds, self.targets[0])]
        jobs = []
        kernel = viewed and self.on_cpu and self.snippet.kind == "kernel"
        views = kernel and (force or not self.old_is_current or not self._has_views)
        if self._can_execute:
            for target in self.targets:
                job = self._make_job(Task.VERIFY, self.snippet.seconds, target)
                if target is not None and views:
                    job = replace(job, then=compile_seconds)
                    job.details["viewed"] = True
                jobs.append(job)
        elif self.on_cpu and self.snippet.kind == "kernel":  # what is due is to be known anyway
            jobs.append(self._make_job(Task.DUE, self.snippet.seconds))
        has_figures = self.old_is_current and (self.old or {}).get("compiled")
        # What only compiles here has nothing else to do, and must do something to be current.
        spared = has_figures and self.on_cpu and self._can_execute and not force
        if self._can_compile and not spared and Task.COMPILE not in self.parts:
            jobs.append(self._make_job(Task.COMPILE, compile_seconds))
        if self._executes_space(force):
            for target in self._executed_targets():
                jobs.append(self._make_job(Task.SPACE, SPACE_SECONDS, target))
        self.awaited = {(job.do, job.details["target"]) for job in jobs}
        return jobs

    @cached_property
    def _has_views(self) -> bool:
        return bool(view_store.load_views(self.snippet)[0])

    def _executes_space(self, force: bool) -> bool:
        """Whether the configurations of a SPACE are executed; a current record's are kept."""
        if not self.on_cpu or not self._can_execute or "SPACE" not in self.snippet.places:
            return False
        return force or not self.old_is_current or "space" not in (self.old or {})

    def timing_job(self) -> Job | None:
        """The job that times it, where there is something to time and a GPU."""
        if self.on_cpu or self.snippet.kind != "kernel" or not self._can_execute:
            return None
        return self._make_job(Task.TIME, self.snippet.seconds)

    @property
    def targets(self) -> tuple[str | None, ...]:
        """The architectures whose PTX is executed here; None stands for the machine as it is.

        Those that a snippet is not for are left out, but the one that its record rests on.
        """
        if not self.on_cpu or not (self.snippet.uses_triton or self.snippet.cuda_path is not None):
            return (None,)
        covers = [each.covers for each in architectures.required_architectures(self.snippet.needs)]
        return tuple(
            one
            for one in TARGETS
            if one == claim_check.MAIN
            or all(each(architectures.sm_version(one)) for each in covers)
        )

    def _executed_targets(self) -> list[str]:
        targets = [target for target in self.targets if target is not None]
        return sorted(targets, key=architectures.sm_version)

    def _make_job(self, do: Task, seconds: float, target: str | None = None) -> Job:
        known = job_details(self.snippet, self.machine, target)
        if do is Task.COMPILE:  # ahead of time: it needs no GPU, and takes no share of one
            known["environment"]["CUDA_VISIBLE_DEVICES"] = ""
        shares = do is Task.VERIFY and not self.on_cpu
        return Job(do, self.snippet.id, seconds, known, on_gpu=shares, alone=do is Task.TIME)

    def add_outcome(self, outcome: Outcome) -> None:
        """Keep the answer of a child, or the finding that stands for it."""
        self.seconds += outcome.seconds
        if outcome.answer and not outcome.answer.get("failures"):
            task = outcome.job.do.name.lower()
            self.spent[task] = round(self.spent.get(task, 0.0) + self._outcome_seconds(outcome), 1)
            if "demo_seconds" in outcome.answer and outcome.job.details.get("due"):
                self.spent["demo"] = outcome.answer["demo_seconds"]
        target = outcome.job.details.get("target")
        self.awaited.discard((outcome.job.do, target))
        self.findings.extend(outcome_findings(self.snippet, outcome))
        if outcome.job.do is Task.DEMO:
            self._take_demo(outcome, 1)
            return
        self.views += (outcome.answer or {}).get("views", [])
        if outcome.job.do is Task.SPACE:
            if found := (outcome.answer or {}).get("space"):
                self.spaces.append(found)
            return
        if target in TARGETS[1:]:
            return  # its results have passed the same checks, and are not recorded
        self.parts[outcome.job.do] = outcome.answer or {}
        if outcome.job.do is Task.VERIFY:
            self._take_demo(outcome, 2)

    def _take_demo(self, outcome: Outcome, runs: int) -> None:
        if not outcome.answer or self.findings:
            return
        try:
            printed = split_output(outcome.output, outcome.token, runs)
            self.demo = validate_demo(printed[0], printed[-1])
        except DemoError as unfit:
            self.add_finding(str(unfit), "seed it, and keep it short and plain", "demo")
            return
        self._compare_demo()

    def _compare_demo(self) -> None:
        if not self.old_is_current or self.old is None:
            return
        before = self.old["demo"]
        if texts_agree(before, self.demo):
            self.demo = before
        else:
            changed = first_difference(before, self.demo)
            what = f"demo() prints other than its record of {self.old['date'][:10]}: {changed}"
            self.add_finding(what, "make it the same on every run and machine", "demo")

    def _outcome_seconds(self, outcome: Outcome) -> float:
        """Seconds that tell of the next run: of CPU where no GPU was waited for."""
        taken: float = (outcome.answer or {}).get("cpu_seconds", outcome.seconds)
        return taken if self.on_cpu else outcome.seconds

    def add_finding(self, what: str, mend: str, name: str | None = None) -> None:
        """Keep a finding at the line where `name` is defined."""
        file, line = self.snippet.places.get(name or "", (self.snippet.path.name, None))
        path = self.snippet.project.relative_path(self.snippet.folder / file)
        self.findings.append(Finding(path, line, what, mend))

    def final_findings(self) -> list[Finding]:
        """What is wrong, once everything is in."""
        if self.findings:
            return self.findings
        if self.trusted:
            return self._check_unchanged()
        figures = self.on_cpu and self._compiled_figures()
        if self.snippet.kind == "kernel" and not self._anything_executed() and not figures:
            self.add_finding(
                "nothing was executed: every variant was skipped", "see NEEDS", "NEEDS"
            )
        return self._check_unchanged()

    def _check_unchanged(self) -> list[Finding]:
        if self.current_digest() != self.digest:
            self.add_finding("changed while it ran", "run it again")
        return self.findings

    def current_digest(self) -> str:
        """The digest of the files as they are, which an editor may have changed since."""
        return digest.folder_digest(self.snippet.project.root, self.snippet.folder)

    def _compiled_figures(self) -> list[dict[str, Any]]:
        fresh = self.parts.get(Task.COMPILE, {}).get("compiled")
        kept = self.old.get("compiled") if self.old and self.old_is_current else None
        return fresh or kept or []

    def _merge_spaces(self) -> dict[str, Any] | None:
        if not self.spaces:
            kept = self.old.get("space") if self.old and self.old_is_current else None
            return kept if self.on_cpu else None
        rows = {target: lines for one in self.spaces for target, lines in one["rows"].items()}
        return {**self.spaces[0], "rows": rows}

    def _seconds_by_task(self) -> dict[str, float]:
        """What each task took, also one whose result is kept of the record in place."""
        kept = self.old.get("seconds", {}) if self.old and self.old_is_current else {}
        return {**kept, **self.spent}

    def _anything_executed(self) -> bool:
        rows = self.parts.get(Task.VERIFY, {}).get("cases", [])
        return any(
            result["role"] == "variant" and result["verdict"] == "passed"
            for row in rows
            for result in row["results"]
        )

    def build_record(self) -> Record:
        """The record of a run that found nothing wrong."""
        verified = self.parts.get(Task.VERIFY, {})
        timed = self.parts.get(Task.TIME, {})
        skips = {row["what"]: row for row in verified.get("skips", []) + timed.get("skips", [])}
        if why := self.only_compiled():
            skips["everything"] = {"what": "everything", "reason": why}
        listed = self.parts.get(Task.DUE, {})
        parts = {
            "due": (verified or listed).get("due") if self.on_cpu else None,
            "cases": verified.get("cases", []) + timed.get("cases", []),
            "facts": verified.get("facts", []),
            "predictions": verified.get("predictions", []),
            "goals": verified.get("goals", []),
            "timelines": verified.get("timelines", []),
            "grids": verified.get("grids", []),
            "ceilings": timed.get("ceilings"),
            "conditions": timed.get("conditions"),
            "compiled": self._compiled_figures(),
            "skips": list(skips.values()),
            "targets": self._executed_targets() if verified else None,
            "space": timed.get("space") or self._merge_spaces(),
            "seconds": self._seconds_by_task(),
        }
        return {
            "schema": SCHEMA,
            "method": digest.METHOD,
            "snippet": self.snippet.id,
            "kind": self.snippet.kind,
            "digest": self.digest,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": checkout_commit(self.snippet.project.root),
            "command": f"shelf run {self.snippet.id}",
            "machine": self.machine,
            "demo": self.demo,
            **{name: part for name, part in parts.items() if part},
        }


def job_details(
    snippet: Snippet, machine: dict[str, Any], target: str | None = None
) -> dict[str, Any]:
    """What a child must know of the snippet that it works on.

    `target` is the architecture whose PTX it executes, on a machine without a GPU.
    """
    # From 3.10 on Triton fuses products with sums only if told to, and 3.9 warns of that on stderr.
    # Here all are told to, so that a record means the same under each.
    environment = {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    if target is not None:
        environment["PAPERGPU_TARGET"] = target
    if machine["gpus"] == 0:
        environment["CUDA_VISIBLE_DEVICES"] = ""  # it is verified as on a machine without one
    return {
        "root": str(snippet.project.root),
        "path": str(snippet.path),
        "id": snippet.id,
        "kind": snippet.kind,
        "needs": snippet.needs,
        "has_cuda": snippet.cuda_path is not None,
        "places": snippet.places,
        "machine": machine,
        "target": target,
        "due": target in (None, claim_check.MAIN),
        "demo": target in (None, claim_check.MAIN),
        "limit": snippet.seconds,
        "environment": environment,
    }


def outcome_findings(snippet: Snippet, outcome: Outcome) -> list[Finding]:
    """What a child found wrong, or what became of the child, as findings on the snippet."""
    path = snippet.project.relative_path(snippet.path)
    place = f" {outcome.place}" if outcome.place else ""
    if outcome.cause:
        mend = outcome.mend or f"run `python {path}` to see it alone"
        if outcome.cause.startswith("still running"):
            mend = 'make it shorter, or raise NEEDS["seconds"]'
        return [Finding(path, None, f"{outcome.cause}{place}", mend)]
    found = []
    for failure in (outcome.answer or {}).get("failures", []):
        what = failure["what"] + (place if failure.get("raised") else "")
        mend = failure["mend"] or f"mend it and run `shelf run {snippet.id}`"
        file = failure.get("file") or snippet.path.name
        place = snippet.project.relative_path(snippet.folder / file)
        found.append(Finding(place, failure["line"], what, mend))
    return found


def checkout_commit(root: Path) -> str | None:
    """The checkout's commit, with `+changes` where the tree differs from it.

    A copy without version control has it in a file, written where the copy was made.
    """
    if not (root / ".git").exists() and (note := root / TRAVELS_WITH).is_file():
        return note.read_text(encoding="utf-8").strip() or None

    name = project.git_line(root, "rev-parse", "--short=12", "HEAD")
    changed = project.git_line(root, "status", "--porcelain", "--", ".", RECORDS)
    if name is None or changed is None:
        return None
    return f"{name}+changes" if changed else name


class DemoError(Exception):
    """A demo's output cannot be published; the text says why."""


def split_output(output: bytes, token: str, runs: int = 2) -> tuple[bytes, ...]:
    """The output of each of the runs of demo(), between the marks that the child printed.

    Raises:
        Unfit: there are more marks than that, or fewer.
    """
    parts = re.split(rb"\n" + token.encode() + rb" [a-z0-9 ]+\n", output)
    if len(parts) != runs + 2:
        raise DemoError("demo() printed nothing that could be read")
    return tuple(parts[1:-1])


def validate_demo(first: bytes, second: bytes) -> str:
    """The text to publish.

    Raises:
        Unfit: it is empty, too long, not UTF-8, or was other the second time.
    """
    texts = []
    for printed in (first, second):
        try:
            texts.append(printed.decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = printed[error.start]
            raise DemoError(f"demo() printed the byte 0x{byte:02x}, which is not UTF-8") from None
    if not texts[0].strip():
        raise DemoError("demo() printed nothing")
    if (count := len(texts[0].splitlines())) > DEMO_LINES:
        raise DemoError(f"demo() printed {count} lines; the limit is {DEMO_LINES}")
    if len(texts[0]) > 200 * DEMO_LINES:
        raise DemoError(
            f"demo() printed {len(texts[0])} characters; the limit is {200 * DEMO_LINES}"
        )
    if texts[0] != texts[1]:
        raise DemoError(
            f"demo() printed something else the second time: {first_difference(*texts)}"
        )
    return texts[0]
