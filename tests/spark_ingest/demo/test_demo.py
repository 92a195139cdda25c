"""The replay loses and doubles nothing, and the tour's claims hold."""

import json
import os
import subprocess
import sys
from contextlib import closing

import pytest

import shedder
from shedder.errors import Overloaded, Unreachable
from spark_ingest.demo.replay import batches, replay
from spark_ingest.flights import CREATE, STREAM, load_flights
from tests.scale import scaled

QUESTIONS = scaled(4, 120)  # One-time queries of the tour, beside the standing queries.


class LossyDatabase:
    """A real database behind a connection that breaks, before or after a batch is stored."""

    def __init__(self, database, breaks: dict[int, bool], full: set[int]) -> None:
        self.database = database
        self.breaks = breaks  # by sequence: whether the batch is stored first
        self.full = full  # sequences that are not taken at first

    def push(self, stream, data, *, producer, sequence):
        if sequence in self.full:
            self.full.remove(sequence)
            raise full_for(1)
        stored_first = self.breaks.pop(sequence, None)
        if stored_first is False:
            raise Unreachable("gone before the batch was stored")
        receipt = self.database.push(stream, data, producer=producer, sequence=sequence)
        if stored_first:
            raise Unreachable("gone after the batch was stored, before its receipt")
        return receipt


def full_for(wait_ms: int) -> Overloaded:
    return Overloaded("more comes than can be applied", retry_after_ms=wait_ms)


@pytest.mark.slow
def test_a_replay_over_a_breaking_connection_stores_every_row_once(tmp_path):
    flights = load_flights().slice(0, 3_000)
    with closing(shedder.open(tmp_path / "data")) as database:
        database.execute(CREATE)
        lossy = LossyDatabase(database, {3: True, 7: False, 0: False, 11: True}, {0, 5, 7})
        progress = list(replay(batches(flights, 200), lossy, lambda: lossy, seconds=0))[-1]
        assert progress.rows == 3_000
        assert progress.failures == 4
        assert not lossy.full
        assert progress.rows_again > 0
        count = database.execute(f"SELECT COUNT(*) AS n FROM {STREAM}").rows()[0]["n"]
        assert count == 3_000
        ledger = database.ledger(STREAM)
        assert ledger.accepted == ledger.applied + ledger.duplicate == 3_000 + progress.rows_again


@pytest.mark.tour
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_tour_ends_with_every_claim_held(tmp_path):
    command = [sys.executable, "-m", "shedder.cli.main", "demo", "--report", str(tmp_path)]
    done = subprocess.run(
        [*command, "--seconds", "3", "--questions", str(QUESTIONS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "160"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "kill -9" in done.stdout
    assert "336,776 of 336,776 flights are there: none lost or doubled" in done.stdout
    assert "were read at a forced 1/8" in done.stdout
    assert "✗" not in [word for line in done.stdout.splitlines() for word in line.split()[:1]]
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is True
