"""Comparison of forwarded and summarised flights through Spark, under the same standing queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.progress import Progress

import shedder
from shedder.client import Client
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream
from shedder.errors import ShedderError
from shedder.queries.answers.answer import Answer
from spark_ingest.baseline import SealedStream, sealed_stream
from spark_ingest.demo.panes import Alike, alike
from spark_ingest.demo.questions import STANDING
from spark_ingest.demo.server import ServerProcess
from spark_ingest.executors import Service
from spark_ingest.flights import CREATE, STREAM, load_flights
from spark_ingest.pipeline import Done, Running, forward, summarise
from spark_ingest.profile import profile
from spark_ingest.question_runner import AnsweredQuestions
from spark_ingest.report import Refusal
from spark_ingest.workload import questions

WAYS = ("summarised", "forwarded")
SEED = 7  # Of the questions that are drawn.
_SAMPLE_ROWS = 20_000  # That questions are drawn from.
_QUARTERS = 4  # Of a year, a file each; a micro-batch is one file.
_LATENESS = "LATENESS INTERVAL '100' DAY"  # Partitions of a quarter are pushed at the same time.
_DAY_US = 86_400_000_000
_BEGIN_US = 1_356_998_400_000_000  # 2013-01-01
# Enough for all queries of both ways, so that twins have synopses of the same size.
_MEMORY_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Flights:
    """Years of flights as files, each of a quarter of a year.

    size_bytes: as Arrow has them. end_us: none of them leaves then or later. sample: of a year.
    """

    directory: Path
    rows: int
    size_bytes: int
    end_us: int
    sample: pa.Table


@dataclass(frozen=True, slots=True)
class Ran:
    """What both ways came to, and all that Spark needs to judge it.

    panes: the synopses of both, side by side. thinned: queries that are not among these, because
    each way reads other tuples for them. taken: tuples, by way.
    answered: the answers of each way, as questions about the stream that has the tuples.
    sealed: this stream.
    """

    flights: Flights
    done: Mapping[str, list[Done]]
    panes: tuple[Alike, ...]
    thinned: int
    taken: Mapping[str, int]
    answered: Mapping[str, AnsweredQuestions]
    sealed: SealedStream

    @property
    def same(self) -> list[int]:
        """Questions that both ways answer alike, to the bit."""
        sides = [[_rows(case.answer) for case in self.answered[way].cases] for way in WAYS]
        return [at for at, (one, other) in enumerate(zip(*sides, strict=True)) if one == other]


def write_flights(directory: Path, years: int) -> Flights:
    """The flights of 2013, so many times, a year apart."""
    directory.mkdir()
    table = load_flights().replace_schema_metadata(None)
    times = table["ts"].cast(pa.int64())
    tables = [
        table.set_column(
            0, "ts", pc.add(times, 365 * year * _DAY_US).cast(pa.timestamp("us", "UTC"))
        )
        for year in range(years)
    ]
    whole = pa.concat_tables(tables)
    files = _QUARTERS * years
    rows = -(-len(whole) // files)
    for number in range(files):
        part = whole.slice(number * rows, rows)
        pq.write_table(part, directory / f"{number:03d}.parquet", row_group_size=rows // 2 + 1)
    sample = np.random.default_rng(SEED).choice(len(table), _SAMPLE_ROWS, replace=False)
    end_us = _BEGIN_US + years * 365 * _DAY_US
    return Flights(directory, len(whole), whole.nbytes, end_us, table.take(np.sort(sample)))


def run_both_ways(
    spark: SparkSession, home: Path, flights: Flights, drawn: int, console: Console
) -> Ran:
    """Send the flights both ways to a server of their own, and ask both streams the same.

    Args:
      spark: the session. home: a directory for the server and for checkpoints.
      flights: to be sent. drawn: questions that are drawn at random, beside those of the tour.
      console: is told how far it is.
    """
    memory = {"SHEDDER_MEMORY_BYTES": str(_MEMORY_BYTES)}
    server = ServerProcess(home / "data", {"SHEDDER_OVERLOAD": "off", **memory})
    server.start()
    try:
        with server.wait() as client:
            for way in WAYS:
                client.execute(_create(way))
            queries = {query.name: query.sql for query in STANDING}
            queries |= _drawn(client.schema(WAYS[0]), flights, drawn)
            refused = _register(client, queries)
        known = {name: sql for name, sql in queries.items() if name not in refused}
        service = Service(server.address, {"insecure": True})
        done = {
            way: _watched(
                start(_frame(spark, flights), service, way, checkpoint=str(home / way)),
                way,
                len(list(flights.directory.iterdir())),
                console,
            )
            for way, start in zip(WAYS, (summarise, forward), strict=True)
        }
        server.stop()
        with console.status("comparing synopses"):
            whole = [name for name, sql in known.items() if "THINNING" not in sql]
            panes = _panes(home / "data", whole)
        server.start()
        with server.wait() as client:
            answers = {way: _answers(client, way, list(known), flights) for way in WAYS}
            client.seal("forwarded")
            taken = {way: client.ledger(way).applied for way in WAYS}
        sealed = sealed_stream(home / "data", "forwarded")
    finally:
        server.stop()
    cases = {way: _cases(sealed, known, answers[way], refused.values()) for way in WAYS}
    return Ran(flights, done, panes, len(known) - len(whole), taken, cases, sealed)


def _drawn(schema: StreamSchema, flights: Flights, count: int) -> dict[str, str]:
    looks = profile(
        replace(schema, name=STREAM), flights.sample, start_us=_BEGIN_US, end_us=flights.end_us
    )
    found = questions(looks, seed=SEED, count=count, standing_share=1.0)
    return {f"drawn_{at:02d}": question.sql for at, question in enumerate(found)}


def _register(client: Client, queries: Mapping[str, str]) -> dict[str, Refusal]:
    """Make the queries of both ways standing; those that are refused, with the reason."""
    refused: dict[str, Refusal] = {}
    for name, sql in queries.items():
        for way in WAYS:
            try:
                client.register(f"{name}_{way}", _over(way, sql))
            except ShedderError as error:
                refused[name] = Refusal(sql, f"{type(error).__name__}: {error}")
                break
    return refused


def _panes(directory: Path, names: Sequence[str]) -> tuple[Alike, ...]:
    """Return all panes that the two ways hold, read from a directory that no server has open."""
    found: list[Alike] = []
    with shedder.open(directory, overload="off", memory_bytes=_MEMORY_BYTES) as db:
        for name in names:
            sides = [db.core.stream(way).queries[f"{name}_{way}"].state for way in WAYS]
            found += alike(name, *sides)
    return tuple(found)


def _answers(client: Client, way: str, names: Sequence[str], flights: Flights) -> dict[str, Answer]:
    client.heartbeat(way, flights.end_us)
    client.ledger(way)  # Waits until the promise has been applied.
    return {name: client.query(f"{name}_{way}").answer() for name in names}


def _cases(
    sealed: SealedStream,
    queries: Mapping[str, str],
    answers: Mapping[str, Answer],
    refused: Iterable[Refusal],
) -> AnsweredQuestions:
    """The answers of one way, to be judged by the tuples that were forwarded."""
    found = AnsweredQuestions(sealed.schema)
    for name, sql in queries.items():
        found.add(_over("forwarded", sql), replace(answers[name], position=sealed.end_position))
    found.refused += refused
    return found


def _frame(spark: SparkSession, flights: Flights) -> DataFrame:
    source = str(flights.directory)
    schema = spark.read.parquet(source).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)


def _create(stream: str) -> str:
    statement = CREATE.replace(STREAM, stream).replace("LATENESS INTERVAL '0' SECOND", _LATENESS)
    assert isinstance(parse(statement), CreateStream)
    return statement


def _over(stream: str, sql: str) -> str:
    return sql.replace(f"FROM {STREAM}", f"FROM {stream}")


def _watched(running: Running, way: str, files: int, console: Console) -> list[Done]:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{way}, micro-batch by micro-batch", total=files)
        while not running.wait(timeout_s=1):
            progress.update(task, completed=len(running.done))
    return running.done


def _rows(answer: Answer) -> list[str]:
    return sorted(map(str, answer.table.to_pylist()))
