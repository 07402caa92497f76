"""Puts the pieces of one snippet's run together into a verdict and a record."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
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
from warpshelf.records.claim_check import MAIN, TARGETS, first_difference, texts_agree
from warpshelf.records.schema import SCHEMA, Record
from warpshelf.worker.context import Task

DECIDING = ("snippets", "scripts")
RECORDS = ":(exclude)snippets/*/results/*"  # what a run itself changes
NAMED = 8  # changed files that a record names
TRAVELS_WITH = Path(".shelf") / "commit"  # in a copy of a checkout that has no version control
DEMO_LINES = 30  # that a demo may print
LONGEST = 200 * DEMO_LINES  # characters of it
COMPILE_SECONDS = 900.0  # by the clock, beside other work
SPACE_SECONDS = 3600.0  # to compile and execute every configuration of a space


@dataclass
class SnippetRun:
    """What the children found out about one snippet on this machine so far."""

    snippet: Snippet
    machine: dict[str, Any]
    old: Record | None
    trusted: bool = False  # the record in place, beside which the demo alone runs
    demo: str = ""
    parts: dict[Task, dict[str, Any]] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)  # of all targets
    spaces: list[dict[str, Any]] = field(default_factory=list)  # of all targets
    awaited: set[tuple[Task, str | None]] = field(default_factory=set)  # untimed jobs
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)  # by task, of what found nothing wrong

    @property
    def on_cpu(self) -> bool:
        return int(self.machine["gpus"]) == 0

    @cached_property
    def current_record(self) -> Record:
        """The record in place, if it is of the present code; else an empty one."""
        return self.old if self.old and self.old["digest"] == self.snippet.digest else {}

    def cannot_run(self) -> str | None:
        """Why nothing of this snippet can run on this machine."""
        if self.snippet.uses_triton and self.machine["triton"] is None:
            return "Triton is not installed; it exists for Linux only"
        if self.on_cpu and self.snippet.has_cuda and not self.machine["os"].startswith("Linux"):
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
        return bool(is_compiled(self.snippet) and self.machine["triton"] is not None)

    def untimed_jobs(self, force: bool = False, viewed: bool = False) -> list[Job]:
        """What to do before any timing: of a trusted record the demo alone. Compiled figures of a
        current record are kept on a CPU; with `viewed` the views that lack are made there too."""
        one, executes = self.snippet, self.only_compiled() is None
        if self.trusted:
            self.awaited = {(Task.DEMO, self.targets[0])}
            return [self._make_job(Task.DEMO, one.seconds, self.targets[0])]
        jobs: list[Job] = []
        if executes:
            views = viewed and self.on_cpu and one.kind == "kernel"
            views = views and (force or not (self.current_record and view_store.load_views(one)[0]))
            for target in self.targets:
                job = self._make_job(Task.VERIFY, one.seconds, target)
                if views and target is not None:
                    job = replace(job, then=COMPILE_SECONDS)
                    job.details["viewed"] = True
                jobs.append(job)
        elif self.on_cpu and one.kind == "kernel":  # the list of what is due is needed anyway
            jobs.append(self._make_job(Task.DUE, one.seconds))
        # What only compiles here has nothing else to do, and must do something to be current.
        spared = self.current_record.get("compiled") and self.on_cpu and executes and not force
        if self._can_compile and not spared and Task.COMPILE not in self.parts:
            jobs.append(self._make_job(Task.COMPILE, COMPILE_SECONDS))
        surveys = self.on_cpu and executes and "SPACE" in one.places
        if surveys and (force or "space" not in self.current_record):
            jobs += [self._make_job(Task.SPACE, SPACE_SECONDS, to) for to in self._sorted_targets()]
        self.awaited = {(job.do, job.details["target"]) for job in jobs}
        return jobs

    def timing_job(self) -> Job | None:
        """The job that times it, where there is something to time and a GPU."""
        if self.on_cpu or self.snippet.kind != "kernel" or self.only_compiled():
            return None
        return self._make_job(Task.TIME, self.snippet.seconds)

    @property
    def targets(self) -> tuple[str | None, ...]:
        """The architectures whose PTX is executed here: those that the snippet is for, and the one
        that its record rests on. None stands for the machine as it is."""
        if not self.on_cpu or not is_compiled(self.snippet):
            return (None,)
        fits = partial(architectures.is_covered, self.snippet.needs, None)
        return tuple(t for t in TARGETS if t == MAIN or fits(architectures.sm_version(t)))

    def _sorted_targets(self) -> list[str]:
        return sorted(filter(None, self.targets), key=architectures.sm_version)

    def _make_job(self, do: Task, seconds: float, target: str | None = None) -> Job:
        known = job_details(self.snippet, self.machine, target)
        if do is Task.COMPILE:  # ahead of time: it needs no GPU, and takes no share of one
            known["environment"]["CUDA_VISIBLE_DEVICES"] = ""
        shares = do is Task.VERIFY and not self.on_cpu
        return Job(do, self.snippet.id, seconds, known, on_gpu=shares, alone=do is Task.TIME)

    def add_outcome(self, outcome: Outcome) -> None:
        """Keep the answer of a child, or a finding in its place."""
        do, details, answer = outcome.job.do, outcome.job.details, outcome.answer or {}
        self.seconds += outcome.seconds
        if answer and not answer.get("failures"):
            # Seconds that tell of the next run: of CPU where no GPU was waited for.
            taken, name = outcome.seconds, do.name.lower()
            taken = answer.get("cpu_seconds", taken) if self.on_cpu else taken
            self.spent[name] = round(self.spent.get(name, 0.0) + taken, 1)
            if "demo_seconds" in answer and details.get("due"):
                self.spent["demo"] = answer["demo_seconds"]
        target = details.get("target")
        self.awaited.discard((do, target))
        self.findings.extend(outcome_findings(self.snippet, outcome))
        if do is not Task.DEMO:
            self.views += answer.get("views", [])
        if do is Task.SPACE:
            self.spaces += [answer["space"]] if answer.get("space") else []
        elif do is Task.DEMO:
            self._take_demo(outcome, 1)
        elif target not in TARGETS[1:]:  # results of those pass the same checks, unrecorded
            self.parts[do] = answer
            if do is Task.VERIFY:
                self._take_demo(outcome, 2)

    def _take_demo(self, outcome: Outcome, runs: int) -> None:
        if not outcome.answer or self.findings:
            return
        try:
            self.demo = validate_demo(*split_output(outcome.output, outcome.token, runs))
        except ValueError as unfit:
            self.add_finding(str(unfit), "seed it, and print a short, plain text", "demo")
            return
        record = self.current_record
        before = record.get("demo", self.demo)
        if texts_agree(before, self.demo):
            self.demo = before
        else:
            changed = first_difference(before, self.demo)
            what = f"demo() differs from its record of {record['date'][:10]}: {changed}"
            self.add_finding(what, "make it print the same on every run and machine", "demo")

    def add_finding(self, what: str, mend: str, name: str | None = None) -> None:
        """Keep a finding at the line where `name` is defined."""
        file, line = self.snippet.places.get(name or "", (self.snippet.path.name, None))
        path = self.snippet.project.relative_path(self.snippet.folder / file)
        self.findings.append(Finding(path, line, what, mend))

    def final_findings(self) -> list[Finding]:
        """What is wrong, once everything is in."""
        if self.findings:
            return self.findings
        executed = self.trusted or self.snippet.kind != "kernel"
        executed = executed or (self.on_cpu and bool(self._compiled_figures()))
        if not executed and not any(
            result["role"] == "variant" and result["verdict"] == "passed"
            for row in self.parts.get(Task.VERIFY, {}).get("cases", [])
            for result in row["results"]
        ):
            what = "nothing was executed: every variant was skipped"
            self.add_finding(what, "see NEEDS", "NEEDS")
        if self.current_digest() != self.snippet.digest:
            self.add_finding("changed while it ran", "run it again")
        return self.findings

    def current_digest(self) -> str:
        """The digest of the files as they are, which an editor may have changed since."""
        return digest.folder_digest(self.snippet.project.root, self.snippet.folder)

    def _compiled_figures(self) -> list[dict[str, Any]]:
        fresh = self.parts.get(Task.COMPILE, {}).get("compiled")
        return fresh or self.current_record.get("compiled") or []

    def build_record(self) -> Record:
        """The record of a run that found nothing wrong."""
        verified, timed = (self.parts.get(task, {}) for task in (Task.VERIFY, Task.TIME))
        skips = {row["what"]: row for row in verified.get("skips", []) + timed.get("skips", [])}
        if why := self.only_compiled():
            skips["everything"] = {"what": "everything", "reason": why}
        space = self.current_record.get("space") if self.on_cpu else None
        if self.spaces:
            rows = {target: lines for one in self.spaces for target, lines in one["rows"].items()}
            space = {**self.spaces[0], "rows": rows}
        due = (verified or self.parts.get(Task.DUE, {})).get("due")
        listed = ("facts", "predictions", "goals", "timelines", "grids")
        parts = {
            "due": due if self.on_cpu else None,
            "cases": verified.get("cases", []) + timed.get("cases", []),
            **{name: verified.get(name, []) for name in listed},
            "ceilings": timed.get("ceilings"),
            "conditions": timed.get("conditions"),
            "compiled": self._compiled_figures(),
            "skips": list(skips.values()),
            "targets": self._sorted_targets() if verified else None,
            "space": timed.get("space") or space,
            "seconds": {**self.current_record.get("seconds", {}), **self.spent},
        }
        return {
            "schema": SCHEMA,
            "method": digest.METHOD,
            "snippet": self.snippet.id,
            "kind": self.snippet.kind,
            "digest": self.snippet.digest,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": checkout_commit(self.snippet.project.root),
            "command": f"shelf run {self.snippet.id}",
            "machine": self.machine,
            "demo": self.demo,
            **{name: part for name, part in parts.items() if part},
        }


def is_compiled(snippet: Snippet) -> bool:
    return snippet.uses_triton or snippet.has_cuda


def job_details(
    snippet: Snippet, machine: dict[str, Any], target: str | None = None
) -> dict[str, Any]:
    """What a child must know about its snippet; `target` is the architecture whose PTX it executes,
    on a machine without a GPU."""
    # From 3.10 on Triton fuses products with sums only if told to, and 3.9 warns of that on stderr.
    # Here all are told to, so that a record means the same under each.
    environment = {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    if target is not None:
        environment["PAPERGPU_TARGET"] = target
    if machine["gpus"] == 0:
        environment["CUDA_VISIBLE_DEVICES"] = ""  # it is verified as on a machine without one
    else:  # a child a core is at work already: torch.compile would start as many more in each
        environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    return {
        "root": str(snippet.project.root),
        "path": str(snippet.path),
        "id": snippet.id,
        "kind": snippet.kind,
        "needs": snippet.needs,
        "has_cuda": snippet.has_cuda,
        "places": snippet.places,
        "machine": machine,
        "target": target,
        "due": target in (None, MAIN),
        "demo": target in (None, MAIN),
        "limit": snippet.seconds,
        "environment": environment,
    }


def outcome_findings(snippet: Snippet, outcome: Outcome) -> list[Finding]:
    """What a child found wrong, or how the child ended, as findings on the snippet."""
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
        mend = failure["mend"] or f"fix it and run `shelf run {snippet.id}`"
        file = snippet.folder / (failure.get("file") or snippet.path.name)
        where = snippet.project.relative_path(file)
        found.append(Finding(where, failure["line"], what, mend))
    return found


def checkout_commit(root: Path) -> str | None:
    """The checkout's commit, and behind it `+FILE` for files that decide results and differ. A copy
    without version control has it in a file, written where the copy was made."""
    if not (root / ".git").exists() and (note := root / TRAVELS_WITH).is_file():
        return note.read_text(encoding="utf-8").strip() or None
    name = project.git_line(root, "rev-parse", "--short=12", "HEAD")
    told = project.run_git(root, "status", "--porcelain", "-uall", "--", *DECIDING, RECORDS)
    if name is None or told is None:
        return None
    # Two letters and a space, and quotes around a name with signs that a commit may not have.
    files = sorted(re.sub(r"[^\w./-]", "_", line[3:].strip('"'))
                   for line in told.decode("utf-8", "replace").splitlines())  # fmt: skip
    more = [f"{len(files) - NAMED}-more"] if len(files) > NAMED else []
    return "+".join([name, *files[:NAMED], *more])


def split_output(output: bytes, token: str, runs: int = 2) -> tuple[bytes, ...]:
    """The output of each of the runs of demo(), between the marks that the child printed;
    ValueError if there are more or fewer."""
    parts = re.split(rb"\n" + token.encode() + rb" [a-z0-9 ]+\n", output)
    if len(parts) != runs + 2:
        raise ValueError("the output of demo() is incomplete")
    return tuple(parts[1:-1])


def validate_demo(*runs: bytes) -> str:
    """The text to publish of what each run of demo() printed; ValueError if it is empty, too long,
    not UTF-8, or different on the second run."""
    texts = []
    for printed in runs:
        try:
            texts.append(printed.decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = printed[error.start]
            raise ValueError(f"demo() printed the byte 0x{byte:02x}, which is not UTF-8") from None
    first, last, lines = texts[0], texts[-1], len(texts[0].splitlines())
    problems = [
        (not first.strip(), "nothing"),
        (lines > DEMO_LINES, f"{lines} lines; the limit is {DEMO_LINES}"),
        (len(first) > LONGEST, f"{len(first)} characters; the limit is {LONGEST}"),
        (first != last, f"something else on its second run: {first_difference(first, last)}"),
    ]
    for wrong, what in problems:
        if wrong:
            raise ValueError(f"demo() printed {what}")
    return first
