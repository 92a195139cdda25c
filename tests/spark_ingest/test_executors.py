"""What executors do, without Spark around them: batches in, what they come to out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

import shedder
from shedder.client import Client
from shedder.client.failures import LONGEST_S, Patience
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.errors import BadSetting, BatchTooLarge, FailedPrecondition, Unreachable
from shedder.settings import Settings
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import ROWS_PER_BATCH, TIME_MAX_US
from spark_ingest.batch_journal import Begun, begin
from spark_ingest.delivery_check import check_kept
from spark_ingest.executors import ExecutorContext, Service, builder, gathered, sender
from spark_ingest.pipeline import check_size
from spark_ingest.rejected_rows import Aside
from spark_ingest.runtime.remote_files import escaped, opened
from tests.server_process import running

BEGUN = Begun(0, 1, TIME_MAX_US)
CUTS = st.lists(st.integers(0, 2 * ROWS_PER_BATCH), max_size=8)


def cut(rows: pa.Table, at: list[int]) -> list[pa.RecordBatch]:
    ends = sorted({min(place, len(rows)) for place in at} | {0, len(rows)})
    pieces = [rows.slice(a, b - a) for a, b in pairwise(ends)]
    return [batch for piece in pieces for batch in piece.to_batches()]


@settings(max_examples=40)
@given(first=CUTS, second=CUTS, size=st.integers(0, 3 * ROWS_PER_BATCH))
def test_the_same_rows_are_the_same_batches_wherever_they_were_cut(
    first: list[int], second: list[int], size: int
) -> None:
    rows = pa.table({"x": pa.array(range(size), pa.int64())})
    one, other = list(gathered(cut(rows, first))), list(gathered(cut(rows, second)))
    assert one == other
    assert [batch.num_rows for batch in one[:-1]] == [ROWS_PER_BATCH] * (len(one) - 1)
    assert pa.Table.from_batches(one, rows.schema).equals(rows)


def test_batches_of_other_columns_are_not_joined() -> None:
    narrow = pa.record_batch({"x": pa.array([1, 2], pa.int32())})
    wide = pa.record_batch({"x": pa.array([3], pa.int64())})
    assert list(gathered([narrow, narrow, wide])) == [
        pa.record_batch({"x": pa.array([1, 2, 1, 2], pa.int32())}),
        wide,
    ]


def test_places_are_opened_as_spark_names_them(tmp_path: Path) -> None:
    for place in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        system, path = opened(place)
        assert isinstance(system, pafs.LocalFileSystem)
        assert path == str(tmp_path)


def test_names_of_files_are_places_whatever_characters_they_have() -> None:
    for name in ("/a dir/50%.parquet", "file:/a dir/50%.parquet", "file:///a dir/50%.parquet"):
        assert opened(escaped(name))[1] == "/a dir/50%.parquet"
    assert escaped("s3a://bucket/a dir/50%.parquet") == "s3://bucket/a%20dir/50%25.parquet"
    assert escaped("hdfs://host:9000/x") == "hdfs://host:9000/x"
    assert opened("relative/at:noon")[1] == "relative/at:noon"


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    times = pa.array(rng.integers(0, 10**7, rows), pa.timestamp("us", "UTC"))
    return pa.table({"k": pa.array(rng.integers(0, 1_000, rows)), "ts": times})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    quiet = Settings(listen="127.0.0.1:0", insecure=True, drain_s=5)
    with (
        shedder.open(tmp_path / "data", quiet) as engine,
        running(engine, quiet) as address,
    ):
        yield Service(str(address), {"insecure": True})


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.connect() as connected:
        connected.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT) TIMESTAMP BY ts")
        connected.register("q", "SELECT COUNT(*) AS n, SUM(k) AS s, COUNT(DISTINCT k) AS d FROM s")
        yield connected


def test_rows_and_the_files_that_hold_them_come_to_the_same(client: Client, tmp_path: Path) -> None:
    plans, rows = client.plans("s"), table(3_000)
    expected = Summariser(Plans.from_json(plans))
    for batch in conform(rows, expected.schema):
        expected.add(batch)
    (tmp_path / "a dir").mkdir()
    names = [f"{tmp_path}/a dir/{number}%.parquet" for number in range(3)]
    for number, name in enumerate(names):
        pq.write_table(rows.slice(1_000 * number, 1_000), name)
    named = [pa.record_batch({"path": pa.array([f"file:{name}" for name in names[:2]])})]
    named.append(pa.record_batch({"path": pa.array([names[2]])}))
    aside = Aside(str(tmp_path / "aside"))
    for part, batches in (
        (ExecutorContext(plans, BEGUN, aside), cut(rows, [1, 700, 2_000])),
        (ExecutorContext(plans, BEGUN, aside, files=True), named),
    ):
        (built,) = builder(part, 1)(iter(batches))
        assert built.column("rows").to_pylist() == [3_000]
        data = built.column("data")[0].as_buffer()
        assert Summaries.from_bytes(data).panes == expected.summaries().panes


def test_a_file_that_is_none_or_has_other_columns_is_named(client: Client, tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    pq.write_table(table(5).drop_columns(["k"]), tmp_path / "k.parquet")
    aside = Aside(str(tmp_path / "aside"))
    part = ExecutorContext(client.plans("s"), BEGUN, aside, files=True)
    for name, why in (("no", "cannot be read as Parquet"), ("k", "column 'k' is missing")):
        named = pa.record_batch({"path": pa.array([f"file:{tmp_path}/{name}.parquet"])})
        with pytest.raises(FailedPrecondition, match=rf"{name}\.parquet.*{why}"):
            list(builder(part, 1)(iter([named])))


def test_poison_of_files_with_other_types_is_kept(client: Client, tmp_path: Path) -> None:
    """Each type fits the stream; what is wrong with a row has nothing to do with it."""
    kinds = (pa.int32(), pa.int64(), pa.uint8(), pa.int16())
    root, names = tmp_path / "aside", []
    for number, kind in enumerate(kinds):
        rows = table(5).set_column(0, "k", pa.array(range(5), pa.int64()).cast(kind))
        late = pa.array([None, 1, 2, 3, 4], pa.timestamp("us"))
        rows = rows.set_column(rows.schema.get_field_index("ts"), "ts", late)
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        names.append(f"file:{tmp_path}/{number}.parquet")
    part = ExecutorContext(client.plans("s"), BEGUN, Aside(str(root)), files=True)
    (row,) = list(builder(part, 1)(iter([pa.record_batch({"path": pa.array(names)})])))
    assert (row["rows"].to_pylist(), row["poison"].to_pylist()) == ([16], [4])
    kept = [pq.read_table(path) for path in root.rglob("*.parquet")]
    assert sum(map(len, kept)) == 4
    assert all(each["k"].to_pylist() == [0] * len(each) for each in kept)


@pytest.mark.slow
def test_a_try_that_ended_early_is_the_beginning_of_the_next(
    client: Client, service: Service, tmp_path: Path
) -> None:
    """A worker whose rows come from one that dies sees nothing but their end."""
    batches = table(12_000).combine_chunks().to_batches(max_chunksize=1_000)
    aside = Aside(str(tmp_path / "aside"))
    for micro_batch, first in enumerate((0, 1, 5, 12)):
        part = ExecutorContext(client.plans("s"), replace(BEGUN, batch=micro_batch), aside)
        send = sender(part, service, "s", "p")
        list(send(iter(batches[:first])))
        before = client.ledger("s")
        list(send(iter(batches)))
        ledger = client.ledger("s")
        assert ledger.applied == 12_000 * (micro_batch + 1)
        assert ledger.duplicate == before.duplicate + 1_000 * first


@pytest.mark.slow
def test_a_half_done_micro_batch_in_other_partitions_stores_nothing_twice(
    client: Client, service: Service, tmp_path: Path
) -> None:
    batches = table(12_000).combine_chunks().to_batches(max_chunksize=1_000)
    plans, aside = client.plans("s"), Aside(str(tmp_path / "poison"))

    def tried(partitions: int, these: list[pa.RecordBatch]) -> None:
        begun = begin(str(tmp_path), Begun(0, partitions, TIME_MAX_US))
        begun.check(partitions, "...")
        list(sender(ExecutorContext(plans, begun, aside), service, "s", "p")(iter(these)))

    tried(1, batches[:8])
    assert client.ledger("s").applied == 8_000
    with pytest.raises(FailedPrecondition, match=r"begun in 1 partition\(s\) and comes in 2 now"):
        tried(2, batches[6:])
    assert client.ledger("s").applied == 8_000
    tried(1, batches)
    ledger = client.ledger("s")
    assert (ledger.applied, ledger.duplicate) == (12_000, 8_000)


def long_text(rows: int, last_bytes: int) -> pa.RecordBatch:
    """Short texts, and one long one at the end."""
    times = pa.array(np.arange(rows) * 1_000, pa.timestamp("us", "UTC"))
    text = ["x" * 20] * (rows - 1) + ["y" * last_bytes]
    return pa.record_batch({"ts": times, "v": pa.array(text)})


def limited(bytes_max: int) -> Settings:
    return Settings(listen="127.0.0.1:0", insecure=True, drain_s=5, batch_bytes_max=bytes_max)


@pytest.mark.slow
def test_a_half_done_micro_batch_is_cut_as_it_was_whatever_the_service_takes_by_then(
    tmp_path: Path,
) -> None:
    """A batch's number is all by which the service knows it. What was too large stays aside."""
    batch, aside = long_text(10_000, 1_500_000), Aside(str(tmp_path / "poison"))

    def tried(service: Service, client: Client) -> int:
        plans = client.plans("s")
        fresh = Begun(0, 1, TIME_MAX_US, limits=Plans.from_json(plans).limits)
        part = ExecutorContext(plans, begin(str(tmp_path), fresh), aside)
        (came,) = sender(part, service, "s", "p")(iter([batch]))
        return int(came.column("rows")[0].as_py())

    for bytes_max, refused in (
        (1 << 20, False),
        (1 << 19, True),
        (4 << 20, False),
    ):
        quiet = limited(bytes_max)
        with shedder.open(tmp_path / "data", quiet) as engine, running(engine, quiet) as address:
            service = Service(str(address), {"insecure": True})
            with service.connect() as client:
                if bytes_max == 1 << 20:
                    client.execute(
                        "CREATE STREAM s (ts TIMESTAMP NOT NULL, v VARCHAR) TIMESTAMP BY ts"
                    )
                if refused:
                    with pytest.raises(FailedPrecondition):
                        tried(service, client)
                else:
                    assert tried(service, client) == 9_999  # Its last row is too large for 1 MiB.
                assert client.ledger("s").applied == 9_999


