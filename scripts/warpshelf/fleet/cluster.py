"""A Ray cluster, as far as a fleet needs it: its nodes, tasks on them, answers, and one clear line
for each way in which Ray fails. The only module that imports Ray, but for what a node runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpshelf.bench import pool
from warpshelf.core.findings import Finding, ShelfError, install_hint
from warpshelf.fleet import node

LOCAL = "ray"
RETRIES = 3  # of a task whose node or worker is lost, by Ray
KIND = "accelerator_type:"  # how Ray's resource of an accelerator's kind begins
STORE = 100 * 2**20  # bytes of a local cluster's object store; answers are small
KNOCKING = 10.0  # seconds until an address is taken for dead
LEAVING = 5.0  # seconds that tasks have to end when they are cancelled
FORM = "ray, auto, HOST:PORT or ray://HOST:PORT"
Work = Callable[[dict[str, Any]], dict[str, Any]]
Ref = Any  # Ray's promise of an answer


@dataclass(frozen=True)
class Node:
    """A node that is alive: what Ray counts there."""

    id: str
    name: str
    accelerator: str | None
    cpus: int
    gpus: int


@dataclass(frozen=True)
class NoAnswer:
    """In place of an answer: why Ray has none; `again` if another try may well have one."""

    why: str
    again: bool = False


class Cluster:
    """A connection. A context manager: leaving it cancels what is under way, and disconnects.

    While Ray is called, a signal that asks the run to stop is held back: Ray takes no exception
    from a handler but KeyboardInterrupt. A ShelfError says why there can be none.
    """

    def __init__(self, address: str, folder: Path) -> None:
        # A run asks nobody's leave to tell Ray's makers of it. Ray reads this when it is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray = _import_ray(address)
        _check_reachable(address)
        self.flying: set[Ref] = set()
        # Ray tells of lost nodes on standard output, which is for our answer.
        self.quiet = contextlib.ExitStack()
        self.quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
        options: dict[str, Any] = {"address": address}
        if address == LOCAL:
            options = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
        options["runtime_env"] = {"working_dir": str(folder)}
        try:
            with _preserve_signals(), pool.defer_signals():
                self.ray.init(**options, log_to_driver=False, logging_level="ERROR")
            from ray.util.queue import Queue

            self.notes: Any = Queue(actor_options={"num_cpus": 0, "max_restarts": -1})
        except Exception as error:  # Ray raises a dozen kinds, among them bare ones
            self._disconnect()
            raise ShelfError(_connection_finding(address, error)) from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            flying = list(self.flying)
            self.cancel_tasks(flying)
            if flying:
                self.ray.wait(flying, num_returns=len(flying), timeout=LEAVING)
        self._disconnect()

    def _disconnect(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.shutdown()
        self.quiet.close()

    @pool.defer_signals()
    def live_nodes(self) -> list[Node]:
        """The nodes that are alive and have anything to run on."""
        found = []
        for row in self.ray.nodes():
            has, host = row["Resources"], row.get("NodeManagerHostname")
            name = f"{host or row.get('NodeManagerAddress')} ({row['NodeID'][:6]})"
            cpus, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
            kinds = sorted(key.removeprefix(KIND) for key in has if key.startswith(KIND))
            if row["Alive"] and (cpus or gpus):
                accelerator = kinds[0] if kinds and has.get("GPU") else None
                found.append(Node(row["NodeID"], name, accelerator, cpus, gpus))
        return found

    @pool.defer_signals()
    def start_task(
        self,
        work: Work,
        task: dict[str, Any],
        *,
        gpus: int = 0,
        cpus: int = 0,
        accelerator: str | None = None,
        on: str | None = None,
        avoid: Collection[str] = (),
    ) -> Ref:
        """Have `work` told `task` where `gpus` and `cpus` are free, on the one node `on` or on none
        of `avoid`; the promise of its answer."""
        from ray import cloudpickle

        # By value: no node has this tooling where Python would find it.
        for module in (node, sys.modules[work.__module__]):
            cloudpickle.register_pickle_by_value(module)
        options: dict[str, Any] = {"num_gpus": gpus, "num_cpus": cpus, "max_retries": RETRIES}
        if accelerator:
            options["accelerator_type"] = accelerator
        if on or avoid:
            chosen = on or f"!in({','.join(sorted(avoid))})"
            options["label_selector"] = {"ray.io/node-id": chosen}
        remote = self.ray.remote(node.run_in_task).options(name=str(task["key"]), **options)
        ref = remote.remote(work, task, self.notes)
        self.flying.add(ref)
        return ref

    @pool.defer_signals()
    def wait_answers(self, seconds: float) -> list[Ref]:
        """Wait for the next answer, not longer than `seconds`; all that are there by then."""
        if not self.flying:
            return []
        done, rest = self.ray.wait(list(self.flying), num_returns=1, timeout=seconds)
        if done and rest:
            done += self.ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return list(done)

    @pool.defer_signals()
    def get_answer(self, ref: Ref) -> dict[str, Any] | NoAnswer:
        """What a promise came to, once `wait_answers` has given it."""
        self.flying.discard(ref)
        errors = self.ray.exceptions
        try:
            answer: dict[str, Any] = self.ray.get(ref)
            return answer
        except errors.RuntimeEnvSetupError as error:
            what = "a node could not receive the copy of the checkout"
            return NoAnswer(f"{what}: {_first_line(error)}", True)
        except errors.OutOfMemoryError:
            return NoAnswer("Ray ended it because its node ran out of memory")
        except (errors.WorkerCrashedError, errors.NodeDiedError):
            return NoAnswer(f"its node or worker was lost more than {RETRIES} times")
        except errors.TaskCancelledError:
            return NoAnswer("was cancelled")
        except errors.RayTaskError as error:
            return NoAnswer(f"failed on its node: {_first_line(error.cause or error)}")
        except errors.RayError as error:
            return NoAnswer(_first_line(error))

    @pool.defer_signals()
    def cancel_tasks(self, refs: Iterable[Ref], force: bool = False) -> None:
        """End tasks, or keep them from beginning; `force` ends the worker as well."""
        for ref in refs:
            self.flying.discard(ref)
            with contextlib.suppress(Exception):
                self.ray.cancel(ref, force=force)

    @pool.defer_signals()
    def begun_tasks(self) -> list[tuple[str, str]]:
        """The tasks that began since this was asked last: (key, id of the node)."""
        with contextlib.suppress(Exception):  # its node may be lost; then nothing is known
            notes: list[tuple[str, str]] = self.notes.get_nowait_batch(self.notes.qsize())
            return notes
        return []


def _import_ray(address: str) -> Any:
    try:
        import ray

        if address.startswith("ray://"):
            import grpc  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("ray", "grpc"):
            raise
        package = "ray" if error.name == "ray" else "grpcio"
        what = "is not installed in this environment"
        raise ShelfError(Finding(package, None, what, install_hint("fleet"))) from None
    return ray


@contextlib.contextmanager
def _preserve_signals() -> Iterator[None]:
    """Leave signals to those who had them: Ray's own handler of SIGTERM aborts the process."""
    ours = threading.current_thread() is threading.main_thread()  # elsewhere Ray touches none
    signals = (signal.SIGINT, signal.SIGTERM) if ours else ()
    found = [(one, signal.getsignal(one)) for one in signals]
    try:
        yield
    finally:
        for one, handler in found:
            if handler is not None:
                signal.signal(one, handler)


def _check_reachable(address: str) -> None:
    """Check that something listens at an address: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon:
            socket.create_connection((host.strip("[]"), int(port)), KNOCKING).close()
    except OSError as error:
        raise ShelfError(_connection_finding(address, error)) from None


def _connection_finding(address: str, error: Exception) -> Finding:
    text = " ".join(str(error).split())
    if "ersion" in text and ("ython" in text or "Ray:" in text):
        mend = "use the same Ray and Python as the cluster"
        return Finding(address, None, f"runs other versions: {text}", mend)
    mend = f"check that the cluster is up (`ray status` there), and write {FORM}"
    return Finding(address, None, f"cannot be reached: {_first_line(error)}", mend)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
