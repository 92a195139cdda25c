"""Targets of any size read back as what they were."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.statements.statement import Select


@pytest.mark.parametrize("size", ["5", "0.5", "1e15", "9007199254740993", "1e19", "1e300"])
def test_a_targets_text_is_read_back_as_the_same_target(size: str) -> None:
    select = parse(f"SELECT SUM(x) AS s FROM t WITHIN {size} ABSOLUTE")
    assert isinstance(select, Select)
    assert parse(select.text) == select