@pytest.mark.slow
def test_a_partition_says_what_it_has_pushed_and_what_the_service_lost_of_it_is_noticed(
    client: Client, service: Service, tmp_path: Path
) -> None:
    """As when a backup is restored while others still push."""
    batches = table(12_000).combine_chunks().to_batches(max_chunksize=1_000)
    part = ExecutorContext(
        client.plans("s"), replace(BEGUN, batch=6), Aside(str(tmp_path / "aside"))
    )
    [pushed] = next(sender(part, service, "s", "p")(iter(batches))).to_pylist()
    assert pushed == {"rows": 12_000, "poison": 0, "producer": "p/0", "epoch": 7, "next": 12}
    nothing = {"rows": 0, "poison": 0, "producer": "p/1", "epoch": 7, "next": 0}
    check_kept(client, "s", [Row(**pushed), Row(**nothing)])
    for has, lost in (
        (12, {**pushed, "next": 13}),
        (0, {**pushed, "epoch": 8}),
        (0, {**pushed, "producer": "p/1"}),
    ):
        with pytest.raises(
            FailedPrecondition, match=rf"'{lost['producer']}' .*the service has {has} now.*older"
        ):
            check_kept(client, "s", [Row(**lost)])


@pytest.mark.slow
def test_all_tries_believe_the_same_event_times(
    client: Client, service: Service, tmp_path: Path
) -> None:
    """What was too far in the future at first is not believed later: its batch was pushed then."""
    rows = table(12_000)
    batches = rows.combine_chunks().to_batches(max_chunksize=1_000)
    believed = int((rows["ts"].cast(pa.int64()).to_numpy() <= 5_000_000).sum())
    assert 0 < believed < 12_000
    poison = 0
    for newest_us, first in ((5_000_000, 7), (TIME_MAX_US, 12)):
        begun = begin(str(tmp_path), Begun(0, 1, newest_us))
        part = ExecutorContext(client.plans("s"), begun, Aside(str(tmp_path / "poison")))
        (came,) = sender(part, service, "s", "p")(iter(batches[:first]))
        (poison,) = came.column("poison").to_pylist()
    assert client.ledger("s").applied == believed
    assert poison == 12_000 - believed


