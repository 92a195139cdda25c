"""Queries of NEXMark in Flink SQL, which another interpreter runs.

Source: the queries of github.com/nexmark/nexmark, with the windows of `speed.py`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.nexmark import flink_job

# Settings of github.com/nexmark/nexmark, for two cores. A job that fails ends the run; Flink would
# begin it again without end.
SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
}
_TIMED = "ts AS TO_TIMESTAMP_LTZ(us / 1000, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND"
_TYPES = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.float64(): "DOUBLE"}
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_WINDOW = "window_start, window_end"
_SAME = "a.window_start = b.window_start AND a.window_end = b.window_end"
_BID_COUNTS = (
    f"(SELECT auction, COUNT(*) AS num, {_WINDOW} FROM {_HOP} GROUP BY auction, {_WINDOW})"
)

# {end} is the end of the last window that is whole.
QUERIES = {
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": f"SELECT category, AVG(CAST(final AS DOUBLE)) FROM (SELECT a.id, a.category, "
    f"MAX(b.price) AS final, a.window_start, a.window_end FROM (SELECT * FROM "
    f"{_TUMBLE.format('auction')}) a JOIN (SELECT * FROM {_TUMBLE.format('bid')}) b "
    f"ON b.auction = a.id AND {_SAME} WHERE b.us >= a.us AND b.us <= a.expires "
    "GROUP BY a.id, a.category, a.window_start, a.window_end) t WHERE window_end <= {end} "
    f"GROUP BY category, {_WINDOW}",
    "q5": f"SELECT a.auction, a.num FROM {_BID_COUNTS} a JOIN (SELECT MAX(num) AS most, {_WINDOW} "
    f"FROM {_BID_COUNTS} c GROUP BY {_WINDOW}) b ON {_SAME} WHERE a.num = b.most "
    "AND a.window_end <= {end}",
    "q8": f"SELECT a.id, a.name FROM (SELECT id, name, {_WINDOW} FROM {_TUMBLE.format('person')} "
    f"GROUP BY id, name, {_WINDOW}) a JOIN (SELECT seller, {_WINDOW} FROM "
    f"{_TUMBLE.format('auction')} GROUP BY seller, {_WINDOW}) b ON a.id = b.seller AND {_SAME}",
    "q20": "SELECT b.auction, b.bidder, b.price, b.channel, a.item, a.seller, a.category "
    "FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
}


def flink_seconds(
    interpreter: str,
    files: Mapping[str, Path],
    schemas: Mapping[str, pa.Schema],
    results: Mapping[str, pa.Schema],
    *,
    last_us: int,
    folder: Path | None = None,
) -> list[float]:
    """Run queries one after the other, and then again if no rows are kept; return the seconds.

    Args:
      interpreter: Python with `apache-flink`.
      files: of `write_csv`, by stream. schemas: of the streams.
      results: columns of the rows of the queries to run, by name.
      last_us: event time of the newest event.
      folder: into which the rows are written as CSV, by query; None: they are thrown away.
    """
    end = datetime.fromtimestamp(last_us // 1_000_000, UTC).strftime(
        "TIMESTAMP '%Y-%m-%d %H:%M:%S'"
    )
    tables = [_source(name, schemas[name], path) for name, path in files.items()]
    for name, schema in results.items():
        columns = ", ".join(f"c{at} {_TYPES[field.type]}" for at, field in enumerate(schema))
        kept = "'connector' = 'blackhole'" if folder is None else _file(folder / name)
        tables.append(f"CREATE TABLE out_{name} ({columns}) WITH ({kept})")
    inserts = [f"INSERT INTO out_{name} {QUERIES[name].format(end=end)}" for name in results]
    if folder is None:  # The first time includes the compilation of Java's code.
        inserts *= 2
    settings = SETTINGS if folder is None else SETTINGS | _checkpoints(folder)
    job = {"settings": settings, "tables": tables, "inserts": inserts}
    done = subprocess.run(
        [interpreter, flink_job.__file__],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{interpreter} ended with {done.returncode}: {done.stderr[-4000:]}")
    seconds = [float(line) for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert len(seconds) == len(inserts), (done.stdout, done.stderr[-4000:])
    return seconds[-len(results) :]


def write_csv(path: Path, batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    """Write a stream as one file, in the order of event time; return the columns of the file.

    Times are numbers of microseconds, and that of the event is `us`.
    """
    table = pa.Table.from_batches(batches)
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            name = "us" if field.name == "ts" else field.name
            table = table.set_column(at, name, pc.cast(table.column(at), pa.int64()))
    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(table, path, csv.WriteOptions(include_header=False))
    return table.schema


def rows_of(folder: Path, schema: pa.Schema) -> pa.Table:
    """Return the rows that a query has written; none: it has written no file."""
    options = csv.ConvertOptions(column_types=dict(zip(schema.names, schema.types, strict=True)))
    reads = csv.ReadOptions(column_names=schema.names)
    parts = [
        csv.read_csv(path, reads, convert_options=options)
        for path in sorted(folder.rglob("part-*"))
        if path.stat().st_size
    ]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _source(name: str, schema: pa.Schema, path: Path) -> str:
    columns = ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in schema)
    return f"CREATE TABLE {name} ({columns}, {_TIMED}) WITH ({_file(path)})"


def _checkpoints(folder: Path) -> dict[str, str]:
    """Return settings by which rows of files are committed; a job ends with a checkpoint.

    Flink gives up a checkpoint in which a task ends, and makes the next one an interval later. It
    keeps no state above 5 MiB in memory.
    """
    states = folder.with_name(f"{folder.name}-checkpoints")
    return {
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.dir": states.as_uri(),
    }


def _file(path: Path) -> str:
    return f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'csv'"
