"""After warming up nothing is compiled any more, whatever layout the arrays come in."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

import synopses
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.joins.pane_counts import PaneRoom
from synopses.kernels.array_inputs import as_input
from synopses.kernels.hashing import murmur_int64
from synopses.precompile import compile_kernels, compile_question_kernels
from tests.laws import Part
from tests.synopses.joins.joined_panes import Cell, drawn
from tests.synopses.subjects import LINEAR, LOSSY
from tests.truth import draw


def compiled() -> dict[str, int]:
    """How many forms of each kernel of the package are compiled."""
    forms = {}
    for module in pkgutil.walk_packages(synopses.__path__, "synopses."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher):
                forms[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return forms


def laid_out(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The same values as numpy owns them, as Arrow lends them, strided and unaligned."""
    frozen = values.copy()
    frozen.setflags(write=False)
    raw = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:]
    return [values, frozen, np.repeat(values, 2)[::2], raw.view(np.float64)]


@pytest.mark.slow
def test_nothing_is_compiled_after_warming_up() -> None:
    compile_kernels()
    before = compiled()
    for values in laid_out(draw("lognormal-2", 1, 20_000)):
        ids = (np.arange(20_000) % 50).astype(np.int32)
        for subject in LINEAR + LOSSY:
            for part in (Part(ids, values), Part(None, values)):
                summary = subject.of(part, 50)
                back = type(summary).from_bytes(summary.to_bytes())
                back.merge(summary).select(np.arange(3)).scatter(np.arange(3), 9).merge(summary)
                subject.empty(1).merge(back)
    assert compiled() == before


@pytest.mark.slow
@pytest.mark.parametrize("groups", [4, 200])
def test_batches_of_large_groups_compile_nothing_either(groups: int) -> None:
    """They are read in the order of their groups, once pages hold what they count."""
    compile_kernels()
    before = compiled()
    for values in laid_out(draw("lognormal-2", 1, 65_536)):
        ids = (np.arange(values.size) % groups).astype(np.int32)
        for subject in LINEAR + LOSSY:
            summary = subject.empty(groups)
            for _ in range(2):
                subject.feed(summary, Part(ids, values))
    assert compiled() == before


def test_groups_that_come_when_most_have_registers_compile_nothing_either() -> None:
    compile_kernels()
    before = compiled()
    rng, summary = np.random.default_rng(1), GroupedDistinct(100, 7)
    for first, end, rows in ((0, 60, 20_000), (0, 60, 20_000), (60, 100, 4_000)):
        ids = as_input(rng.integers(first, end, rows).astype(np.int32), np.int32)
        summary.update(ids, *murmur_int64(rng.integers(0, 1 << 60, rows)))
    assert compiled() == before


def test_panes_of_joins_compile_nothing_either() -> None:
    compile_kernels()
    before = compiled()
    drawn(Cell(1.1, True, "bursts", PaneRoom(heavy=16, keys=64, buckets=256)), 1).found("sum", 0.95)
    assert compiled() == before


def test_sampled_answers_compile_nothing_after_warming_up() -> None:
    compile_question_kernels()
    before = compiled()
    values = draw("lognormal-2", 2, 500)
    for inside in laid_out(values):
        sample = SampledValues.by_group(
            inside, ids=None, groups=1, population=9000, read=1000, low=0.0, high=1e6
        )
        sampled_sum(sample, confidence=0.9)
    assert compiled() == before
