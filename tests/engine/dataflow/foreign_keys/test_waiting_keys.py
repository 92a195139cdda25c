"""FOREIGN KEY … WITHIN k TUPLES with k > 0: rows, violations and state, against DuckDB."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_WAITS, format_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery
from shedder.queries.answers.database_api import QueryHandle
from tests.engine.dataflow.foreign_keys.order_world import (
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

TIME = pa.timestamp("us")
SETTINGS = {"checkpoint_seconds": 0.05, "run_rows": 100}


def generator(*words: str) -> np.random.Generator:
    return np.random.default_rng(seed(*words))


def rows_of(query: QueryHandle) -> Counter[Row]:
    """Return all rows of a query."""
    table = query.answer().table
    return Counter(zip(table["n"].to_pylist(), table["item"].to_pylist(), strict=True))


def counts_of(db: Engine, name: str) -> tuple[int, int]:
    found = facts(db, name)
    return int(found["unmatched"]), int(found["ambiguous"])


@pytest.mark.parametrize("columns", ["id", "tag, id"])
def test_streams_that_hold_the_key_give_every_pair(tmp_path, columns):
    world = OrderWorld(generator("kept", columns), is_broken=False, within=6)
    batches = world.batches()
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db, columns, within=6)
        query = db.register("q", query_text(columns))
        push(db, batches)
        end(db)
        pairs, missing, ambiguous = world.truth(columns, by_time=False)
        assert len(pairs) - world.truth(columns)[0].total() > 100  # So many waited.
        assert rows_of(query) == pairs
        assert (missing, ambiguous) == counts_of(db, "q")
        text = f"FOREIGN KEY ({columns}) REFERENCES orders ({columns}) WITHIN 6 TUPLES"
        said = f"rows of f are held until they have a partner: {text}"
        assert any(said in operator for operator in operators(db, "q"))


@pytest.mark.parametrize("within", [1, 5, 12])
def test_broken_keys_leave_rows_out_and_are_counted_over_restarts_and_kills(tmp_path, within):
    columns = "id" if within < 12 else "tag"
    world = OrderWorld(generator("broken", str(within)), is_broken=True)
    batches = world.batches()
    truth = world.truth_within(columns, within)
    everything = world.truth(columns, by_time=False)[0]
    assert world.truth(columns)[0] < truth[0] < everything
    assert min(truth[1:]) > 0
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db, columns, within=within)
        assert format_of(db.core.store.directory) == FORMAT_WAITS
        db.register("q", query_text(columns))
        push(db, batches[:10])
        copied = copy_killed(db, tmp_path / "killed")
        push(db, batches[10:14])
    for directory, first in ((tmp_path / "d", 14), (copied, 10)):
        for step in range(first, first + 9, 3):
            with Engine.open(directory, **SETTINGS) as db:
                push(db, batches[step : step + 3])
        with Engine.open(directory, **SETTINGS) as db:
            push(db, batches[first + 9 :])
            end(db)
            assert (rows_of(db.query("q")), *counts_of(db, "q")) == truth
            answer = db.query("q").answer()
            assert not answer.complete
            assert answer.notes[0].startswith(f"{truth[1]:,} tuples came without the partner")


def test_a_restart_that_reads_windows_alone_knows_which_tuples_wait(tmp_path):
    """Partners that have left the window of orders decide which tuples of fills wait."""
    world = OrderWorld(generator("windows"), is_broken=True)
    batches = world.batches()
    pairs, missing, ambiguous = world.truth_within("id", 40)
    with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:
        create(db, "id", within=40)
        db.register("q", query_text("id"))
    for step in range(0, len(batches), 3):
        with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:
            for name, batch in batches[step : step + 3]:
                push(db, [(name, batch.slice(at, 1)) for at in range(len(batch))])
    with Engine.open(tmp_path / "d") as db:
        end(db)
        assert counts_of(db, "q") == (missing, ambiguous)
        assert facts(db, "q")["rows"] == str(pairs.total())


def test_a_query_that_comes_later_counts_from_its_beginning_on(tmp_path):
    """Both share the store of orders; the second reads what its windows need of the past."""
    world = OrderWorld(generator("later"), is_broken=True)
    batches = world.batches()
    with Engine.open(tmp_path / "d") as db:
        create(db, "id", within=5)
        first = db.register("first", query_text("id"))
        push(db, batches[:12])
        second = db.register("second", query_text("id"))
        before = counts_of(db, "first")
        push(db, batches[12:])
        end(db)
        truth = world.truth_within("id", 5)
        assert (rows_of(first), *counts_of(db, "first")) == truth
        assert rows_of(second) <= truth[0]
        later = tuple(now - then for now, then in zip(truth[1:], before, strict=True))
        assert counts_of(db, "second") == later


def test_the_state_grows_with_the_tuples_that_wait(tmp_path):
    """Each order is followed by 40 fulfilments of the order that comes 50 orders later."""
    sizes = dict[int | None, int]()
    for within in (0, 10, 50, 400, None):
        with Engine.open(tmp_path / str(within)) as db:
            create(db, "id", constrained=within is not None, within=within or 0)
            sides = "fills [RANGE 1 HOUR] f, orders [RANGE 1 HOUR] o"
            text = f"SELECT ISTREAM(f.n, o.n AS item) FROM {sides} WHERE f.id = o.id"
            query = db.register("q", f"{text} AND f.n + o.n < 1000")
            for first in range(0, 600, 25):
                for name, each in (("orders", 1), ("fills", 40)):
                    n = np.arange(each * first, each * (first + 25))
                    rows = {
                        "ts": pa.array(START_US + 10 * (n // each) + 5 * (each > 1), TIME),
                        "id": n if each == 1 else n // each + 50,
                        "tag": pa.nulls(len(n), pa.string()),
                        "n": n,
                    }
                    db.push(name, pa.table(rows))
                    db.heartbeat(name, START_US + 10 * (first + 25))
            sizes[within] = db.core.rows.queries["q"].state_bytes
            joined = (
                0 if within in (0, 10) else sum(n + n // 40 + 50 < 1_000 for n in range(24_000))
            )
            assert query.answer().table.num_rows == joined
    assert sizes[0] < sizes[10] < sizes[50] <= sizes[400] < sizes[None]
    assert 3 * sizes[400] < 2 * sizes[None]


def test_a_longer_wait_than_a_window_can_have_is_refused(tmp_path):
    with Engine.open(tmp_path / "d") as db, pytest.raises(BadQuery, match="at most 1,000,000,000"):
        create(db, "id", within=1_000_000_001)
