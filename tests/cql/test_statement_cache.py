"""A text is parsed once for the same parameters, and the cache has a size."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.statement_cache import StatementCache
from shedder.cql.text.size_limits import Limits
from shedder.errors import BadQuery

TEXT = "SELECT COUNT(*) AS n FROM s WHERE k = ?"


def test_the_same_text_and_parameters_give_the_same_statement():
    cache = StatementCache()
    assert cache.parse(TEXT, [3]) is cache.parse(TEXT, [3])
    assert cache.parse(TEXT, [3]) == parse(TEXT, [3])
    assert len(cache) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [True]),
        ([1], [1.0]),
        ([0.0], [-0.0]),
        (["1"], [1]),
        ([None], ["None"]),
        ([Decimal("1.0")], [Decimal("1.00")]),
        ([date(2026, 1, 1)], ["2026-01-01"]),
    ],
)
def test_parameters_that_are_bound_differently_are_told_apart(one, other):
    cache = StatementCache()
    cache.parse(TEXT, one)
    assert cache.parse(TEXT, other) == parse(TEXT, other)
    assert len(cache) == 2


def test_named_parameters_are_told_apart_by_name():
    cache, text = StatementCache(), "SELECT COUNT(*) FROM s WHERE k = :a AND x = :b"
    first, swapped = {"a": 1, "b": 2}, {"b": 1, "a": 2}
    assert cache.parse(text, first) is cache.parse(text, dict(reversed(first.items())))
    assert cache.parse(text, swapped) == parse(text, swapped)
    assert cache.parse(text, swapped) != cache.parse(text, first)


def test_a_parameter_whose_repr_may_hide_its_value_is_not_kept():
    cache = StatementCache()
    assert cache.parse(TEXT, [np.int64(3)]) == parse(TEXT, [np.int64(3)])
    assert len(cache) == 0


def test_a_text_that_is_no_statement_is_not_kept():
    cache = StatementCache(Limits(text_bytes_max=100))
    for text in ("SELECT", "SELECT 1 FROM s WHERE " + "k = 1 AND " * 10 + "k = 1", TEXT):
        with pytest.raises(BadQuery):
            cache.parse(text)
    assert len(cache) == 0


def test_the_texts_that_were_used_last_are_kept_within_the_size():
    texts = [f"SELECT COUNT(*) AS n{number} FROM s" for number in range(5)]
    cache = StatementCache(characters_max=3 * (len(texts[0]) + len(repr((None, [])))))
    first, *_ = [cache.parse(text) for text in texts[:3]]
    assert cache.parse(texts[0]) is first
    cache.parse(texts[3])
    assert len(cache) == 3
    assert cache.parse(texts[0]) is first
    assert cache.parse("SELECT COUNT(*) AS " + "n" * 200 + " FROM s") is not None
    assert len(cache) == 0  # One text larger than the cache.
