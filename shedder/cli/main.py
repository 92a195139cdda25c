"""The process of the command `shedder`, which Ctrl-C ends at once, also while it begins or ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from importlib.abc import MetaPathFinder

from shedder.gc_tuning import loading

# Commands that use no pandas, which pyarrow imports where it finds it: a quarter of a second.
# Commands of other packages may use it.
WITHOUT_PANDAS = frozenset(
    {"serve", "sql", "push", "check", "backup", "restore", "scrub", "simulate", "token"}
)


class _Without(MetaPathFinder):
    """Finder of a process that does without a module: an import of it fails."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Refuse the module, and leave all others to the other finders."""
        del path, target
        if fullname == self._name:
            raise ModuleNotFoundError(f"this process does without {fullname}", name=fullname)


def main() -> None:
    """Run the command line of this process and end it."""
    ended: list[int] = []
    atexit.register(_end, ended)  # Registered before any other, so called after all of them.
    python_listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if (
        python_listens
    ):  # Else in some import, with a traceback or, in the worst case, an ImportError.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] and sys.argv[1] in WITHOUT_PANDAS:
        sys.meta_path.insert(0, _Without("pandas"))
    with loading():
        from shedder.cli.commands import run  # Heavy.

    if python_listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    ended.append(run(sys.argv[1:]))
    sys.exit(ended[0])


def _end(ended: list[int]) -> None:
    """End the process when all that had to be done at the end was done.

    To take apart all modules, as Python would do now, takes half a second with Arrow and numba.
    """
    if not ended:
        return
    try:
        sys.stdout.flush()
        if not sys.stderr.closed:
            sys.stderr.flush()
    except (OSError, ValueError):  # Python tells of it, and chooses the exit code.
        return
    os._exit(ended[0])


if __name__ == "__main__":
    main()
