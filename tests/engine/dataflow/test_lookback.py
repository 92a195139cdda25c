"""How far back in event time the state of a plan depends on tuples."""

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_binding import bind_relational
from shedder.engine.dataflow.lookback import ALL, HISTORY, lookbacks_us
from tests.streams.streams import TRADES

RANGE = "[RANGE INTERVAL '3' SECOND]"
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
    ],
)
def test_lookback_covers_all_windows_above_a_stream(text, lookbacks):
    plan = bind_relational(parse(text), {"trades": TRADES}).plan
    assert lookbacks_us(plan) == lookbacks
