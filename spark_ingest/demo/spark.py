"""The tour of the pipeline: the same flights summarised on executors and forwarded as tuples."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import shedder
from shedder.client import Client
from shedder.cql.parse import parse
from shedder.cql.statement import CreateStream
from shedder.queries.answer import Answer
from spark_ingest.accuracy import judged_by_spark
from spark_ingest.ask import Asked
from spark_ingest.baseline import SealedStream, sealed_stream
from spark_ingest.demo.panes import Alike, alike, beside
from spark_ingest.demo.questions import STANDING
from spark_ingest.demo.server import ServerProcess
from spark_ingest.executors import Service
from spark_ingest.flights import CREATE, STREAM, load_flights
from spark_ingest.pipeline import Done, Running, forward, summarise
from spark_ingest.report import Report, write
from spark_ingest.session import SparkSettings, spark_session

YEARS = 3  # The flights of 2013, three times, a year apart: more than a million.
_QUARTERS = 4  # Of a year, a file each; a micro-batch is one file.
_LATENESS = "LATENESS INTERVAL '100' DAY"  # Partitions of a quarter are pushed at the same time.
_DAY_US = 86_400_000_000
_BEGIN_US = 1_356_998_400_000_000  # 2013-01-01
_WAYS = ("summarised", "forwarded")
_HINT = (
    "Summaries are as large as panes and groups are many, however many tuples they are of. Here "
    "panes of hours have some hundred flights each, and summaries still weigh {share:.0%} of the "
    "flights; docs/spark.md says where they weigh next to nothing."
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What the two ways came to.

    panes: the synopses of both, side by side. same: queries whose answers are equal to the bit.
    """

    panes: tuple[Alike, ...]
    same: tuple[str, ...]
    done: dict[str, list[Done]]
    reports: dict[str, Report]

    @property
    def passed(self) -> bool:
        """Whether synopses are as alike as they must be, and answers of both ways as true."""
        alike = not any(each.unlike for each in self.panes)
        return alike and all(report.passed for report in self.reports.values())


def run_spark_demo(
    report: Path, console: Console, *, years: int = YEARS, heap_mb: int = 2048
) -> bool:
    """Run it all; below `report`, each way gets a report of its own.

    Returns:
      Whether both ways took every flight once, their synopses are equal where they must be, and
      every interval of both held as often as it says.
    """
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shedder-spark-demo-")))
        with console.status("starting Spark"):  # First the JVM: it is forked.
            spark = stack.enter_context(spark_session(SparkSettings(heap_mb=heap_mb, brief=True)))
        source = home / "source"
        rows, tuple_bytes = _write_files(source, years)
        server = ServerProcess(home / "data", {"SHEDDER_OVERLOAD": "off"})  # Nothing is thinned.
        server.start()
        stack.callback(server.stop)
        done = _both_ways(spark, server, source, home, console)
        server.stop()
        with console.status("comparing synopses"):
            panes = _panes(home / "data")
        server.start()
        client = stack.enter_context(server.wait())
        answers = {way: _answers(client, way, _end_us(years)) for way in _WAYS}
        client.seal("forwarded")
        sealed = sealed_stream(home / "data", "forwarded")
        with console.status("Spark computes the exact answers"):
            reports = {way: _judged(spark, sealed, answers[way], way) for way in _WAYS}
        taken = {way: client.ledger(way).applied for way in _WAYS}
    same = tuple(query.name for query in STANDING if _is_same(answers, query.name))
    _write(reports, report)
    compared = Compared(panes, same, done, reports)
    _say(console, compared, tuple_bytes)
    held = compared.passed and set(taken.values()) == {rows}
    console.print(f"{rows:,} flights, taken once by both ways: {set(taken.values()) == {rows}}")
    for way, judged in reports.items():
        console.print(
            f"{way}: intervals held as often as they say: {judged.passed}: {report / way}"
        )
    return held


def _both_ways(
    spark: SparkSession, server: ServerProcess, source: Path, home: Path, console: Console
) -> dict[str, list[Done]]:
    service = Service(server.address, {"insecure": True})
    done = {}
    with server.wait() as client:
        for way, start in zip(_WAYS, (summarise, forward), strict=True):
            client.execute(_create(way))
            for query in STANDING:
                client.register(f"{query.name}_{way}", _over(way, query.sql))
            running = start(_frame(spark, source), service, way, checkpoint=str(home / way))
            done[way] = _watched(running, way, len(list(source.iterdir())), console)
    return done


def _panes(directory: Path) -> tuple[Alike, ...]:
    """All that the two ways hold, of a directory that nobody serves now."""
    found: list[Alike] = []
    with shedder.open(directory, overload="off") as db:
        for query in STANDING:
            sides = [db.core.stream(way).queries[f"{query.name}_{way}"].standing for way in _WAYS]
            found += alike(query.name, *sides)
    return tuple(found)


def _write_files(directory: Path, years: int) -> tuple[int, int]:
    """The flights as files, each of a quarter of a year.

    Returns:
      How many flights there are, and their bytes as Arrow.
    """
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
    return len(whole), whole.nbytes


def _frame(spark: SparkSession, source: Path) -> DataFrame:
    schema = spark.read.parquet(str(source)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))


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


def _answers(client: Client, way: str, end_us: int) -> dict[str, Answer]:
    client.heartbeat(way, end_us)
    return {query.name: client.query(f"{query.name}_{way}").answer() for query in STANDING}


def _is_same(answers: dict[str, dict[str, Answer]], name: str) -> bool:
    first, second = (sorted(map(str, answers[way][name].table.to_pylist())) for way in _WAYS)
    return first == second


def _judged(
    spark: SparkSession, sealed: SealedStream, answers: dict[str, Answer], way: str
) -> Report:
    """Spark's verdict on the answers of one way, from the tuples that were forwarded."""
    asked = Asked(sealed.schema)
    for query in STANDING:
        answer = replace(answers[query.name], position=sealed.end_position)
        asked.add(_over("forwarded", query.sql), answer)
    subject = f"{sealed.rows:,} flights, {way}"
    return judged_by_spark(spark, sealed, asked, subject=subject, seed=None)


def _end_us(years: int) -> int:
    return _BEGIN_US + years * 365 * _DAY_US


def _write(reports: dict[str, Report], directory: Path) -> None:
    for way, report in reports.items():
        write(report, directory / way)


def _say(console: Console, compared: Compared, tuple_bytes: int) -> None:
    console.print(_table(compared, tuple_bytes))
    sent = sum(each.sent_bytes for each in compared.done["summarised"])
    console.print(_HINT.format(share=sent / tuple_bytes))
    for part in beside(compared.panes):
        console.print(part)
    console.print(f"answers equal to the bit: {', '.join(compared.same)}")
    close = [query.name for query in STANDING if query.name not in compared.same]
    if close:
        console.print(f"answers equal but for rounding and chance: {', '.join(close)}")


def _table(compared: Compared, tuple_bytes: int) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("way", "micro-batches", "tuples", "MB sent", "seconds"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, done in compared.done.items():
        sent = sum(each.sent_bytes for each in done)
        table.add_row(
            way,
            str(len(done)),
            f"{sum(each.rows for each in done):,}",
            f"{(sent or tuple_bytes) / 1e6:.1f}",
            f"{sum(each.seconds for each in done):.1f}",
        )
    return table
