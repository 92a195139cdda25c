"""Scenario files: what is wrong in them is said with its place, and with what would be right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import BaseModel

from shedder.errors import BadSetting
from shedder.simulation.arrivals import count, rate_of
from shedder.simulation.disk import ready_us, write_us
from shedder.simulation.scenario import Arrivals, Scenario, ScenarioMachine, ScenarioStream, Stall
from shedder.simulation.tuple_generator import Payload
from tests.simulation.worlds import scenario

GOOD = """
title = "t"
seconds = 5
[[queries]]
name = "q"
sql = "SELECT COUNT(*) AS n FROM requests [RANGE INTERVAL '1' SECOND]"
[[producers]]
arrivals = {rate = 10}
"""


def read(tmp_path, text: str) -> Scenario:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return Scenario.read(path)


def test_defaults_fill_a_short_file(tmp_path):
    found = read(tmp_path, GOOD)
    assert (found.seed, found.control, found.machine.scale) == (1, "feedback", 1.0)
    assert found.producers[0].arrivals.shape == "poisson"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("seconds = 5", "secnds = 5"), "no 'secnds'; did you mean seconds?"),
        (("seconds = 5", ""), "seconds is missing"),
        (("seconds = 5", "seconds = -1"), "seconds = -1: "),
        (("rate = 10", "rate = 10, shape = 'wave'"), "producers.0.arrivals.shape = 'wave': "),
        (("rate = 10", "rate = 10, tims = 3"), "did you mean times?"),
        (('name = "q"', 'name = "Q!"'), "queries.0.name = 'Q!': "),
        (("seconds = 5", "seconds = 5\ncosts = {factor = {x = 2}}"), "no query 'x'; there are q"),
        (("seconds = 5", "seconds = 5\nmachine = {memory_bytes = '1 elephant'}"), "a size is"),
        (("title", "[title"), "cannot read the scenario"),
    ],
)
def test_mistakes_are_named(tmp_path, change, says):
    with pytest.raises(BadSetting) as raised:
        read(tmp_path, GOOD.replace(*change))
    assert says in str(raised.value)


def numbers(table: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where in a scenario a number with a point may stand: of lists of tables, in the first."""
    for name, field in table.model_fields.items():
        text = str(field.annotation)
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if is_table(each)]
        if inner:
            yield from numbers(inner[0], (*place, name))
        elif "float" in text:
            yield (*place, name)


