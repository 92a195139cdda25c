"""The garbage collector while modules and kernels are loaded: what stays is not swept.

Half a million objects are made then and none of them is garbage, but each generation that fills up
has all of them looked at again: an eighth of the time that opening takes, and, for the rest of the
process, pauses of the whole interpreter.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Turn the garbage collector off for the block; if it was off already, it stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def keeping_what_is_loaded() -> Iterator[None]:
    """Do not look at what is there now again; for a process that is ours alone.

    Afterwards it is looked at again: else DuckDB complains at the end about what is still there.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
