"""ON OVERLOAD SHED from afar: levels by ALTER QUERY, and the completeness of the rows."""

import pyarrow as pa
import pytest

from shedder import errors
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode

NEWEST = "SELECT key, value FROM trades [PARTITION BY key ROWS 2]"
KEYS, ROWS = 400, 3  # Pushed of each key; the newest two are in the window.


def push(client):
    """Push ROWS trades of each key, a microsecond apart, and let the watermark pass them."""
    numbers = range(KEYS * ROWS)
    columns = {
        "ts": pa.array(numbers, pa.timestamp("us")),
        "key": pa.array([number % KEYS for number in numbers], pa.int64()),
        "value": pa.array([float(number) for number in numbers]),
    }
    client.push("trades", pa.table(columns))
    client.heartbeat("trades", len(numbers))


def test_a_thinned_row_query_keeps_all_rows_of_some_keys(database):
    query = database.register("q", f"{NEWEST} ON OVERLOAD SHED")
    push(database)
    said = database.execute("ALTER QUERY q SET THINNING 1/4")
    assert "query q keeps 1/4 of its keys at most" in str(said)
    answer = query.answer()
    found = sorted((row["key"], row["value"]) for row in answer.rows())
    kept = {key for key, _ in found}
    assert 40 < len(kept) < 180  # Of binomial(400, 1/4), it is outside at odds below 1e-12.
    newest = range(KEYS, KEYS * ROWS)
    assert found == sorted((at % KEYS, float(at)) for at in newest if at % KEYS in kept)
    completeness = answer.completeness
    assert (completeness.columns, completeness.share) == (("key",), 1 / 4)
    assert (completeness.shown_rows, completeness.shown_keys) == (len(found), len(kept))
    assert "on overload: shed; keeps 1/4 of the keys (key)" in query.explain()
    said = database.execute("ALTER QUERY q SET THINNING AUTO")
    assert "query q keeps all keys that find room" in str(said)


def test_thinning_of_a_row_query_without_the_clause_is_refused(database):
    database.register("q", NEWEST)
    with pytest.raises(errors.BadQuery, match="for rows with ON OVERLOAD SHED"):
        database.execute("ALTER QUERY q SET THINNING 1/4")


def test_the_command_line_thins_a_row_query_of_a_server(address, client, capfd):
    client.register("q", f"{NEWEST} ON OVERLOAD SHED")
    push(client)
    statements = ["ALTER QUERY q SET THINNING 1/8", "EXPLAIN q"]
    commands = [word for each in statements for word in ("-c", each)]
    assert run(["sql", "--connect", address, "-o", "table", *commands]) == ExitCode.FINE
    shown = "".join(capfd.readouterr())
    assert "query q keeps 1/8 of its keys at most" in shown
    assert "on overload: shed; keeps 1/8 of the keys (key)" in shown
    command = ["sql", "--connect", address, "-c", "ALTER QUERY q SET THINNING 1/128"]
    assert run(command) == ExitCode.USAGE
    assert "a row query keeps 1/64 of its keys or more" in capfd.readouterr().err
