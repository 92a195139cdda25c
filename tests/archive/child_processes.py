"""Child processes of a process, as the kernel lists them."""

import os
from pathlib import Path

from shedder.archive.exact import fork_server


def children(pid: int) -> list[int]:
    """Return the ids of a process's children. Linux only.

    The lists of children by thread are not used: while a thread ends, its children are in none.
    """
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _of(path) == pid]


def _of(stat: Path) -> int | None:
    """The parent of a process; None: it has ended."""
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def exact_worker_process(of: int | None = None) -> int:
    """Return the id of the one process that answers exactly for a process; None: for this one."""
    [found] = exact_worker_processes(of)
    return found


def exact_worker_processes(of: int | None = None) -> list[int]:
    """Return the ids of the processes that answer exactly for a process; None: for this one."""
    script = os.fsencode(fork_server.__file__)
    parents = children(os.getpid() if of is None else of)
    return [pid for parent in parents if script in _command(parent) for pid in children(parent)]


def _command(pid: int) -> list[bytes]:
    """The command line of a process; of one that has ended, none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
