"""A server that is told to stop loses nothing that it has acknowledged."""

import pytest

import shedder
from tests.server.worlds import CREATE_TRADES
from tests.server_process import ServerProcess
from tests.streams.streams import trades


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_drains_and_ends_with_zero(tmp_path):
    server = ServerProcess(tmp_path / "data", drain_s="10", run_rows="20000")
    with server.connect(patience_s=0) as client:
        client.execute(CREATE_TRADES)
        producer = client.producer("trades", "p")
        for seed in range(50):
            producer.push(trades(1_000, seed))
        acknowledged = producer.outbox.receipt.position
        assert server.stop() == 0
    assert "leaked" not in (tmp_path / "server.log").read_text()  # DuckDB's word for what is left.
    with shedder.open(tmp_path / "data") as engine:
        assert acknowledged <= engine.ledger("trades").applied <= 50_000
