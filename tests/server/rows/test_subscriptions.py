"""Standing row queries from afar: subscriptions, tokens, and what is refused."""

import gc

import pyarrow as pa
import pytest

from shedder import errors
from shedder.queries.answers.answer import Answer
from shedder.v1 import query_pb2
from tests.server.worlds import connect, connect_async

PICKED = "SELECT key, value FROM trades WHERE key < 5"
COUNTS = "SELECT COUNT(*) AS n FROM trades [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]"


def push(client, first, rows):
    """Push a trade per microsecond, with keys 0 to 9 in turn, and let the watermark pass them.

    Returns the values that PICKED has of them.
    """
    numbers = range(first, first + rows)
    columns = {
        "ts": pa.array(numbers, pa.timestamp("us")),
        "key": pa.array([number % 10 for number in numbers], pa.int64()),
        "value": pa.array([float(number) for number in numbers]),
    }
    client.push("trades", pa.table(columns))
    client.heartbeat("trades", first + rows)
    return [float(number) for number in numbers if number % 10 < 5]


def begin_of(query):
    """The token of the first row."""
    return query.answer().resume.partition(".")[0] + ".0"


def values_of(answers, rows):
    """The values of so many rows, which may come in several answers."""
    values = []
    while len(values) < rows:
        values += next(answers).table["value"].to_pylist()
    return values


def test_explain_has_the_operators_with_their_rows(database):
    query = database.register("q", PICKED)
    push(database, 0, 1_000)
    query.answer()
    lines = query.explain().splitlines()
    [passing] = [line for line in lines if line.startswith("Filter trades.key < 5")]
    assert passing.split()[4:6] == ["MONOTONIC", "500"]
    printed = str(database.execute("EXPLAIN q")).splitlines()
    assert [line.split()[:6] for line in printed] == [line.split()[:6] for line in lines]


def test_subscriber_gets_rows_and_resumes_behind_them(database):
    query = database.register("q", PICKED)
    answers = query.subscribe()
    wanted = push(database, 0, 1_000)
    first = next(answers)
    assert first.table.column_names == ["key", "value", "_ts", "_sign"]
    assert set(first.table["_sign"].to_pylist()) == {1}
    assert first.inputs[0].stream == "trades"
    assert first.watermark_us == first.inputs[0].as_of_us
    values = first.table["value"].to_pylist()
    assert values == wanted[: len(values)]
    rest = query.subscribe(after=first.resume)
    wanted += push(database, 1_000, 100)
    assert values + values_of(rest, len(wanted) - len(values)) == wanted
    assert values_of(query.subscribe(begin_of(query)), len(wanted)) == wanted
    assert query.answer().table["value"].to_pylist() == wanted
    assert query.answer().inputs[0].position == 1_100
    assert query.latest().resume == query.answer().resume


def answered_rows(address):
    """Rows of an answer that its client does not keep."""
    with connect(address) as other:
        return other.query("q").answer().table.num_rows


def test_server_keeps_no_answer_of_a_row_query(engine, client, address):
    """Each call makes an answer of its own; a relation may have tens of MB."""
    client.register("q", PICKED)
    push(client, 0, 100)
    assert answered_rows(address) == 50
    client.execute("SHOW QUERIES")  # A worker thread refers to its last result.
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, Answer)]
    assert [each for each in kept if each.query == engine.query("q").text] == []


def test_wrong_tokens_are_refused(database):
    query = database.register("q", PICKED)
    token = query.answer().resume
    counts = database.register("counts", COUNTS)
    for wrong in ("", "x", "a.0", f"{token}x", token.replace(".", "")):
        with pytest.raises(errors.BadSetting, match="is no token of the present query 'q'"):
            next(query.subscribe(wrong))
    with pytest.raises(errors.BadSetting, match="is behind row 0"):
        next(query.subscribe(f"{token[:-1]}7"))
    with pytest.raises(errors.BadSetting, match="has no rows to resume after"):
        next(counts.subscribe(token))
    query.drop()
    again = database.register("q", PICKED)
    with pytest.raises(errors.BadSetting, match="is no token of the present query"):
        next(again.subscribe(token))


def test_subscription_ends_with_its_query(database):
    query = database.register("q", PICKED)
    rows = query.subscribe()
    database.execute("DROP QUERY q")
    with pytest.raises(errors.UnknownQuery, match="no query 'q'"):
        next(rows)
    with pytest.raises(errors.UnknownQuery):
        query.answer()


@pytest.mark.parametrize("settings", [{"row_output_bytes_max": 64 << 10}], indirect=True)
def test_late_subscriber_learns_where_to_resume(database):
    query = database.register("q", PICKED)
    wanted = []
    for number in range(10):
        wanted += push(database, 1_000 * number, 1_000)
    with pytest.raises(errors.OutputDiscarded, match="not kept any more") as raised:
        next(query.subscribe(begin_of(query)))
    token = str(raised.value).split("'")[3]
    first = int(token.partition(".")[2])
    assert 0 < first < len(wanted)
    kept = values_of(query.subscribe(token), len(wanted) - first)
    assert kept == wanted[first:]
    assert query.answer().table["value"].to_pylist() == kept


async def test_asynchronous_subscriber_resumes(address, client):
    client.register("q", PICKED)
    async with await connect_async(address) as front:
        query = await front.query("q")
        answers = await query.subscribe()
        wanted = push(client, 0, 10)
        values, token = [], ""
        while len(values) < len(wanted):
            answer = await anext(answers)
            values += answer.table["value"].to_pylist()
            token = answer.resume
        assert values == wanted
        await answers.aclose()
        more = push(client, 10, 10)
        answer = await anext(await query.subscribe(after=token))
        assert answer.table["value"].to_pylist() == more[: answer.table.num_rows]
        assert (await query.answer()).table["value"].to_pylist() == wanted + more
        assert (await query.latest()).inputs[0].position == 20


def test_client_without_tokens_gets_rows_as_answers(connection, client):
    """An older client sends a name, and reads the fields that it knows."""
    client.register("q", PICKED)
    call = connection.stubs.query.Subscribe(query_pb2.SubscribeRequest(name="q"))
    call.initial_metadata()
    push(client, 0, 10)
    response = next(iter(call))
    assert response.WhichOneof("slide") == "answer"
    assert response.answer.query == PICKED
    call.cancel()
