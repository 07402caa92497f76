"""Files kept on disk for the next time, each named by a digest of all that decides it.

One is written aside and moved into place, for several processes may do so at once. A folder is held
to a number of bytes: what was not read for longest is removed when something is written. A folder
that cannot be written is done without. `PAPERGPU_CACHE` says where they are; without it that is
`papergpu` in the user's cache.
"""

from __future__ import annotations

import atexit
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir


def cache_dir() -> Path:
    """The folder in which compiled engines and decoded kernels are kept."""
    given = os.environ.get("PAPERGPU_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "papergpu"


def scratch_dir() -> Path:
    """A folder for this process alone; remove those of processes that have ended."""
    root = Path(gettempdir()) / f"papergpu-{os.getuid()}"
    folder = root / str(os.getpid())
    if not folder.is_dir():
        folder.mkdir(0o700, parents=True, exist_ok=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for other in root.iterdir():  # a process may end without a word
            if not Path("/proc", other.name).exists():
                shutil.rmtree(other, ignore_errors=True)
    return folder


def read_cached(path: Path) -> bytes | None:
    """What is kept there, marked as used now; None if nothing is."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):
        os.utime(path)
    return data


def write_cached(path: Path, data: bytes, limit: int) -> None:
    """Keep `data` there, and of the other files in its folder as many as `limit` bytes allow."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as aside:
            aside.write(data)
    except OSError:
        return
    try:
        Path(aside.name).replace(path)
    except OSError:
        Path(aside.name).unlink(missing_ok=True)
        return
    prune_folder(path.parent, limit, path)


def prune_folder(folder: Path, limit: int, spared: Path) -> None:
    """Remove files of a folder, those first that were used last, until `limit` bytes are left.

    `spared` stays. What another process removes at the same time is removed.
    """
    found: list[tuple[int, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            with suppress(OSError):
                about = one.stat(follow_symlinks=False)
                found.append((about.st_mtime_ns, about.st_size, one.path))
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= limit:
            return
        if path != str(spared):
            with suppress(OSError):
                os.unlink(path)
            left -= size
