"""FOREIGN KEY of a stream: rows, violations and state of joins, against DuckDB."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_FOREIGN_KEYS, format_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, StreamExists, StreamInUse, UnknownStream
from shedder.queries.answers.database_api import QueryHandle
from tests.engine.dataflow.foreign_keys.order_world import (
    SIDES,
    OrderWorld,
    Row,
    create,
    end,
    facts,
    operators,
    push,
    query_text,
)
from tests.engine.killed import copy_killed
from tests.engine.world import START_US
from tests.seeds import seed

pytestmark = pytest.mark.slow

SETTINGS = {"checkpoint_seconds": 0.05, "run_rows": 100}
COLUMNS = ["id", "tag", "tag, id"]


def generator(*words: str) -> np.random.Generator:
    return np.random.default_rng(seed(*words))


def rows_of(query: QueryHandle) -> Counter[Row]:
    """Return all rows of a query."""
    table = query.answer().table
    return Counter(zip(table["n"].to_pylist(), table["item"].to_pylist(), strict=True))


def counts_of(db: Engine, name: str) -> tuple[int, int]:
    found = facts(db, name)
    return int(found["unmatched"]), int(found["ambiguous"])


@pytest.mark.parametrize("columns", COLUMNS)
def test_streams_that_hold_the_key_give_every_pair(tmp_path, columns):
    world = OrderWorld(generator("held", columns), is_broken=False)
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db, columns)
        query = db.register("q", query_text(columns))
        push(db, world.batches())
        end(db)
        pairs, missing, ambiguous = world.truth(columns, by_time=False)
        assert len(pairs) > 300
        assert rows_of(query) == pairs
        assert (missing, ambiguous) == counts_of(db, "q") == (0, 0)
        answer = query.answer()
        assert (answer.complete, answer.notes) == (True, ())


@pytest.mark.parametrize("columns", COLUMNS)
def test_broken_keys_leave_rows_out_and_are_counted_over_restarts_and_kills(tmp_path, columns):
    world = OrderWorld(generator("broken", columns), is_broken=True)
    batches = world.batches()
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db, columns)
        db.register("q", query_text(columns))
        push(db, batches[:10])
        copied = copy_killed(db, tmp_path / "killed")
        push(db, batches[10:14])
    truth = world.truth(columns)
    everything = world.truth(columns, by_time=False)[0]
    assert min(truth[1:]) > 0
    for directory, first in ((tmp_path / "d", 14), (copied, 10)):
        with Engine.open(directory, **SETTINGS) as db:
            push(db, batches[first : first + 3])
        with Engine.open(directory, **SETTINGS) as db:
            push(db, batches[first + 3 :])
            end(db)
            found = rows_of(db.query("q"))
            assert (found, *counts_of(db, "q")) == truth
            assert found < everything
            answer = db.query("q").answer()
            assert not answer.complete
            assert answer.notes[0].startswith(f"{truth[1]:,} tuples came without the partner")
            assert answer.notes[1].startswith(f"{truth[2]:,} tuples had several partners")


@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM"])
def test_windows_that_slide_have_the_rows_of_the_query_without_the_key(tmp_path, operator):
    sides = (
        "fills [RANGE INTERVAL '0.0002' SECOND SLIDE INTERVAL '0.00005' SECOND] f, "
        "orders [RANGE INTERVAL '0.0003' SECOND SLIDE INTERVAL '0.0001' SECOND] o"
    )
    world = OrderWorld(generator("slides"), is_broken=False)
    batches, found = world.batches(), list[Counter[Row]]()
    for constrained in (True, False):
        with Engine.open(tmp_path / str(constrained)) as db:
            create(db, "id", constrained=constrained)
            text = f"SELECT {operator}(f.n, o.n AS item, f.ts) FROM {sides} WHERE f.id = o.id"
            query = db.register("q", text)
            push(db, batches)
            end(db)
            assert ("unmatched" in facts(db, "q")) is constrained
            found.append(rows_of(query))
    assert found[0] == found[1]
    assert len(found[0]) > 300


def test_queries_that_share_count_for_themselves(tmp_path):
    """A query that comes later shares the windows, and counts from its beginning on."""
    world = OrderWorld(generator("shared"), is_broken=True)
    batches = world.batches()
    text = query_text("id")
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db, "id")
        first = db.register("first", text)
        db.register("counts", f"SELECT COUNT(*) AS n FROM {SIDES} WHERE f.id = o.id")
        push(db, batches[:12])
        second = db.register("second", text)
        before = counts_of(db, "first")
        assert counts_of(db, "second") == (0, 0)
        push(db, batches[12:])
        end(db)
        truth = world.truth("id")
        assert (rows_of(first), *counts_of(db, "first")) == truth
        assert rows_of(second) <= truth[0]
        later = tuple(now - then for now, then in zip(truth[1:], before, strict=True))
        assert counts_of(db, "second") == later


def test_the_state_does_not_grow_with_the_tuples_that_refer(tmp_path):
    """The windows have all tuples, and a condition on pairs leaves few of them."""
    sizes = dict[bool, list[int]]()
    for constrained in (True, False):
        with Engine.open(tmp_path / str(constrained)) as db:
            create(db, "id", constrained=constrained)
            sides = "fills [RANGE 1 HOUR] f, orders [RANGE 1 HOUR] o"
            text = f"SELECT ISTREAM(f.n, o.n AS item) FROM {sides} WHERE f.id = o.id"
            db.register("q", f"{text} AND f.n + o.n < 100")
            found = sizes.setdefault(constrained, [])
            for half in range(2):
                for name, size in (("orders", 100), ("fills", 20_000)):
                    ids = range(100 * half, 100 * half + 100)
                    rows = {
                        "ts": pa.array([START_US + half] * size, pa.timestamp("us")),
                        "id": pa.array([ids[at % 100] for at in range(size)], pa.int64()),
                        "tag": pa.array([None] * size, pa.string()),
                        "n": pa.array(range(size), pa.int64()),
                    }
                    db.push(name, pa.table(rows))
                for name in ("orders", "fills"):
                    db.heartbeat(name, START_US + 1 + half)
                found.append(db.core.rows.queries["q"].state_bytes)
            assert ("unmatched" in facts(db, "q")) is constrained
    assert sizes[True][1] - sizes[True][0] < 10_000
    assert sizes[False][1] - sizes[False][0] > 500_000


def test_joins_whose_rows_could_be_false_hold_both_sides(tmp_path):
    on, left = "f.id = o.id", SIDES.replace(", ", " LEFT JOIN ")
    held = {
        "a filter on the orders": f"SELECT f.n FROM {SIDES} WHERE {on} AND o.n > 3",
        "another key": f"SELECT f.n FROM {SIDES} WHERE {on} AND f.tag = o.tag",
        "an outer join": f"SELECT f.n, o.n AS item FROM {left} ON {on}",
        "an aggregate": f"SELECT f.id, MAX(o.n) AS m FROM {SIDES} WHERE {on} GROUP BY f.id",
        "a relation that is repeated": f"SELECT RSTREAM(f.n) FROM {SIDES} WHERE {on}",
        "a sample of keys": f"SELECT f.id, o.n FROM {SIDES} WHERE {on} ON OVERLOAD SHED",
        "a difference": f"SELECT f.n FROM {SIDES} WHERE {on} EXCEPT SELECT n FROM orders [NOW]",
        "a window of rows": f"SELECT f.n FROM fills [RANGE 1 HOUR] f, orders [ROWS 5] o WHERE {on}",
    }
    with Engine.open(tmp_path / "d") as db:
        create(db, "id")
        for at, (what, text) in enumerate(held.items()):
            db.register(f"q{at}", text)
            assert "FOREIGN KEY" not in str(operators(db, f"q{at}")), what
            assert "unmatched" not in facts(db, f"q{at}"), what
        for at, text in enumerate(
            [
                f"SELECT o.n, f.n AS filled FROM {SIDES} WHERE {on} AND f.n + o.n > 3",
                f"SELECT DSTREAM(o.n) FROM {SIDES} WHERE {on}",
                f"SELECT o.n FROM orders [RANGE 1 HOUR SLIDE 1 HOUR] o JOIN fills [NOW] f ON {on}",
            ]
        ):
            db.register(f"p{at}", text)
            said = "rows of f are not held: FOREIGN KEY (id) REFERENCES orders (id)"
            assert any(said in text for text in operators(db, f"p{at}"))


def test_keys_that_do_not_fit_are_refused_and_others_are_kept(tmp_path):
    made = "CREATE STREAM fills (ts TIMESTAMP, id BIGINT, n INTEGER) TIMESTAMP BY ts"
    refused: list[tuple[str, type[Exception], str]] = [
        ("(id) REFERENCES others (id) WITHIN 0 TUPLES", UnknownStream, "no stream 'others'"),
        ("(x) REFERENCES orders (id) WITHIN 0 TUPLES", BadQuery, "FOREIGN KEY (x): no such"),
        ("(id) REFERENCES orders (x) WITHIN 0 TUPLES", BadQuery, "orders (x): no such column"),
        ("(n) REFERENCES orders (id) WITHIN 0 TUPLES", BadQuery, "n is INTEGER, and orders.id"),
        ("(id, n) REFERENCES orders (id) WITHIN 0 TUPLES", BadQuery, "names 2 columns"),
        ("(id, id) REFERENCES orders (id, n) WITHIN 0 TUPLES", BadQuery, "'id' twice"),
        ("(id) REFERENCES orders (id) WITHIN 0.5 TUPLES", BadQuery, "a whole number and TUPLES"),
        ("(id) REFERENCES orders (id)", BadQuery, "WITHIN 0 TUPLES"),
    ]
    with Engine.open(tmp_path / "d") as db:
        db.execute(
            "CREATE STREAM orders (ts TIMESTAMP, id BIGINT, n BIGINT, tag VARCHAR) TIMESTAMP BY ts"
        )
        for clause, error, text in refused:
            with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")):
                db.execute(f"{made} FOREIGN KEY {clause}")
        assert format_of(db.core.store.directory) < FORMAT_FOREIGN_KEYS
        key = "FOREIGN KEY (ID) REFERENCES orders (Id) WITHIN 0 TUPLES"
        db.execute(f"{made} {key}")
        db.execute(f"{made} {key}")
        with pytest.raises(StreamExists, match="FOREIGN KEY"):
            db.execute(made)
        with pytest.raises(StreamInUse, match="referenced by the FOREIGN KEY of 'fills'"):
            db.execute("DROP STREAM orders")
        assert format_of(db.core.store.directory) == FORMAT_FOREIGN_KEYS
    with Engine.open(tmp_path / "d") as db:
        shown = {row["stream"]: row["definition"] for row in db.execute("SHOW STREAMS").rows()}
        assert shown["fills"].endswith("FOREIGN KEY (id) REFERENCES orders (id) WITHIN 0 TUPLES")
        db.execute("DROP STREAM fills")
        db.execute(shown["fills"])
        db.execute("DROP STREAM fills")
        db.execute("DROP STREAM orders")


def test_a_view_that_a_key_references_is_not_dropped_and_keeps_its_query(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        db.execute("CREATE STREAM orders (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts")
        db.execute("CREATE VIEW open_orders AS SELECT id FROM orders")
        db.execute(
            "CREATE STREAM fills (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts "
            "FOREIGN KEY (id) REFERENCES open_orders (id) WITHIN 0 TUPLES"
        )
        with pytest.raises(StreamInUse, match="referenced by the FOREIGN KEY of 'fills'"):
            db.execute("DROP VIEW open_orders")
        assert [row["view"] for row in db.execute("SHOW VIEWS").rows()] == ["open_orders"]
        db.execute("DROP STREAM fills")
        db.execute("DROP VIEW open_orders")
