"""FOREIGN KEY of a stream from afar: rows, counts and notes by library, gRPC and command line."""

import pyarrow as pa

from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode

QUERY = (
    "SELECT ISTREAM(f.key, o.value) FROM fills [NOW] f JOIN trades [RANGE 1 HOUR] o "
    "ON f.key = o.key"
)
FILLS = (
    "CREATE STREAM fills (ts TIMESTAMP, key BIGINT) TIMESTAMP BY ts "
    "FOREIGN KEY (key) REFERENCES trades (key) WITHIN 0 TUPLES"
)


def push(client):
    """Push trades 0 to 3, and fills of 2 to 5: the trades of 4 and 5 come later, and never."""
    keys = {"trades": [0, 1, 2, 3, 4], "fills": [2, 3, 4, 5]}
    times = {"trades": [0, 1, 2, 3, 9], "fills": [5, 6, 7, 8]}
    for name, column in keys.items():
        rows = {"ts": pa.array(times[name], pa.timestamp("us")), "key": column}
        if name == "trades":
            rows["value"] = [float(key) for key in column]
        client.push(name, pa.table(rows))
        client.heartbeat(name, 100)


def test_fills_without_a_trade_are_counted_and_named(database):
    database.execute(FILLS)
    query = database.register("q", QUERY)
    push(database)
    answer = query.answer()
    assert [tuple(row.values())[:2] for row in answer.rows()] == [(2, 2.0), (3, 3.0)]
    assert not answer.complete
    (note,) = answer.notes
    assert note.startswith("2 tuples came without the partner of their FOREIGN KEY")
    shown = {row["key"]: row["value"] for row in database.execute("DESCRIBE q").rows()}
    assert (shown["unmatched"], shown["ambiguous"]) == ("2", "0")


def test_the_command_line_shows_the_key_and_the_count(address, client, capfd):
    assert run(["sql", "--connect", address, "-c", FILLS, "-c", f"CREATE QUERY q AS {QUERY}"]) == (
        ExitCode.FINE
    )
    push(client)
    statements = ["EXPLAIN q", "SHOW STREAMS", "DESCRIBE q"]
    commands = [word for each in statements for word in ("-c", each)]
    capfd.readouterr()
    assert run(["sql", "--connect", address, "-o", "ndjson", *commands]) == ExitCode.FINE
    shown = "".join(capfd.readouterr())
    assert "rows of f are not held" in shown
    assert "FOREIGN KEY (key) REFERENCES trades (key) WITHIN 0 TUPLES" in shown
    assert '{"key": "unmatched", "value": "2"}' in shown
