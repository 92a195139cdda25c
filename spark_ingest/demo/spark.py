"""The tour of the pipeline: the same flights summarised on executors and forwarded as tuples."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from spark_ingest.accuracy import judged_together
from spark_ingest.baseline import SealedStream
from spark_ingest.demo.both_ways import SEED, WAYS, Ran, run_both_ways, write_flights
from spark_ingest.demo.panes import beside
from spark_ingest.demo.questions import STANDING
from spark_ingest.question_runner import AnsweredQuestions
from spark_ingest.report import AccuracyReport, write
from spark_ingest.runtime.spark_session import SparkSettings, spark_session

YEARS = 3  # The flights of 2013, three times, a year apart: more than a million.
DRAWN = 64
"""Questions beside those of the tour: with fewer, coverage far below its claim would be chance."""

_HINT = (
    "Summaries are as large as panes and groups are many, however many tuples they are of. Here "
    "they weigh {share:.0%} of the flights; docs/spark.md says where they weigh next to nothing."
)


def run_spark_demo(
    report: Path, console: Console, *, years: int = YEARS, drawn: int = DRAWN, heap_mb: int = 2048
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
        ran = run_both_ways(spark, home, write_flights(home / "source", years), drawn, console)
        with console.status("Spark computes the exact answers"):
            reports = judged_ways(spark, ran.sealed, ran.answered)
    for way, judged in reports.items():
        write(judged, report / way)
    return said(console, ran, reports, report)


def judged_ways(
    spark: SparkSession, sealed: SealedStream, answered: Mapping[str, AnsweredQuestions]
) -> dict[str, AccuracyReport]:
    """Spark's verdict on the answers of each way, from the tuples that were forwarded."""
    subjects = {f"{sealed.rows:,} flights, {way}": answers for way, answers in answered.items()}
    return dict(zip(answered, judged_together(spark, sealed, subjects, seed=SEED), strict=True))


def said(
    console: Console, ran: Ran, reports: Mapping[str, AccuracyReport], directory: Path
) -> bool:
    """Tell what came of it.

    Returns:
      Whether all of it is as it must be.
    """
    console.print(_table(ran))
    sent = sum(each.sent_bytes for each in ran.done["summarised"])
    console.print(_HINT.format(share=sent / ran.flights.size_bytes))
    tour = {query.name for query in STANDING}
    for part in beside(each for each in ran.panes if each.query in tour):
        console.print(part)
    unlike = [each for each in ran.panes if each.unlike]
    for part in beside(each for each in unlike if each.query not in tour):
        console.print(part)
    console.print(_panes_in_words(ran))
    taken = set(ran.taken.values()) == {ran.flights.rows}
    console.print(f"{ran.flights.rows:,} flights, taken once by both ways: {taken}")
    for way, judged in reports.items():
        console.print(
            f"{way}: {len(judged.questions)} questions, {judged.certain.held:,} of "
            f"{judged.certain.values:,} values that claim certainty are right, "
            f"{judged.intervals.held:,} of {judged.intervals.values:,} intervals hold; "
            f"intervals held as often as they say: {judged.passed}: {directory / way}"
        )
    return taken and not unlike and all(judged.passed for judged in reports.values())


def _panes_in_words(ran: Ran) -> str:
    """Return how alike the two ways are, over all queries."""
    panes, equal = sum(each.panes for each in ran.panes), sum(each.equal for each in ran.panes)
    queries, unlike = len({each.query for each in ran.panes}), sum(e.unlike for e in ran.panes)
    return (
        f"{queries} queries that read every flight: {panes:,} synopses of panes, {equal:,} equal "
        f"byte by byte, {panes - equal - unlike:,} in all but rounding and chance, {unlike:,} not. "
        f"{ran.thinned} read a share of the flights, each way another one. Of all "
        f"{len(ran.answered[WAYS[0]].cases)} answers {len(ran.same)} are equal to the bit"
    )


def _table(ran: Ran) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("way", "micro-batches", "tuples", "MB sent", "seconds"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, done in ran.done.items():
        sent = sum(each.sent_bytes for each in done)
        table.add_row(
            way,
            str(len(done)),
            f"{sum(each.rows for each in done):,}",
            f"{(sent or ran.flights.size_bytes) / 1e6:.1f}",
            f"{sum(each.seconds for each in done):.1f}",
        )
    return table
