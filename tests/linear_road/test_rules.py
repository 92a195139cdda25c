"""Linear Road on a short road: every answer of the engine is that of the rules."""

from __future__ import annotations

import pyarrow as pa
import pytest

from examples.linear_road.check import wrong
from examples.linear_road.replay import Replay, RoadAnswers
from examples.linear_road.rules import AccidentNotice, Expected, Rules, TollNotice
from examples.linear_road.traffic import SECOND_US, START_US, Traffic
from shedder.engine.engine import Engine
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

MINUTES = scaled(8, 30)


def test_every_toll_accident_and_balance_is_that_of_the_rules(tmp_path):
    traffic = Traffic(
        seed=seed("linear road"),
        rate=lambda _: scaled(2_400, 4_000),
        segments=scaled(6, 10),
        incident_s=60,
        stop_s=(160, 220),
        asking=0.05,
    )
    rules, charged, accidents, paid = Rules(), 0, 0, 0
    with Engine.open(tmp_path / "data") as db:
        replay = Replay(db)
        for at, minute in enumerate(traffic.minutes(MINUTES)):
            expected = rules.minute(minute.posreports, minute.balances)
            until_us = START_US + (at + 1) * 60 * SECOND_US
            answers = replay.step(minute.posreports, minute.balances, until_us)
            assert wrong([answers], expected) == 0, at
            charged += sum(each.toll > 0 for each in expected.tolls)
            accidents += len(expected.accidents)
            paid += sum(balance > 0 for balance in expected.balances.values())
    assert min(charged, accidents, paid) > 0


def test_a_missing_and_an_additional_answer_are_both_wrong():
    none = {"_ts": pa.array([], pa.timestamp("us")), "_sign": pa.array([], pa.int8())}
    balance = {"qid": [7], "vid": [1], "balance": [20], "_ts": [0], "_sign": [1]}
    tolls = pa.table({name: [] for name in ("vid", "seg", "lav", "toll")} | none)
    accidents = pa.table({name: [] for name in ("vid", "seg", "accident")} | none)
    balances = pa.table(balance).set_column(3, "_ts", pa.array([0], pa.timestamp("us")))
    answers = RoadAnswers(tolls, accidents, balances)
    toll = TollNotice(0, 1, 2, None, 0)
    assert wrong([answers], Expected(balances={7: 20})) == 0
    assert wrong([answers], Expected(balances={7: 21})) == 2
    assert wrong([answers], Expected([toll], [AccidentNotice(0, 1, 2, 3)], {7: 20})) == 2