def is_table(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


LISTS = {"queries", "rows", "producers", "tenants", "stalls", "crashes", "forces"}
NEEDED = {
    "queries": {"name": "q", "sql": "SELECT 1"},
    "rows": {"name": "r", "sql": "SELECT 1", "truth": "SELECT 1", "windows": {"r": 1}},
    "producers": {"arrivals": {"rate": 10}},
    "tenants": {"name": "t"},
    "stalls": {"at_s": 1, "for_s": 1},
    "crashes": {"at_s": 1},
    "forces": {"at_s": 1, "level": 1},
}


def with_number(place: tuple[str, ...], value: float) -> dict[str, Any]:
    """Changes of a scenario by which this value stands there."""
    inner: Any = value
    for name in reversed(place[1:]):
        inner = {name: inner}
    if place[0] in LISTS:
        inner = NEEDED[place[0]] | inner
        if place[1] == "arrivals":
            inner["arrivals"] = {"rate": 10} | inner["arrivals"]
        if place[1] == "windows":
            inner["windows"] = {"r": value}
        return {place[0]: [inner]}
    return {place[0]: {"factor": {"q": value}} if place[-1] == "factor" else inner}


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_no_number_is_infinite(value):
    """A file may say inf and nan, and a world could not count it in microseconds."""
    places = list(numbers(Scenario))
    assert len(places) > 40
    for place in places:
        with pytest.raises(BadSetting) as raised:
            scenario(**with_number(place, value))
        line = str(raised.value).splitlines()[0]
        assert place[-1] in line
        assert f"= {value!r}: Input should be" in line


@pytest.mark.parametrize(
    ("place", "value", "right"),
    [
        ("producers.arrivals.on_s", 1e-12, "greater than or equal to 0.01"),
        ("producers.every_ms", 1e-9, "greater than or equal to 0.1"),
        ("producers.disorder_s", 1e12, "less than or equal to 86400"),
        ("stream.drift_s", 1e-300, "0 (never), or at least 0.01"),
        ("stream.lateness_s", 1e12, "less than or equal to 86400"),
        ("machine.restart_s", 1e12, "less than or equal to 86400"),
        ("machine.answer_us", 1e300, "less than or equal to 60000000"),
    ],
)
def test_no_time_is_so_short_or_long_that_a_world_would_not_end(place, value, right):
    with pytest.raises(BadSetting) as raised:
        scenario(**with_number(tuple(place.split(".")), value))
    name = place.split(".")[-1]
    assert f"{name} = {value!r}: Input should be {right}" in str(raised.value)


def test_names_are_given_once():
    query = {"name": "q", "sql": "SELECT 1"}
    with pytest.raises(BadSetting, match="queries q: each needs a name of its own"):
        scenario(queries=[query, query])


def test_no_file_is_a_bad_setting(tmp_path):
    with pytest.raises(BadSetting, match="cannot read the scenario"):
        Scenario.read(tmp_path / "none.toml")


def rates(seconds: float, **arrivals) -> np.ndarray:
    planned = Arrivals(**arrivals)
    rate = rate_of(planned, np.random.default_rng(1), seconds)
    return np.array([rate(at) for at in np.arange(0, seconds, 0.05)])


def test_shapes_are_what_they_are_called():
    assert set(rates(10, shape="steady", rate=5)) == {5.0}
    flash = rates(10, shape="flash", rate=5, times=10, from_s=2, for_s=3)
    assert np.sum(flash == 50) == 60
    assert np.sum(flash == 5) == 140
    ramp = rates(10, shape="flash", rate=5, times=3, from_s=2, for_s=5, ramp_s=2)
    assert np.all(np.diff(ramp[40:80]) > 0)
    bursts = rates(500, shape="bursts", rate=5, times=4, on_s=1, off_s=3)
    assert set(bursts) == {5.0, 20.0}
    assert 0.15 < np.mean(bursts == 20) < 0.35
    day = rates(60, shape="diurnal", rate=100, low=0.1, period_s=60)
    assert day.min() == pytest.approx(10)
    assert day.max() == pytest.approx(100)
    cup = rates(60, shape="worldcup98", rate=100, period_s=30)
    assert cup.mean() == pytest.approx(100, rel=0.02)
    assert cup.max() > 3 * 100
    assert cup[:600] == pytest.approx(cup[600:])


def test_poisson_counts_vary_and_steady_ones_do_not():
    rng = np.random.default_rng(1)
    steady = [count(Arrivals(shape="steady", rate=1), 10.25, rng) for _ in range(4_000)]
    poisson = [count(Arrivals(rate=1), 10.25, rng) for _ in range(4_000)]
    assert set(steady) == {10, 11}
    for found in (steady, poisson):
        assert np.mean(found) == pytest.approx(10.25, abs=0.25)
    assert np.var(poisson) == pytest.approx(10.25, rel=0.15)


def test_keys_follow_zipf_and_drift():
    payload = Payload(ScenarioStream(keys=1_000, skew=1.5, drift_s=10.0), 100.0)
    rng = np.random.default_rng(1)

    def most(start_us: int) -> int:
        batch = payload.draw(rng, 20_000, start_us=start_us, end_us=start_us + 5, zero_us=0)
        keys = batch.column("key").to_numpy()
        assert 0.3 < np.mean(keys == np.bincount(keys).argmax()) < 0.5
        return int(np.bincount(keys).argmax())

    assert most(0) == most(9_000_000) != most(10_000_000)


def test_a_skew_that_moves_ends_where_it_should():
    payload = Payload(ScenarioStream(keys=1_000, skew=0.0, skew_to=2.0), 10.0)
    rng = np.random.default_rng(1)
    first, last = (
        np.bincount(
            payload.draw(rng, 20_000, start_us=at, end_us=at + 1, zero_us=0)
            .column("key")
            .to_numpy()
        ).max()
        for at in (0, 10_000_000)
    )
    assert first < 60
    assert last > 10_000


def test_a_stall_holds_what_it_meets():
    stalls = [Stall(at_s=1.0, for_s=2.0), Stall(at_s=5.0, for_s=1.0)]
    assert ready_us(stalls, 0, 900_000) == 900_000
    assert ready_us(stalls, 500_000, 700_000) == 3_200_000
    assert ready_us(stalls, 2_000_000, 100_000) == 3_100_000
    assert ready_us(stalls, 2_900_000, 2_100_000) == 6_100_000
    assert ready_us(stalls, 3_000_000, 10) == 3_000_010


def test_writing_takes_an_fsync_and_its_bytes():
    machine = ScenarioMachine(scale=10, fsync_ms=2, disk_bytes_per_s=1_000_000)
    assert write_us(machine, 0) == 2_000
    assert write_us(machine, 1_000) == 12_000
