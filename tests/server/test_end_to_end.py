"""The words of the database mean the same from afar."""

import pytest

import shedder
from shedder import errors
from shedder.server.call_context import CallLimits
from shedder.settings import Settings
from shedder.streams.batches import encode
from shedder.v1 import control_pb2
from shedder.wire import tables
from tests.server.worlds import CREATE_TRADES, connect
from tests.server_process import running
from tests.streams.streams import TRADES, every_type, trades

COUNTS = "SELECT COUNT(*) AS n FROM trades [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]"
TOTAL = "SELECT COUNT(*) AS n, SUM(key) AS total FROM trades"
NO_TIME = {"ts": [None], "key": [1], "value": [1.0]}


@pytest.mark.slow
def test_what_is_pushed_is_answered(client, engine):
    receipt = client.push("trades", trades(1000))
    assert (receipt.position, receipt.rows, receipt.duplicate) == (1000, 1000, False)
    expected = {"n": 1000, "total": sum(trades(1000)["key"].to_pylist())}
    answer = client.execute(TOTAL)
    assert {name: answer.rows()[0][name] for name in expected} == expected
    local = engine.execute(TOTAL)
    assert answer.table.equals(local.table, check_metadata=True)
    assert (answer.sources, answer.position) == (local.sources, local.position)


def test_the_schema_comes_as_it_was_created(client):
    schema = client.schema("trades")
    assert (schema.columns, schema.time_column) == (TRADES.columns, "ts")


@pytest.mark.parametrize("limits", [CallLimits(quiet_look_s=0.05)])
def test_a_subscription_ends_when_its_query_is_dropped(client):
    slides = client.register("counts", COUNTS).subscribe()
    client.execute("DROP QUERY counts")
    with pytest.raises(errors.UnknownQuery):
        next(slides)


def test_the_ledger_and_the_control_table_arrive(client, engine):
    client.push("trades", trades(10), producer="p", sequence=0)
    assert client.push("trades", trades(10), producer="p", sequence=0).duplicate
    ledger = client.ledger("trades")
    assert (ledger.accepted, ledger.applied, ledger.duplicate) == (20, 10, 10)
    assert ledger == engine.ledger("trades")
    control = client.control()
    assert control.column_names == ["entity", "name", "key", "value"]
    assert "trades" in client.control("stream")["name"].to_pylist()
    assert client.control("stream", "nothing").num_rows == 0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """An engine and a client of it, which the tests only ask what is refused."""
    settings = Settings(listen="127.0.0.1:0", insecure=True, drain_s=5)
    with (
        shedder.open(tmp_path_factory.mktemp("pair") / "data", settings) as engine,
        running(engine, settings) as address,
        connect(address) as client,
    ):
        engine.execute(CREATE_TRADES)
        yield engine, client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda db: db.execute("SELECT COUNT(*) FROM nothing"), errors.UnknownStream),
        (lambda db: db.execute("SELECT COUNT(missing) FROM trades"), errors.UnknownColumn),
        (lambda db: db.execute("SELEC"), errors.BadQuery),
        (lambda db: db.execute("(" * 10_000), errors.BadQuery),
        (lambda db: db.execute(CREATE_TRADES.replace("DOUBLE", "BIGINT")), errors.StreamExists),
        (lambda db: db.push("nothing", trades(1)), errors.UnknownStream),
        (lambda db: db.push("trades", every_type(1)), errors.SchemaMismatch),
        (lambda db: db.push("trades", NO_TIME), errors.BadTimestamp),
        (lambda db: db.push("trades", trades(1), producer="p", sequence=3), errors.SequenceGap),
        (lambda db: db.push("trades", object()), errors.InvalidRequest),
        (lambda db: db.query("nothing"), errors.UnknownQuery),
        (lambda db: db.ledger("nothing"), errors.UnknownStream),
        (lambda db: db.heartbeat("nothing", 0), errors.UnknownStream),
        (lambda db: db.seal("nothing"), errors.UnknownStream),
        (lambda db: db.set_control("stream", "trades", "colour", "red"), errors.BadSetting),
        (lambda db: db.register("q", "SHOW STREAMS"), errors.InvalidRequest),
    ],
)  # fmt: skip
def test_errors_are_the_same_here_and_there(pair, ask, error):
    engine, client = pair
    with pytest.raises(error) as there:
        ask(client)
    with pytest.raises(error) as here:
        ask(engine)
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)[:2_000]


def test_a_stale_epoch_is_refused(client):
    client.push("trades", trades(1), producer="p", epoch=2)
    with pytest.raises(errors.StaleEpoch):
        client.producer("trades", "p", epoch=1)


def test_hostile_bytes_are_refused_and_counted(client, connection):
    from shedder.v1 import ingest_pb2

    stub, payload = connection.stubs.ingest, encode(trades(10))
    for arrow in (b"", b"junk", payload[:100], payload[:-100] + b"\xff" * 100):
        request = ingest_pb2.AppendRequest(
            stream="trades", batch=ingest_pb2.Batch(arrow=arrow, rows=10)
        )
        with pytest.raises(errors.BadBatch):
            connection.call(stub.Append, request)
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (0, 4)


@pytest.mark.slow
def test_a_message_above_the_limit_is_refused(client, connection):
    from shedder.v1 import ingest_pb2

    request = ingest_pb2.AppendRequest(
        stream="trades", batch=ingest_pb2.Batch(arrow=bytes(17 << 20))
    )
    with pytest.raises(errors.ResourceExhausted):
        connection.call(connection.stubs.ingest.Append, request)


def test_a_closed_client_ends_its_calls_and_refuses_others(address):
    """Calls raised ValueError of gRPC."""
    client = connect(address)
    client.execute(CREATE_TRADES)
    query = client.register("counts", COUNTS)
    slides = query.subscribe()
    producer = client.producer("trades", "p")
    producer.push(trades(10))
    client.close()
    with pytest.raises(errors.FailedPrecondition, match="is closed; connect again"):
        next(slides)
    calls = (query.subscribe, query.latest, producer.flush, lambda: client.execute("SHOW STREAMS"))
    for call in (*calls, lambda: client.push("trades", trades(3))):
        with pytest.raises(errors.FailedPrecondition, match="is closed; connect again"):
            call()


def test_nobody_there_is_said_to_be_unreachable():
    with pytest.raises(errors.Unreachable, match="no server at"):
        shedder.connect("127.0.0.1:1")


def test_the_control_table_can_be_watched(client, connection):
    stub = connection.stubs.control
    request = control_pb2.WatchRequest(entity="stream", period_s=0.1)
    call = connection.open(stub.Watch, request)
    for _ in range(2):
        response = connection.read(call)
        assert "trades" in tables.from_bytes(response.table)["name"].to_pylist()
    call.cancel()
    too_often = connection.open(stub.Watch, control_pb2.WatchRequest(period_s=1e-3))
    with pytest.raises(errors.BadSetting, match=r"0\.001"):
        connection.read(too_often)


@pytest.mark.slow
def test_an_answer_above_the_limit_says_what_to_do(engine, settings):
    engine.execute(CREATE_TRADES)
    with (
        running(engine, settings, CallLimits(answer_bytes_max=10)) as address,
        connect(address) as client,
        pytest.raises(errors.ResourceExhausted, match="one may have 10; ask with LIMIT"),
    ):
        client.execute(TOTAL)


def test_a_statement_that_takes_too_long_ends_at_its_deadline(client):
    client.push("trades", trades(10))
    with pytest.raises(errors.DeadlineExceeded):
        client.execute(TOTAL, timeout_s=1e-6)
