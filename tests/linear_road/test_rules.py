"""Linear Road on a short road: every answer of the engine is that of the rules."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.linear_road.check import wrong
from examples.linear_road.replay import Replay, RoadAnswers
from examples.linear_road.rules import AccidentNotice, Expected, Rules, TollNotice
from examples.linear_road.traffic import SECOND_US, START_US, Traffic, expressways
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


def test_a_car_is_warned_of_the_nearest_accident_ahead_only(tmp_path):
    stopped = [  # Second, car, lane, direction, segment, place.
        (second + car % 2, car, 1, car // 4, 2 + car // 2 % 2 * 2, 2 + car // 2 % 2 * 2)
        for second in range(0, 150, 30)
        for car in range(8)
    ]
    entering = [(125, 8, 1, 0, 1, 1), (126, 9, 1, 1, 5, 5), (127, 10, 1, 0, 3, 3)]
    rows = sorted([*stopped, *entering])
    names = ("vid", "lane", "dir", "seg", "pos")
    reports = pa.table(
        {
            "ts": pa.array([START_US + row[0] * SECOND_US for row in rows], pa.timestamp("us")),
            **{name: [row[at] for row in rows] for at, name in enumerate(names, start=1)},
            "spd": [0] * len(rows),
            "xway": [0] * len(rows),
        }
    )
    schema = [("ts", pa.timestamp("us")), ("vid", pa.int64()), ("qid", pa.int64())]
    none = pa.schema(schema).empty_table()
    with Engine.open(tmp_path / "data") as db:
        warned = Replay(db).step(reports, none, START_US + 180 * SECOND_US).accidents
    columns = [warned[name].to_pylist() for name in ("vid", "seg", "accident")]
    assert sorted(zip(*columns, strict=True)) == [(8, 1, 2), (9, 5, 4), (10, 3, 4)]

    rules, found = Rules(), []
    seconds = pa.array([row[0] for row in rows])
    for minute in range(3):
        part = reports.filter(pc.equal(pc.divide(seconds, 60), minute))
        found += rules.minute(part, none).accidents
    assert sorted((each.vid, each.seg, each.accident) for each in found) == [
        (8, 1, 2),
        (9, 5, 4),
        (10, 3, 4),
    ]


def test_expressways_have_cars_of_their_own_and_share_no_toll(tmp_path):
    roads = [Traffic(seed=4, xway=xway, rate=lambda _: 600, segments=4) for xway in range(2)]
    rules, seen = Rules(), set()
    with Engine.open(tmp_path / "data") as db:
        replay = Replay(db)
        for at, minute in enumerate(expressways(roads, 3)):
            reports = minute.posreports
            assert reports.num_rows == 2 * 600
            assert reports["ts"].cast(pa.int64()).to_pylist() == sorted(
                reports["ts"].cast(pa.int64()).to_pylist()
            )
            seen |= set(zip(*(reports[name].to_pylist() for name in ("vid", "xway")), strict=True))
            until_us = START_US + (at + 1) * 60 * SECOND_US
            answers = replay.step(reports, minute.balances, until_us)
            assert wrong([answers], rules.minute(reports, minute.balances)) == 0, at
    assert {xway for _, xway in seen} == {0, 1}
    assert len({vid for vid, _ in seen}) == len(seen)


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
