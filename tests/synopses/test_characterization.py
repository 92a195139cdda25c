"""The studies behind docs/characterization.md, at a small part of their size."""

from __future__ import annotations

import pytest

from benchmarks.studies.error_studies import all_studies
from benchmarks.studies.error_study import CONFIDENCES, Study
from tests import truth

SMALL = all_studies(32)


@pytest.mark.slow
@pytest.mark.parametrize("run", SMALL, ids=range(len(SMALL)))
def test_a_small_study_keeps_what_is_promised(run) -> None:
    study: Study = run()
    for confidence in CONFIDENCES:
        covered = study.coverage(confidence)
        if covered is not None and study.certain:
            assert covered == 1.0
        # Lengths of one trial depend on each other: only trials count as independent.
        trials = len(study.errors[0])
        assert covered is None or covered * trials >= truth.gate(trials, confidence)
    assert [len(errors) for errors in study.errors] == [len(study.errors[0])] * len(study.lengths)
