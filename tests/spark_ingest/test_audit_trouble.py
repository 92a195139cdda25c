"""An audit from elsewhere that fails: it says why, gives back what was lent, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.cli.exit_codes import ExitCode
from shedder.client import Client
from shedder.errors import (
    DiskFull,
    Draining,
    FailedPrecondition,
    Overloaded,
    ShedderError,
    UnknownStream,
)
from shedder.settings import Settings
from spark_ingest.cli import audit_rounds
from spark_ingest.self_audit import audit_round
from tests.server_process import running

SECOND = 1_000_000
AVERAGE = "SELECT AVG(x) AS mean FROM r [RANGE 10 SECONDS SLIDE 10 SECONDS] THINNING 1/8"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    settings = Settings(listen="127.0.0.1:0", insecure=True, audit="off")
    with (
        shedder.open(tmp_path / "data", settings) as engine,
        running(engine, settings) as address,
        shedder.connect(str(address), insecure=True, patience_s=0) as connected,
    ):
        connected.execute("CREATE STREAM r (ts TIMESTAMP NOT NULL, x DOUBLE) TIMESTAMP BY ts")
        yield connected


def close_a_window(client: Client, number: int) -> None:
    times = np.arange(0, 10 * SECOND, 20_000) + number * 10 * SECOND
    x = np.random.default_rng(number).normal(0, 1, len(times))
    client.push("r", {"ts": pa.array(times, pa.timestamp("us")), "x": x})
    client.heartbeat("r", (number + 1) * 10 * SECOND)


class BrokenSpark:
    """A session whose cluster has gone; meanwhile, something happens to the service."""

    version = "4.3.0"

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        self._meanwhile()
        raise RuntimeError("the cluster has gone")


def test_what_failed_is_said_and_all_that_can_be_is_given_back(client: Client) -> None:
    for name in ("first", "gone", "last"):
        client.register(name, AVERAGE)
    close_a_window(client, 0)
    spark: Any = BrokenSpark(client.query("gone").drop)
    frame: Any = "of a session that has gone, too"
    with pytest.raises(RuntimeError, match="the cluster has gone"):
        audit_round(spark, client, "r", frame)
    close_a_window(client, 1)
    tickets = client.lend_answers("r", answers=10)
    assert {each.query for each in tickets} == {"first", "last"}


class Refusing:
    """A service that refuses to lend a few times, and then has nothing to lend."""

    def __init__(self, *errors: ShedderError) -> None:
        self._errors = list(errors)

    def lend_answers(self, *_: Any, **__: Any) -> list[Any]:
        if self._errors:
            raise self._errors.pop(0)
        return []


def test_rounds_go_on_while_the_service_cannot_take_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark: Any = BrokenSpark(lambda: None)
    client: Any = Refusing(Overloaded(100), Draining("it ends"), DiskFull("no space"))
    waits = list[float]()
    assert audit_rounds(spark, client, "r", tmp_path, 1, 4, waits.append) == ExitCode.FINE
    assert len(waits) == 3
    assert capsys.readouterr().err.count("the next one will see") == 3
    client = Refusing(Draining("it ends"))
    with pytest.raises(Draining):
        audit_rounds(spark, client, "r", tmp_path, 1, 1, waits.append)
    for lasting in (UnknownStream("r", []), FailedPrecondition("another directory")):
        with pytest.raises(type(lasting)):
            audit_rounds(spark, Refusing(lasting), "r", tmp_path, 1, 9, waits.append)  # type: ignore[arg-type]
    assert len(waits) == 3
