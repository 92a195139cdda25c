"""Precompilation of every kernel that an engine calls, before the first tuple comes.

numba keeps compiled kernels on disk, beside the modules that define them. `python -m
shedder.engine.precompile` compiles them once for all later processes of this installation. Without
that, each process that starts before the first one has finished compiles all of them again.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from allocator.mixture_lp import Mixture
from shedder.cql.expressions.integer_division import compile_remainders
from shedder.dataflow.precompile import compile_operators
from shedder.gc_tuning import loading
from shedder.streams.column_bits import compile_words
from shedder.streams.row_sizes import compile_row_sizes
from synopses.precompile import compile_kernels, compile_question_kernels


@cache
def compile_all() -> None:
    """Compile the kernels, or load them from the disk; once in a process."""
    with loading():
        compile_kernels()
        compile_question_kernels()
        compile_remainders()
        compile_words()
        compile_row_sizes()
        compile_operators()


def import_operators() -> None:
    """Import the operators of row queries: kernels with one signature are compiled then.

    An engine has imported them.
    """
    import_module("shedder.dataflow.planner")


def compile_solver() -> None:
    """Compile the allocator's largest kernel, which an engine needs from its first query on."""
    mixture = Mixture((0.5, 0.5), 1.0)
    mixture.add(1.0, 1.0, 1.0)
    mixture.best()


if __name__ == "__main__":
    import_operators()
    compile_all()
    compile_solver()