def test_summaries_that_are_too_large_are_refused_with_the_ways_out(
    client: Client, tmp_path: Path
) -> None:
    plans = Plans.from_json(client.plans("s"))
    small = replace(plans, merge_bytes_max=1_000)
    part = ExecutorContext(small.to_json(), replace(BEGUN, batch=4), Aside(str(tmp_path)))
    check_size(part, 1_000)
    with pytest.raises(
        BatchTooLarge, match=r"micro-batch 4 .*1,001 bytes.*1,000 at a time"
    ) as found:
        check_size(part, 1_001)
    for way_out in ("ingest_queue_bytes", "drop queries", "maxFilesPerTrigger"):
        assert way_out in str(found.value)


def test_certificates_are_read_where_the_files_are(tmp_path: Path) -> None:
    """Executors on other machines get their bytes."""
    (tmp_path / "ca.pem").write_bytes(b"-----BEGIN CERTIFICATE-----")
    given = {"ca": str(tmp_path / "ca.pem"), "token": "abc"}
    service = Service("shedder:7077", given)
    (tmp_path / "ca.pem").unlink()
    there = pickle.loads(pickle.dumps(service))
    assert there == service
    assert there.options == {"ca": b"-----BEGIN CERTIFICATE-----", "token": "abc"}
    with pytest.raises(BadSetting, match=r"cannot read cert .*no\.pem"):
        Service("shedder:7077", {"cert": tmp_path / "no.pem"})


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_service_that_is_away_for_minutes_is_found_soon_after_it_is_back() -> None:
    for away_s in (60.0, 590.0):
        clock = Clock()
        patience = Patience(Service("localhost:1").patience_s, clock)
        while clock.now < away_s:
            clock.now += patience.wait_s(Unreachable("gone"))
        assert clock.now - away_s <= LONGEST_S
