"""CREATE INDEX: the same answers from less, whatever has happened to the index."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.insert_checks import bind_rows
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.predicate_ranges import ValueRange, value_ranges_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BadSetting, Cancelled, IndexExists, UnknownColumn, UnknownIndex
from shedder.settings import Settings
from tests.engine.supervised import INDEXES, Supervised, settle
from tests.engine.world import CREATE, START_US, requests
from tests.scale import scaled

ROWS = 8_000
COLUMNS = ("client", "domain", "bytes", "hits", "day", "ts")
WHERES = (
    "client = 17",
    "client = -1",
    "client IN (3, 4999, 70)",
    "domain = 'b.com'",
    "domain = ''",
    "domain = 'nowhere'",
    "bytes > 3000",
    "bytes = 2",
    "bytes < 0.5 AND bytes > 0.4",
    "hits BETWEEN 97 AND 98",
    "5 > hits AND hits > 3 AND ok",
    "client = 17 OR client = 18",
    "NOT client = 17",
    "client = 17 AND domain = 'a.org'",
    f"ts < CAST({START_US + 2_000_000} AS TIMESTAMP)",
    "day = DATE '2023-11-14' AND client = 9",
    "client = NULL",
)
QUESTION = """SELECT COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, MIN(domain) AS d,
    FIRST(client) AS f, LAST(hits) AS l FROM requests WHERE """


def filled(directory, layout: str) -> Engine:
    engine = Engine.open(directory, machine=Supervised())
    engine.execute(f"{CREATE} ARCHIVE {layout}")
    fill(engine, 0)
    return engine


def dealt(directory) -> Engine:
    """Many blocks, and a live sample that tells little."""
    engine = Engine.open(directory, sample_rows=64)
    engine.execute(f"{CREATE} ARCHIVE hybrid(blocks=64, block_rows=10)")
    fill(engine, 0)
    return engine


def fill(engine: Engine, seed: int) -> None:
    table = requests(ROWS, seed, disorder_s=2)
    for first in range(0, ROWS, 2_000):
        engine.push("requests", table.slice(first, 2_000))
        if first < 6_000:
            engine.seal("requests")


@pytest.fixture(params=["plain", "hybrid(blocks=64)"])
def engine(tmp_path, request):
    with filled(tmp_path / "data", request.param) as engine:
        yield engine


def answers(engine: Engine, wheres: Sequence[str] = WHERES) -> list:
    return [engine.execute(QUESTION + where).rows() for where in wheres]


def about(column: str) -> list[str]:
    """Conditions that read a column: all others have the same plan with and without its index."""
    return [where for where in WHERES if re.search(rf"\b{column}\b", where)]


@pytest.mark.slow
def test_answers_are_the_same_with_every_index(engine):
    expected = dict(zip(WHERES, answers(engine), strict=True))
    for column in COLUMNS:
        engine.execute(f"CREATE INDEX ON requests ({column})")
        wheres = scaled(about(column), WHERES)
        assert answers(engine, wheres) == [expected[where] for where in wheres]
    assert answers(engine) == list(expected.values())
    engine.execute("DELETE FROM requests WHERE hits = 97")
    less = answers(engine)
    assert less != list(expected.values())
    for column in COLUMNS:
        engine.execute(f"DROP INDEX ON requests ({column})")
    assert answers(engine) == less
    assert not list((engine.core.store.directory / "indexes").rglob("*.index"))


@pytest.mark.slow
def test_a_lookup_reads_little_and_says_so(tmp_path):
    with filled(tmp_path, "hybrid(blocks=64)") as engine:
        where = "client = 4711"
        before = engine.execute(QUESTION + where)
        engine.execute("CREATE INDEX ON requests (client)")
        after = engine.execute(QUESTION + where)
        assert after.rows() == before.rows()
        assert before.archive_share_read == 1.0
        assert after.archive_share_read < 0.25
        assert "index on client" in after.sources
        plan = engine.execute(f"EXPLAIN {QUESTION} {where}").table["plan"].to_pylist()
        assert any("index on client" in line for line in plan)


@pytest.mark.slow
def test_a_target_for_what_is_rare_is_met_by_the_index_at_once(tmp_path):
    with dealt(tmp_path) as engine:
        counts = engine.execute("SELECT client, COUNT(*) AS n FROM requests GROUP BY client").rows()
        rare = next(row["client"] for row in counts if row["n"] == 1)
        text = f"SELECT AVG(hits) AS a FROM requests WHERE client = {rare}"
        before = engine.execute(f"{text} WITHIN 1 PERCENT")
        engine.execute("CREATE INDEX ON requests (client)")
        after = engine.execute(f"{text} WITHIN 1 PERCENT")
        assert after.rows() == before.rows()
        assert (before.archive_share_read, before.sources) == (1.0, ("archive",))
        assert after.archive_share_read < 0.1
        assert "index on client" in after.sources
        plan = engine.execute(f"EXPLAIN {text} WITHIN 1 PERCENT").table["plan"].to_pylist()
        assert plan[0] == "source:    the index on client, exactly"
        reduced = engine.execute(f"{text} REDUCE BY uniform(0.5)")  # As it was asked.
        assert reduced.archive is not None


@pytest.mark.slow
def test_a_target_for_what_is_frequent_is_met_by_a_part_in_spite_of_an_index(tmp_path):
    with dealt(tmp_path) as engine:
        for column in ("client", "hits"):
            engine.execute(f"CREATE INDEX ON requests ({column})")
        for where in ("client = 1", "hits > 10"):
            answer = engine.execute(
                f"SELECT COUNT(*) AS n FROM requests WHERE {where} WITHIN 20 PERCENT"
            )
            assert answer.archive is not None
            assert answer.met


@pytest.mark.slow
def test_new_runs_are_indexed_beside_and_old_ones_after_a_restart(engine, tmp_path):
    engine.execute("CREATE INDEX ON requests (client)")
    fill(engine, 1)
    settle(engine, INDEXES)
    (row,) = engine.execute("SHOW INDEXES").rows()
    assert (row["column"], row["runs_indexed"], row["runs"]) == ("client", 6, 6)
    expected = answers(engine)
    directory = engine.core.store.directory
    engine.close()
    for path in (directory / "indexes").rglob("*.index"):
        path.unlink()
    with Engine.open(directory, machine=Supervised()) as again:
        assert answers(again) == expected
        settle(again, INDEXES)
        (row,) = again.execute("SHOW INDEXES").rows()
        assert row["runs_indexed"] == 6


@pytest.mark.slow
def test_damaged_indexes_and_runs_never_make_an_answer_wrong(engine):
    expected = answers(engine)
    engine.execute("CREATE INDEX ON requests (client)")
    settle(engine, INDEXES)  # A pass that a run has asked for would build them again.
    store = engine.core.store
    for number, path in enumerate(sorted((store.directory / "indexes").rglob("*.index"))):
        data = bytearray(path.read_bytes())
        data[(10, len(data) // 2, len(data) - 3)[number]] ^= 1
        path.write_bytes(data)
    assert answers(engine) == expected
    assert store.indexes.unindexed(1) != []  # The damaged index has been found and removed.
    engine.indexer.catch_up()
    settle(engine, INDEXES)
    assert store.indexes.unindexed(1) == []
    run = store.runs(1)[0]
    (store.directory / "runs" / run.file).unlink()
    engine.execute("SCRUB")
    answer = engine.execute("SELECT COUNT(*) AS n FROM requests WHERE client = 1")
    assert not answer.complete


def test_retention_and_rewriting_leave_no_index_behind(engine):
    engine.execute("CREATE INDEX ON requests (client)")
    store = engine.core.store
    folder = store.directory / "indexes" / "1"
    assert len(list(folder.iterdir())) == 3
    store.retention.apply(1, store.runs(1)[0].high_us + 1)
    engine.indexer.catch_up()
    settle(engine, INDEXES)
    assert len(list(folder.iterdir())) == len(store.runs(1)) < 3
    engine.execute("DROP STREAM requests")
    assert list(folder.iterdir()) == []


def test_a_cancelled_index_is_none(engine):
    with pytest.raises(Cancelled, match=r"index on requests\(client\)"):
        engine.execute("CREATE INDEX ON requests (client)", watch=Progress.cancel)
    assert engine.execute("SHOW INDEXES").rows() == []
    assert engine.execute("CREATE INDEX ON requests (client)").table.num_rows == 1


Reached = Callable[[Path, Progress], bool]


def all_is_read(_: Path, progress: Progress) -> bool:
    return progress.done == ROWS


def a_run_is_written(data: Path, _: Progress) -> bool:
    return len(list((data / "runs" / "1").iterdir())) > 4


def a_copy_is_begun(data: Path, _: Progress) -> bool:
    return data.with_name("copy.partial").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "has_reached"),
    [
        ("CREATE INDEX ON requests (client)", all_is_read),
        ("DELETE FROM requests WHERE client = 17", all_is_read),
        ("PURGE STREAM requests", a_run_is_written),
        ("BACKUP TO 'copy'", a_copy_is_begun),
    ],
)
def test_who_waits_for_the_catalog_is_called_off_and_leaves_nothing(tmp_path, text, has_reached):
    data = tmp_path / "data"
    with Engine.open(data, Settings(backup_directory=tmp_path)) as engine:
        engine.execute(f"{CREATE} ARCHIVE hybrid(blocks=64)")
        fill(engine, 0)
        engine.seal("requests")
        engine.execute("DELETE FROM requests WHERE hits = 97")  # So that there is what to purge.
        expected = answers(engine)
        begun: list[Progress] = []
        ended: list[Cancelled] = []

        def work() -> None:
            try:
                engine.execute(text, watch=begun.append)
            except Cancelled as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        with engine.core.store.catalog.transaction():  # Another one, that takes long.
            thread.start()
            while not begun or not has_reached(data, begun[0]):
                os.sched_yield()
            begun[0].cancel()
            thread.join()  # The thread does not wait for the catalog.
            assert len(ended) == 1
        assert engine.tasks.facts() == []
        assert engine.execute("SHOW INDEXES").rows() == []
        assert answers(engine) == expected
        assert len(list((data / "runs" / "1").iterdir())) == 4
        assert not list((data / "indexes").rglob("*.index"))
        assert not list(tmp_path.glob("copy*"))
        engine.execute(text)


def test_what_makes_no_sense_is_refused(engine):
    engine.execute("CREATE INDEX ON requests (client)")
    engine.execute("CREATE INDEX IF NOT EXISTS ON requests (client)")
    engine.execute("DROP INDEX IF EXISTS ON requests (hits)")
    for text, error, says in (
        ("CREATE INDEX ON requests (client)", IndexExists, "client"),
        ("CREATE INDEX ON requests (size)", UnknownColumn, "size"),
        ("CREATE INDEX ON requests (ok)", BadSetting, "BOOLEAN"),
        ("CREATE INDEX fast ON requests (hits)", BadQuery, "no name"),
        ("DROP INDEX ON requests (hits)", UnknownIndex, "hits"),
    ):
        with pytest.raises(error, match=says):
            engine.execute(text)


def test_conditions_that_bound_a_column_are_found(engine):
    schema = engine.schema("requests")

    def said(where: str) -> dict:
        statement = parse(f"DELETE FROM requests WHERE {where}")
        return value_ranges_of(bind_rows(statement.select, schema).where)

    assert said("client = 5 AND client > 3") == {"client": [ValueRange(5, 5)]}
    assert said("hits > 3 AND hits <= 9") == {"hits": [ValueRange(3, 9)]}
    assert said("client IN (1, 2) AND ok") == {"client": [ValueRange(1, 1), ValueRange(2, 2)]}
    assert said("client = 5 OR hits = 3") == {}
    assert said("client + 1 = 5") == {}
    assert said("domain > 'a'") == {}
    assert said("client = 2.5") == {}


@pytest.mark.slow
def test_random_lookups_agree_with_arrow(tmp_path):
    with filled(tmp_path, "hybrid(blocks=16)") as engine:
        engine.execute("CREATE INDEX ON requests (client)")
        clients = np.asarray(requests(ROWS, 0, disorder_s=2)["client"])
        for client in np.random.default_rng(3).choice(clients, 15):
            (row,) = engine.execute(
                "SELECT COUNT(*) AS n FROM requests WHERE client = ?", [int(client)]
            ).rows()
            assert row["n"] == int((clients == client).sum())
        assert pa.array(clients).null_count == 0
