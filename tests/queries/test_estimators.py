"""A table of estimators has every aggregate function once: answered, or refused with a reason."""

import numpy as np
import pytest

from shedder.cql.expressions.expression import AggregateFunction
from shedder.queries.evidence.estimators import Estimator, Estimators
from synopses.model.estimate import Estimates

COUNTED = Estimator(lambda count, *_: Estimates.exact(np.array([count]), "test"))


def test_a_function_that_a_source_neither_answers_nor_refuses_fails_when_the_table_is_made():
    answered = dict.fromkeys(AggregateFunction, COUNTED)
    assert Estimators(answered, refused={}).answered is answered
    del answered[AggregateFunction.CORR]
    with pytest.raises(AssertionError, match="AVG"):
        Estimators(answered, refused={})
    refused = {AggregateFunction.CORR: "no pairs"}
    assert Estimators(answered, refused).refused == refused


def test_a_function_that_a_source_both_answers_and_refuses_fails_when_the_table_is_made():
    answered = dict.fromkeys(AggregateFunction, COUNTED)
    with pytest.raises(AssertionError, match="CORR"):
        Estimators(answered, {AggregateFunction.CORR: "no pairs"})
