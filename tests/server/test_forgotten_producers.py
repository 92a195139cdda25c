"""Names that may have been forgotten begin in no epoch by themselves, here and from afar."""

import pytest

import shedder
from shedder import errors
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.settings import Settings
from tests.server.worlds import CREATE_TRADES, spilling
from tests.streams.streams import trades

LIMITS = ProducerLimits(bytes_max=1, evicted_max=1)


@pytest.fixture
def settings():
    return Settings(
        listen="127.0.0.1:0", insecure=True, drain_s=5, overload="off", batch_rows_max=10
    )


@pytest.fixture
def engine(tmp_path, settings, machine):
    with shedder.open(
        tmp_path / "data", settings, machine=machine, producer_limits=LIMITS
    ) as engine:
        yield engine


def forget(database, epoch=0):
    """Push as p; then push under names that take its place."""
    for name in ("p", "first", "second"):
        at = epoch if name == "p" else 0
        database.push("trades", trades(5), producer=name, epoch=at, sequence=0)


@pytest.mark.parametrize("rows", [5, 25])  # One batch, and three.
def test_a_forgotten_name_stores_nothing_before_an_epoch_is_given(database, rows):
    forget(database, 1 << 61)
    for given in ({}, {"epoch": 0}, {"epoch": 1 << 61}):
        with (
            pytest.raises(errors.ProducerForgotten, match=f"in epoch {1 << 62}, or give another"),
            database.producer("trades", "p", **given) as producer,
        ):
            producer.push(trades(rows))
    with pytest.raises(errors.ProducerForgotten):
        database.push("trades", trades(rows), producer="p", sequence=0)
    assert database.ledger("trades").applied == 15
    with database.producer("trades", "p", epoch=1 << 62) as producer:
        producer.push(trades(rows))
    with database.producer("trades", "new") as producer:
        producer.push(trades(rows))
    database.push("trades", trades(rows))
    database.push("trades", trades(rows), producer="another", sequence=0)
    assert database.ledger("trades").applied == 15 + 4 * rows


def test_a_spill_of_a_forgotten_name_sends_nothing(engine, connection, tmp_path):
    engine.execute(CREATE_TRADES)
    forget(engine)
    with (
        pytest.raises(errors.ProducerForgotten),
        spilling(connection, tmp_path / "spill") as producer,
    ):
        producer.push(trades(5))
    assert engine.ledger("trades").applied == 15
