"""How far back in event time the state of a plan depends on tuples."""

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.engine.dataflow.lookback import ALL, HISTORY, lookbacks_us
from tests.streams.streams import TRADES

RANGE = "[RANGE INTERVAL '3' SECOND]"
CLOSED = {"trades": 3_000_001}
PRICES = TableSchema("prices", (ColumnDefinition("key", ColumnType.BIGINT, False),), ("key",))
COUNT, EQUAL = "SELECT COUNT(*) AS n", "a.key = b.key"
SLIDES = "[RANGE INTERVAL '3' SECOND SLIDE INTERVAL '1' SECOND]"


@pytest.mark.parametrize(
    ("text", "lookbacks"),
    [
        ("SELECT key FROM trades WHERE key > 1", {"trades": 0}),
        ("SELECT key FROM trades UNION ALL SELECT key FROM trades t", {"trades": 0, "t": 0}),
        (f"SELECT key FROM trades {RANGE}", {"trades": 3_000_001}),
        (f"SELECT DISTINCT key FROM trades {SLIDES}", {"trades": 4_000_000}),
        ("SELECT key FROM trades [NOW]", {"trades": 1}),
        ("SELECT key FROM trades [ROWS 10]", {"trades": HISTORY}),
        ("SELECT DISTINCT key FROM trades", {"trades": ALL}),
        (
            f"{COUNT} FROM trades {SLIDES} a, trades {SLIDES} b WHERE {EQUAL} CONFIDENCE 95",
            {"a": 5_000_000, "b": 5_000_000},
        ),
        (
            f"SELECT a.key FROM trades {RANGE} a JOIN trades b ON a.key = b.key",
            {"a": 3_000_001, "b": ALL},
        ),
        (
            "SELECT key FROM (SELECT ISTREAM(key) FROM trades [ROWS 5]) t [ROWS 9]",
            {"trades": HISTORY},
        ),
        (
            f"SELECT key FROM (SELECT ISTREAM(key) FROM trades {RANGE}) t {SLIDES}",
            {"trades": 7_000_001},
        ),
        ("SELECT a.key FROM trades a JOIN prices b ON a.key = b.key", {"a": 0}),
        (f"SELECT DISTINCT key FROM trades {RANGE} WHERE key IN (SELECT key FROM prices)", CLOSED),
    ],
)
def test_lookback_covers_all_windows_above_a_stream(text, lookbacks):
    plan = bind_relational(parse(text), {"trades": TRADES, "prices": PRICES}).plan
    assert lookbacks_us(plan) == lookbacks
