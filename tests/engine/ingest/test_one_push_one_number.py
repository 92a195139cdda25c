"""One push is one number: whatever dies, is repeated or evicted, each row is stored once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.errors import (
    BadSetting,
    ProducerForgotten,
    QuotaExceeded,
    SchemaMismatch,
    SequenceGap,
    SequenceReused,
)
from tests.engine.ingest.push_worlds import CREATE, Truth, push_in_part, rows_of
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

FEW = ProducerLimits(bytes_max=4_000, evicted_max=1 << 10)


def opened(directory: Path, rows_max: int, limits: ProducerLimits = FEW) -> Engine:
    return Engine.open(
        directory, batch_rows_max=rows_max, overload="off", audit="off", producer_limits=limits
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(2, 40)))
def test_splits_retries_crashes_and_evictions_lose_and_double_nothing(
    world: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed("one push, one number", world))
    truth, life, floods = Truth(), 0, 0
    engine = opened(tmp_path / "0", 7)
    engine.execute(CREATE)
    sent: dict[str, list[pa.Table]] = {"a": [], "b": []}
    pushes = 0
    for _ in range(scaled(40, 120)):
        producer = str(rng.choice(["a", "b"]))
        known = sent[producer]
        match rng.integers(0, 6):
            case 0 | 1:  # The next push, which may die in its middle and come again.
                data = rows_of(pushes, int(rng.integers(0, 60)))
                number = len(known)
                if rng.random() < 0.6:
                    parts = int(rng.integers(1, 5))
                    push_in_part(engine, data, producer=producer, sequence=number, parts=parts)
                    if rng.random() < 0.5:
                        engine, life = _crashed(engine, tmp_path, life, rng)
                receipt = engine.push("s", data, producer=producer, sequence=number)
                assert receipt.rows == data.num_rows
                truth.rows[pushes] = data.num_rows
                known.append(data)
                pushes += 1
            case 2 if known:  # A push that is whole comes again.
                number = int(rng.integers(max(0, len(known) - 12), len(known)))
                receipt = engine.push("s", known[number], producer=producer, sequence=number)
                assert receipt.duplicate
                assert receipt.rows == known[number].num_rows
            case 3 if known and known[-1].num_rows:  # Other rows under a number that has some.
                data = known[-1].slice(1) if rng.random() < 0.5 else _one_changed(known[-1], rng)
                with pytest.raises(SequenceReused):
                    engine.push("s", data, producer=producer, sequence=len(known) - 1)
            case 4:
                engine, life = _crashed(engine, tmp_path, life, rng)
            case 5:
                for each in range(12):
                    engine.push("s", rows_of(-1, 0), producer=f"other {floods} {each}", sequence=0)
                floods += 1
    truth.check(engine)
    assert engine.ledger("s").applied == sum(truth.rows.values())
    engine.close()


def _crashed(engine: Engine, path: Path, life: int, rng: np.random.Generator) -> tuple[Engine, int]:
    """Go on with what was on disk at this moment, and with another limit of a batch."""
    copy_killed(engine, path / str(life + 1))
    engine.close()
    return opened(path / str(life + 1), int(rng.integers(1, 30))), life + 1


def _one_changed(data: pa.Table, rng: np.random.Generator) -> pa.Table:
    place = int(rng.integers(0, data.num_rows))
    values = data["k"].to_pylist()
    values[place] += 1
    return data.set_column(2, "k", pa.array(values))


@pytest.fixture
def db(tmp_path: Path):
    with opened(tmp_path / "db", 10) as engine:
        engine.execute(CREATE)
        yield engine


def test_the_receipt_is_of_the_whole_push(db: Engine) -> None:
    receipt = db.push("s", rows_of(0, 35), producer="p", sequence=0)
    assert (receipt.rows, receipt.position, receipt.duplicate) == (35, 35, False)
    again = db.push("s", rows_of(0, 35), producer="p", sequence=0)
    assert (again.rows, again.duplicate) == (35, True)
    anonymous = db.push("s", rows_of(1, 25))
    assert (anonymous.rows, anonymous.position) == (25, 60)


def test_the_receipt_counts_late_rows_as_the_ledger_does(db: Engine) -> None:
    db.push("s", rows_of(0, 10))
    db.heartbeat("s", 3_000)
    late = db.push("s", rows_of(1, 35), producer="p", sequence=0)  # 9 ms have passed by 10 rows.
    assert late.late == db.ledger("s").late
    assert 0 < late.late < 35
    assert db.push("s", rows_of(1, 35), producer="p", sequence=0).late == 0


def test_a_push_without_rows_takes_its_number(db: Engine) -> None:
    assert db.push("s", rows_of(0, 0), producer="p", sequence=0).rows == 0
    assert db.push("s", rows_of(1, 3), producer="p", sequence=1).rows == 3
    assert db.last_sequence("s", "p") == (0, 1)


def test_the_next_push_waits_for_the_rest_of_the_one_before(db: Engine) -> None:
    push_in_part(db, rows_of(0, 35), producer="p", sequence=0, parts=2)
    assert db.last_sequence("s", "p") == (0, -1)
    assert db.producer("s", "p").next_sequence == 0
    for number in (1, None):
        with pytest.raises(SequenceGap, match=r"expected 0 \(20 rows of it are stored"):
            db.push("s", rows_of(1, 5), producer="p", sequence=number)
    receipt = db.push("s", rows_of(0, 35), producer="p", sequence=0)
    assert (receipt.rows, receipt.position, receipt.duplicate) == (35, 35, False)


def test_rows_of_a_push_that_does_not_fit_stay_and_the_rest_comes_when_it_does(db: Engine) -> None:
    def bad():
        yield rows_of(0, 15)
        yield pa.table({"ts": ["no time"]})

    with pytest.raises(SchemaMismatch):
        db.push("s", bad(), producer="p", sequence=0)
    with pytest.raises(SequenceReused, match="other values"):
        db.push("s", rows_of(1, 20), producer="p", sequence=0)
    db.push("s", rows_of(0, 20), producer="p", sequence=0)
    assert db.ledger("s").applied == 20


def test_a_producer_that_numbers_itself_goes_on_after_rows_that_do_not_fit(db: Engine) -> None:
    with db.producer("s", "p") as producer:
        with pytest.raises(SchemaMismatch):
            producer.push(iter([rows_of(0, 15), pa.table({"ts": ["no time"]})]))
        assert producer.push(rows_of(1, 25)) == 2
        assert producer.flush().rows == 25
    assert db.ledger("s").applied == 40


def test_values_of_the_newest_eight_pushes_are_compared(db: Engine) -> None:
    for number in range(10):
        db.push("s", rows_of(number, 25), producer="p", sequence=number)
    for number in range(2, 10):
        with pytest.raises(SequenceReused, match="other values"):
            db.push("s", rows_of(99, 25), producer="p", sequence=number)
        with pytest.raises(SequenceReused, match="25 rows, and came again with"):
            db.push("s", rows_of(number, 24), producer="p", sequence=number)
    assert db.push("s", rows_of(99, 24), producer="p", sequence=1).duplicate


def test_the_retry_of_an_evicted_producer_is_a_duplicate(tmp_path: Path) -> None:
    for life in range(2):  # The second one reads the log, and a checkpoint.
        with opened(tmp_path / "db", 100) as db:
            if not life:
                db.execute(CREATE)
                for number in range(5):
                    db.push("s", rows_of(number, 10), producer="legit", sequence=number)
                for other in range(40):
                    db.push("s", rows_of(-1, 1), producer=f"other {other}", sequence=0)
            assert "legit" not in db.core.intakes["s"].producers.state().active
            assert db.last_sequence("s", "legit") == (0, 4)
            assert db.push("s", rows_of(4, 10), producer="legit", sequence=4).duplicate
            assert db.push("s", rows_of(0, 10), producer="legit", sequence=0).duplicate
            assert db.ledger("s").applied == 90


def test_the_retry_of_a_forgotten_producer_is_refused_and_a_new_one_can_begin(
    tmp_path: Path,
) -> None:
    none = ProducerLimits(bytes_max=1_000, evicted_max=2)
    with opened(tmp_path / "db", 100, none) as db:
        db.execute(CREATE)
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, push BIGINT) TIMESTAMP BY ts")
        once = "INSERT INTO s (ts, push) SELECT ts, push FROM t PRODUCER"
        db.push("t", rows_of(0, 5).select(["ts", "push"]))
        db.execute(f"{once} 'once'")
        for name, epoch in (("legit", 0), ("high", 1 << 62), *((each, 0) for each in "abcdefgh")):
            db.push("s", rows_of(0, 5), producer=name, epoch=epoch, sequence=0)
    for _ in range(2):  # The second one reads a checkpoint.
        with opened(tmp_path / "db", 100, none) as db:
            rows = db.ledger("s").applied
            with pytest.raises(ProducerForgotten, match="begin it in epoch 1,"):
                db.producer("s", "legit")
            with pytest.raises(ProducerForgotten, match="begin it in epoch 1,"):
                db.push("s", rows_of(0, 5), producer="legit", sequence=0)
            with pytest.raises(ProducerForgotten, match="could be stored twice"):
                db.execute(f"{once} 'once'")
            assert db.ledger("s").applied == rows
            assert db.ingest.producers.epoch_min("s", "high") == (1 << 62) + 1
    with opened(tmp_path / "db", 100, none) as db:
        db.push("s", rows_of(1, 5), producer="new", sequence=0)
        with db.producer("s", "another") as new:
            assert new.epoch == 0
            new.push(rows_of(1, 5))
        with db.producer("s", "high", epoch=(1 << 62) + 1) as new:
            new.push(rows_of(1, 5))
        with pytest.raises(BadSetting, match=r"from 0 to 2\^62"):
            db.push("s", rows_of(1, 5), producer="new", epoch=(1 << 62) + 2, sequence=0)
        db.execute(f"{once} 'another'")
        assert db.ledger("s").applied == rows + 20


def test_a_retry_of_an_evicted_producer_with_other_values_is_refused(tmp_path: Path) -> None:
    for life in range(2):  # The second one reads the log, and a checkpoint.
        with opened(tmp_path / "db", 100) as db:
            if not life:
                db.execute(CREATE)
                db.push("s", rows_of(0, 10), producer="legit", sequence=0)
                for other in range(40):
                    db.push("s", rows_of(-1, 1), producer=f"other {other}", sequence=0)
            assert "legit" not in db.core.intakes["s"].producers.state().active
            with pytest.raises(SequenceReused, match="other values"):
                db.push("s", rows_of(1, 10), producer="legit", sequence=0)
            assert db.push("s", rows_of(0, 10), producer="legit", sequence=0).duplicate


def test_a_copy_with_a_producer_that_was_evicted_copies_nothing_twice(tmp_path: Path) -> None:
    with opened(tmp_path / "db", 100) as db:
        db.execute(CREATE)
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, push BIGINT) TIMESTAMP BY ts")
        copy = "INSERT INTO s (ts, push) SELECT ts, push FROM t PRODUCER 'once'"
        db.push("t", rows_of(0, 30).select(["ts", "push"]))
        db.execute(copy)
        for other in range(40):
            db.push("s", rows_of(-1, 1), producer=f"other {other}", sequence=0)
        db.push("t", rows_of(0, 30).select(["ts", "push"]))
        db.execute(copy)
        assert db.ledger("s").applied == 70


def test_a_producer_numbers_each_of_its_pushes_once(tmp_path: Path) -> None:
    with shedder.open(tmp_path / "db", batch_rows_max=10) as db:
        db.execute(CREATE)
        with db.producer("s", "p") as producer:
            assert [producer.push(rows_of(push, 25)) for push in range(3)] == [1, 2, 3]
        assert db.last_sequence("s", "p") == (0, 2)


@pytest.mark.slow
def test_a_tenant_with_too_many_producers_is_refused_new_ones_and_keeps_the_known(
    tmp_path: Path,
) -> None:
    for life in range(2):  # The second one reads a checkpoint.
        with shedder.open(tmp_path / "db", producers_max=3) as db:
            if not life:
                db.execute(CREATE)
                for name in ("a", "b", "c"):
                    db.push("s", rows_of(0, 5), producer=name, sequence=0)
            with pytest.raises(QuotaExceeded, match=rf"{3 + life} producers, .* is 3: 'd'"):
                db.push("s", rows_of(0, 5), producer="d", sequence=0)
            db.push("s", rows_of(1, 5), producer="a", sequence=1 + life)
            db.push("s", rows_of(1, 5))  # Anonymous.
            assert db.ledger("s").applied == 25 + 10 * life
            assert db.ledger("s").refused_rows == 5
            db.execute(f"{CREATE.replace('STREAM s', f'STREAM t{life}')}")
            db.push(f"t{life}", rows_of(0, 5), producer="d", sequence=0)  # It has no share yet.
