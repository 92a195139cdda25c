"""The laws of tests/laws.py for every grouped summary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_float64
from synopses.theta.theta_sketch import GroupedTheta
from tests import laws, truth
from tests.laws import Part, Subject
from tests.synopses.subjects import LINEAR, LOSSY, NOT_YET_LOSSY, to_bytes


def name(subject: Subject) -> str:
    return subject.name


def stream(distribution: str, seed: int, rows: int, groups: int) -> Part:
    ids = np.random.default_rng(seed).integers(0, groups, rows).astype(np.int32)
    return Part(ids, truth.draw(distribution, seed, rows))


@pytest.mark.parametrize("distribution", ["normal", "lognormal-2", "zipf", "constant"])
@pytest.mark.parametrize("subject", LINEAR + NOT_YET_LOSSY, ids=name)
def test_summaries_of_groups_keep_the_laws(subject: Subject, distribution: str) -> None:
    laws.hold(subject, stream(distribution, 1, 1500, 5), groups=5, cut=700)


@pytest.mark.parametrize("subject", LINEAR + NOT_YET_LOSSY, ids=name)
def test_summaries_of_everything_keep_the_laws(subject: Subject) -> None:
    laws.hold(subject, Part(None, truth.draw("lognormal-1", 2, 1500)), groups=1, cut=1000)


@pytest.mark.parametrize("subject", LOSSY, ids=name)
def test_lossy_summaries_keep_the_laws_without_merging(subject: Subject) -> None:
    part = stream("lognormal-2", 3, 3000, 4)
    laws.hold_for_one(subject, part, groups=4)
    laws.batches_equal_one_pass(subject, part, groups=4, rows=17)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    rows=st.integers(0, 60),
    groups=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    share=st.floats(0, 1),
)
@example(rows=1, groups=2, seed=1, share=0.0)  # The groups that are selected have no row.
def test_small_and_empty_streams_keep_the_laws(
    rows: int, groups: int, seed: int, share: float
) -> None:
    part = stream("spike", seed, rows, groups)
    for subject in LINEAR + NOT_YET_LOSSY:
        laws.hold(subject, part, groups, cut=int(share * rows))


@pytest.mark.parametrize("subject", LINEAR + NOT_YET_LOSSY, ids=name)
def test_grouped_and_ungrouped_updates_of_one_group_are_the_same(subject: Subject) -> None:
    values = truth.draw("normal", 5, 2000)
    plain = subject.of(Part(None, values), 1)
    grouped = subject.of(Part(np.zeros(2000, np.int32), values), 1)
    subject.assert_same(plain, grouped)


@pytest.mark.parametrize("subject", LINEAR + LOSSY + NOT_YET_LOSSY, ids=name)
def test_what_a_summary_holds_is_counted(subject: Subject) -> None:
    little = subject.of(stream("normal", 6, 10, 100), 100)
    much = subject.of(stream("normal", 6, 5000, 1000), 1000)
    assert 0 < little.size_bytes < much.size_bytes


@pytest.mark.parametrize("subject", LINEAR + LOSSY + NOT_YET_LOSSY, ids=name)
def test_a_summary_of_no_groups_gets_one_with_its_first_value(subject: Subject) -> None:
    part = Part(None, truth.draw("normal", 7, 50))
    subject.assert_same(subject.of(part, 0), subject.of(part, 1))


SHRINKING = [
    Subject(
        "distinct",
        lambda groups: GroupedDistinct(groups, lg_k=9),
        lambda s, p: s.update(p.ids, *murmur_float64(p.values)),
        to_bytes,
    ),
    Subject(
        "theta",
        lambda groups: GroupedTheta(groups, lg_k=9),
        lambda s, p: s.update(p.ids, murmur_float64(p.values)[0]),
        to_bytes,
    ),
]


@pytest.mark.parametrize("subject", SHRINKING, ids=name)
@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("rows", [0, 3, 700, 20_000])
@pytest.mark.parametrize("grouped", [True, False])
def test_distinct_counters_shrink_before_or_after_a_merge_alike(
    subject: Subject, size: int, rows: int, grouped: bool
) -> None:
    groups = 3 if grouped else 1
    left, right = stream("normal", 8, rows, groups), stream("lognormal-2", 9, 2 * rows, groups)
    if not grouped:
        left, right = Part(None, left.values), Part(None, right.values)
    laws.resizing_commutes_with_merging(subject, left, right, groups, size)


@pytest.mark.parametrize("subject", NOT_YET_LOSSY, ids=name)
def test_what_nothing_was_forgotten_of_shrinks_before_or_after_a_merge_alike(
    subject: Subject,
) -> None:
    size = {"frequent, all": 256, "kll, all": 4000, "req, all": 100}[subject.name]
    left, right = stream("normal", 10, 100, 3), stream("zipf", 11, 150, 3)
    laws.resizing_commutes_with_merging(subject, left, right, 3, size)
