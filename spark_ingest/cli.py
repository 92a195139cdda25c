"""The commands that Spark brings to the command line: accuracy, backfill, demo, spark-demo."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from shedder.cli.connection import CaOption, CertOption, KeyOption, Place, TokenFileOption, opened
from shedder.cli.exit_codes import ExitCode
from shedder.errors import BadSetting, DeadlineExceeded, Overloaded, Unavailable, Unreachable
from shedder.queries.answers.control_characters import escaped, escaped_lines
from shedder.queries.answers.database_api import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shedder.client.client import Client
    from spark_ingest.scores import Score  # SciPy is slow to import; `--help` does without.

_REPORT = Path("report")
_PASSING = (Unreachable, Unavailable, Overloaded, DeadlineExceeded)


def accuracy(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            envvar="SHEDDER_DATA",
            help="The data directory; Spark reads its runs.",
            file_okay=False,
            exists=True,
        ),
    ],
    connect: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="SHEDDER_CONNECT",
            help="The server that has the directory open; without it, this process opens it.",
        ),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which one, when there are several.")
    ] = None,
    questions: Annotated[int, typer.Option(min=1, help="How many to ask.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the questions; the same one asks the same.")] = 7,
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Where report.html and report.json go.")
    ] = _REPORT,
    heap_mb: Annotated[int, typer.Option(min=512, help="Of Spark's JVM.")] = 4096,
    brief: Annotated[
        bool, typer.Option(help="Better up to some million tuples: the JVM compiles less.")
    ] = True,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Instead, compute answers of standing queries again, this often; the server is "
            "told what came of them. It needs --connect and the scope admin.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Of --every; 0: until interrupted.")] = 0,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> int:
    """Ask many questions, let Spark answer them exactly, and compare.

    Ends with 6 when intervals hold the truth more rarely than they say, beyond what chance allows;
    with --every, when a query is not certified after the last round.

    - `shedder accuracy --data ./data`
    - `shedder accuracy --data ./data --connect localhost:7077 --stream requests --questions 1000`
    - `shedder accuracy --data ./data --connect localhost:7077 --stream requests --every 60`
    """
    from shedder.client.client import Client
    from spark_ingest.accuracy import AccuracyPlan, ask_all, draw, judged_by_spark
    from spark_ingest.baseline import sealed_stream
    from spark_ingest.report import write
    from spark_ingest.runtime.spark_session import SparkSettings, spark_session

    console = Console(stderr=True, highlight=False)
    if every is not None and connect is None:
        raise BadSetting("--every needs --connect: a server whose answers are lent to be audited")
    with ExitStack() as stack:
        # First the JVM: it is forked, and gRPC's threads do not survive a fork.
        with console.status("starting Spark"):
            spark = stack.enter_context(spark_session(SparkSettings(heap_mb=heap_mb, brief=brief)))
        own = data if connect is None else None
        place = Place(own, connect, token_file, ca, cert, key)
        database = stack.enter_context(opened(place))
        name = stream or _only_stream(database)
        if every is not None:
            assert isinstance(database, Client)
            return audit_rounds(spark, database, name, data, every, rounds)
        drawn = draw(database, data, name, AccuracyPlan(seed, questions))
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(escape(escaped(f"asking {name}")), total=len(drawn))
            answered = ask_all(database, data, name, drawn, lambda: progress.advance(task))
        sealed = sealed_stream(data, name)
        console.print(f"Spark computes {len(answered.questions)} exact answers: a minute or more")
        subject = f"{name}, {sealed.rows:,} tuples"
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("Spark reads all tuples", total=None)
            found = judged_by_spark(
                spark,
                sealed,
                answered,
                subject=subject,
                seed=seed,
                passed=lambda done, of: progress.update(task, completed=done, total=of),
            )
    as_json, as_html = write(found, report)
    Console(highlight=False).print(_summary(found.gates))
    console.print(
        f"{len(answered.questions)} answered, {len(answered.refused)} refused: {as_html}, {as_json}"
    )
    if found.passed:
        console.print(
            "passed: intervals held the truth as often as they say, as far as chance allows"
        )
        return ExitCode.FINE
    console.print(escaped_lines(found.failure), style="bold red", markup=False)
    return ExitCode.PRECISION


def backfill(
    files: Annotated[
        str, typer.Argument(help="Parquet that Spark can read: a directory, a file, or s3a://...")
    ],
    stream: Annotated[str, typer.Argument(help="Whose past it is.")],
    connect: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="SHEDDER_CONNECT", help="The server.")
    ],
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Of this backfill; the same one goes on where it ended."),
    ],
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    token: Annotated[
        str | None, typer.Option(hidden=True, help="Every user who lists processes sees it.")
    ] = None,
    insecure: Annotated[bool, typer.Option(help="Without TLS, on this machine.")] = False,
    aside: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where rows go that the stream cannot take."),
    ] = None,
    part_rows: Annotated[int, typer.Option(min=1, help="About so many rows to a part.")] = 1 << 20,
    overlap: Annotated[
        bool, typer.Option(help="Event times may be among those that the stream has.")
    ] = False,
    heap_mb: Annotated[int, typer.Option(min=512, help="Of Spark's JVM.")] = 4096,
) -> int:
    """Bring years of Parquet into a stream's past, all at once, while the stream goes on.

    Killed, it goes on where it ended when it is called again. It needs the scope admin.

    - `shedder backfill s3a://flights/1987-2025/ flights --connect localhost:7077 --name years`
    """
    from spark_ingest.backfill import backfill as run
    from spark_ingest.executors import Service
    from spark_ingest.runtime.spark_session import SparkSettings, spark_session

    console = Console(stderr=True, highlight=False)
    options = Place(None, connect, token_file, ca, cert, key).credentials
    options |= {"token": token} if token is not None else {}
    service = Service(connect, options | ({"insecure": True} if insecure else {}))
    with ExitStack() as stack:
        with console.status("starting Spark"):
            spark = stack.enter_context(spark_session(SparkSettings(heap_mb=heap_mb)))
        progress = stack.enter_context(Progress(console=console, transient=True))
        task = progress.add_task(f"backfill {stream}", total=None)

        def on_progress(rows: int, total: int) -> None:
            progress.update(task, completed=rows, total=total)

        done = run(
            spark.read.parquet(files),
            service,
            stream,
            name=name,
            aside=aside,
            part_rows=part_rows,
            overlap=overlap,
            on_progress=on_progress,
        )
    said = "were part of it before" if done.duplicate else f"in {done.seconds:,.1f} s"
    poison = f"; {done.poison:,} rows kept in {aside}" if done.poison else ""
    console.print(escaped(f"{stream}: {done.rows:,} rows of its past {said}{poison}"), markup=False)
    return ExitCode.FINE


def demo(
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Where report.html and report.json go.")
    ] = Path("build/demo"),
    seconds: Annotated[float, typer.Option(min=0, help="About how long the replay takes.")] = 20.0,
    questions: Annotated[int, typer.Option(min=0, help="Drawn at random, for the report.")] = 200,
    sample_rows: Annotated[int, typer.Option(min=64, help="Of the server's sample.")] = 8192,
) -> int:
    """Take the tour: real flights, a real server, a kill in the middle, Spark as the judge.

    Ends with 0 only when every claim held.
    """
    from spark_ingest.demo.tour import TourSettings, run_tour

    settings = TourSettings(
        report=report, replay_s=seconds, questions=questions, sample_rows=sample_rows
    )
    held = run_tour(settings, Console(highlight=False))
    return ExitCode.FINE if held else ExitCode.PRECISION


def spark_demo(
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Where a report of each way goes.")
    ] = Path("build/spark-demo"),
    years: Annotated[int, typer.Option(min=1, help="How often the year's flights are sent.")] = 3,
    questions: Annotated[
        int, typer.Option(min=0, help="Drawn at random, beside those of the tour.")
    ] = 64,
) -> int:
    """A million flights through Spark: summarised on executors, and forwarded as tuples.

    Both have the same standing queries. Ends with 0 only when both ways took every flight once,
    their synopses are equal wherever the order of tuples does not matter, and intervals of both
    held as often as they say.
    """
    from spark_ingest.demo.spark import run_spark_demo

    held = run_spark_demo(report, Console(highlight=False), years=years, drawn=questions)
    return ExitCode.FINE if held else ExitCode.PRECISION


def audit_rounds(
    spark: SparkSession,
    client: Client,
    stream: str,
    data: Path,
    every_s: float,
    rounds: int,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Compute live answers again in rounds, and print a line for each answer.

    A round that fails because the service is down, full or draining is skipped. If the last round
    fails, its error is raised.

    Args:
      spark: the session. client: of the service, with the scope admin.
      stream: its name. data: the directory that the service serves.
      every_s: from the start of a round to the start of the next one.
      rounds: number of rounds; 0: no limit.
      wait: waits the given seconds until the next round.

    Returns:
      PRECISION when a query is not certified after the last round, otherwise FINE.
    """
    from spark_ingest.self_audit import audit_round

    out, lost = Console(highlight=False), dict[str, str]()
    console = Console(stderr=True, highlight=False)
    done = 0
    while True:
        began = time.monotonic()
        done += 1
        try:
            found = audit_round(spark, client, stream, data)
        except _PASSING as error:
            if done == rounds:
                raise
            console.print(
                escaped_lines(f"round {done}: {error}; the next one will see"), markup=False
            )
        else:
            for each in found.looked:
                lost[each.query] = each.lost
                verdict = f"not certified: {each.lost}" if each.lost else "certified"
                missed = f"{each.missed} of {each.values} values missed"
                out.print(escaped(f"{each.query}: {missed}; {verdict}"), markup=False)
            talk = f"{len(found.looked)} answers in {found.seconds:.1f} s, {found.passes} passes"
            console.print(f"round {done}: {talk}")
        if done == rounds:
            return ExitCode.PRECISION if any(lost.values()) else ExitCode.FINE
        wait(max(0.0, every_s - (time.monotonic() - began)))


def _only_stream(database: Database) -> str:
    names = [str(name) for name in database.execute("SHOW STREAMS").table.column(0).to_pylist()]
    if len(names) != 1:
        known = ", ".join(names) or "none"
        raise BadSetting(f"say which --stream; there are: {known}")
    return names[0]


def _summary(gates: list[Score]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("aggregate", "source"):
        table.add_column(name)
    for name in ("questions", "values", "claimed", "held", "required"):
        table.add_column(name, justify="right")
    for score in gates:
        claimed = "certain" if score.confidence == 1 else f"{score.confidence:.1%}"
        style = "" if score.passed else "bold red"
        table.add_row(
            score.aggregate,
            score.source,
            f"{score.trials:,}",
            f"{score.values:,}",
            claimed,
            f"{score.coverage:.2%}",
            f"{score.required / score.trials:.2%}",
            style=style,
        )
    return table
