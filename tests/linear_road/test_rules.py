"""Linear Road on a short road: every answer of the engine is that of the rules."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from examples.linear_road.replay import Replay
from examples.linear_road.rules import Rules
from examples.linear_road.traffic import SECOND_US, START_US, Traffic
from shedder.engine.engine import Engine
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

MINUTES = scaled(8, 30)


def bag(tables: list[pa.Table]) -> Counter[tuple[object, ...]]:
    """Rows as (microseconds, columns …)."""
    table = pa.concat_tables(tables)
    times = table.column("_ts").cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in table.column_names[:-2]]
    return Counter(zip(times, *columns, strict=True))


def test_every_toll_accident_and_balance_is_that_of_the_rules(tmp_path):
    traffic = Traffic(
        seed=seed("linear road"),
        rate=lambda _: scaled(2_400, 4_000),
        segments=scaled(6, 10),
        incident_s=60,
        stop_s=(160, 220),
        asking=0.05,
    )
    rules = Rules()
    with Engine.open(tmp_path / "data") as db:
        replay = Replay(db)
        for at, minute in enumerate(traffic.minutes(MINUTES)):
            rules.minute(minute.posreports, minute.balances)
            until_us = START_US + (at + 1) * 60 * SECOND_US
            replay.step(minute.posreports, minute.balances, until_us)
    assert bag(replay.notices) == Counter(
        (each.ts_us, each.vid, each.seg, each.lav, each.toll) for each in rules.tolls
    )
    assert bag(replay.accidents) == Counter(
        (each.ts_us, each.vid, each.seg, each.accident) for each in rules.accidents
    )
    answers = {row[1]: row[3] for row in bag(replay.balances)}
    assert answers == rules.answers
    assert sum(each.toll > 0 for each in rules.tolls) > 100
    assert rules.accidents
    assert any(rules.answers.values())
