"""A server that is stopped or killed loses nothing that it has acknowledged."""

import signal

import pytest

import shedder
from tests.server import kill_cycles
from tests.server.conftest import CREATE_TRADES
from tests.server.processes import ServerProcess
from tests.streams.streams import trades

pytestmark = pytest.mark.slow


def test_a_server_that_is_told_to_stop_drains_and_ends_with_zero(tmp_path):
    server = ServerProcess(tmp_path / "data")
    with shedder.connect(server.address, patience_s=0) as client:
        client.execute(CREATE_TRADES)
        producer = client.producer("trades", "p")
        for seed in range(50):
            producer.push(trades(1_000, seed))
        acknowledged = producer._outbox.receipt.position
        assert server.stop(signal.SIGTERM) == 0
    with shedder.open(tmp_path / "data") as engine:
        assert acknowledged <= engine.ledger("trades").applied <= 50_000


def test_kill_cycles_lose_and_double_nothing(tmp_path):
    seen = kill_cycles.run(tmp_path / "data", cycles=4, seed=7)
    assert seen["rows"] > 0
