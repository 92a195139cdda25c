"""How soon long work ends when it is called off, and that nothing of it is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.progressive import BATCH_ROWS, CREATE, RUN_ROWS, fill, trades
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.operations.backup import backup, restore
from shedder.archive.tasks.progress import Progress
from shedder.cql.statements.archive_layout import Eager, Hybrid, Layout, Lazy, Plain
from shedder.engine.engine import Engine
from shedder.engine.runtime.background_tasks import Watch
from shedder.errors import Cancelled

RUNS: Final = 3
TIMES: Final = int(os.environ.get("BENCH_CANCEL_TIMES", "20"))
TIMES_MIN: Final = 6
KIND_S: Final = 12.0  # That the moments of one kind take together, about, were all called off.
AIM_S: Final = 0.2
STREAM: Final = 1

QUERIES: Final[Mapping[str, str]] = {
    "exact question": "SELECT COUNT(DISTINCT ts) AS x FROM trades",
    "exact question, a million groups": "SELECT ts, SUM(price) AS x FROM trades "
    "[FROM TIMESTAMP '1970-01-01 00:00:00' TO TIMESTAMP '1970-01-01 00:16:40'] GROUP BY ts",
    "question to half of the blocks": "SELECT symbol, QUANTILE(price, 0.5) AS x FROM trades "
    "GROUP BY symbol REDUCE BY uniform(0.5)",
    "question until a target": "SELECT AVG(price) AS x FROM trades WITHIN 0.03 PERCENT",
}
_REWRITES: Final[tuple[tuple[str, Layout, Layout], ...]] = (
    ("plain", Plain(), Hybrid(64)),
    ("eager", Eager(), Plain()),
    ("hybrid", Hybrid(64), Plain()),
)
_DATA: Final = (
    f"{RUNS * RUN_ROWS:,} tuples of five columns in {RUNS} runs; rewrites, the vacuum and the "
    "purge are of one of them; beside a writer, the index is of "
    f"{BATCH_ROWS:,} tuples."
)
_MOMENTS: Final = (
    f"{TIMES} moments each, fewer of what takes long, but {TIMES_MIN}, spread evenly over what "
    "the work takes when it is not cancelled; "
    "waits are from `cancel` in another thread to the end. After each: no task, no file in tmp/, "
    "in runs/ what the catalog names, no target of a copy."
)
_WAYS: Final = (
    "Ctrl-C, a deadline, a gRPC cancel and CANCEL in the control table call the same `cancel`."
)
_DELETE: Final = "DELETE FROM trades WHERE venue = {}"

Work = Callable[[Watch], object]
"""Tells of its progress when it begins, and ends, or raises Cancelled."""


def run() -> Report:
    """Call off each kind of long work at moments spread over it."""
    folder = Path(tempfile.mkdtemp(prefix="shedder-bench-"))
    try:
        with shedder.open(
            folder / "data",
            run_rows=RUN_ROWS,
            sample_rows=1_000,
            memory_bytes=4 << 30,
            purge_share=1.0,  # Nothing begins by itself.
            purge_after_s=86_400.0,
        ) as db:
            db.execute(CREATE)
            fill(db, RUNS * RUN_ROWS)
            rows = [_measured(db, *each) for each in _kinds(db, folder)]
    finally:
        shutil.rmtree(folder)
    late = [row[0] for row in rows if row[4] and float(row[4].split()[0]) > 1e3 * AIM_S]
    return Report(
        claim=f"Aim: what takes long ends within {1e3 * AIM_S:.0f} ms of being called off; "
        + (f"missed by: {', '.join(late)}." if late else "met by all."),
        columns=("work", "takes", "called off", "median wait", "longest wait"),
        rows=rows,
        notes=(_DATA, _MOMENTS, _WAYS),
    )


# --- kinds ----------------------------------------------------------------------------------------


def _kinds(db: Engine, folder: Path) -> Iterator[tuple[str, Work, Work]]:
    """Names, work that may end, and work to be called off. Both leave all as it was, or nearly."""
    for name, text in QUERIES.items():
        work = _query_work(db, text)
        yield name, work, work
    for name, layout, other in _REWRITES:
        yield f"rewrite to {name}", *_rewrites(db, layout, other)
    yield "vacuum", *_vacuums(db)
    _lay_out(db, Hybrid(64))
    yield "CREATE INDEX", *_twice(partial(_indexed, db, "trades"))
    with _written(db):
        yield "CREATE INDEX beside a writer", *_twice(partial(_indexed, db, "few"))
    yield "INSERT INTO ... SELECT", *_twice(lambda watch: _copied(db, watch))
    yield "DELETE", _query_work(db, _DELETE.format(4)), _query_work(db, _DELETE.format(5))
    yield (
        "purge",
        *_of_two(db, lambda run, progress: db.core.store.purger.purge(run, progress.advance)),
    )
    for link in (True, False):
        how = "by links" if link else "copied"
        yield f"backup, {how}", *_twice(_to(folder / "made", partial(_backup, db, link=link)))
    backup(db.core.store, folder / "source")
    for link in (True, False):
        how = "by links" if link else "copied"
        made = partial(_restore, folder / "source", link=link)
        yield f"restore, {how}, verified first", *_twice(_to(folder / "made", made))


def _twice(work: Work) -> tuple[Work, Work]:
    return work, work


def _query_work(db: Engine, text: str) -> Work:
    return lambda watch: db.execute(text, watch=watch)


def _indexed(db: Engine, stream: str, watch: Watch) -> None:
    db.execute(f"CREATE INDEX ON {stream} (symbol)", watch=watch)
    db.execute(f"DROP INDEX ON {stream} (symbol)")


@contextmanager
def _written(db: Engine) -> Iterator[None]:
    """Push as fast as possible, so that runs are written; another stream has few tuples."""
    table = trades(np.random.default_rng(1), 0, BATCH_ROWS)
    for name in ("few", "pushed"):
        db.execute(CREATE.replace("trades", name))
    db.push("few", table)
    db.seal("few")
    ended = threading.Event()

    def push() -> None:
        while not ended.is_set():
            db.push("pushed", table)

    writer = threading.Thread(target=push)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        for name in ("few", "pushed"):
            db.execute(f"DROP STREAM {name}")


def _copied(db: Engine, watch: Watch) -> None:
    db.execute(CREATE.replace("trades", "others"))
    try:
        db.execute("INSERT INTO others SELECT * FROM trades", watch=watch)
    finally:
        db.execute("DROP STREAM others")


def _rewrites(db: Engine, layout: Layout, other: Layout) -> tuple[Work, Work]:
    """Of a run to a layout, from another one."""
    _lay_out(db, other)
    db.core.store.set_layout(STREAM, layout)
    return _of_two(db, lambda run, progress: db.core.store.layouts.rewrite(run, progress.advance))


def _lay_out(db: Engine, layout: Layout) -> None:
    db.core.store.set_layout(STREAM, layout)
    for run in db.core.store.layouts.unlike(STREAM):
        db.core.store.layouts.rewrite(run)


def _vacuums(db: Engine) -> tuple[Work, Work]:
    """That build the copy of a run."""
    _lay_out(db, Lazy())
    store = db.core.store
    store.layouts.note_scans([(part_of(run, 0.5), 0.5) for run in store.runs(STREAM)])
    return _of_two(db, lambda run, progress: store.layouts.vacuum(run, progress.advance))


def _of_two(db: Engine, work: Callable[[Run, Progress], object]) -> tuple[Work, Work]:
    """The same to the first run, and to the second."""

    def of(number: int) -> Work:
        def begin(watch: Watch) -> None:
            progress = Progress("a run", "rows")
            watch(progress)
            work(db.core.store.runs(STREAM)[number], progress)

        return begin

    return of(0), of(1)


def _backup(db: Engine, target: Path, progress: Progress, *, link: bool) -> None:
    backup(db.core.store, target, progress=progress, link=link)


def _restore(source: Path, target: Path, progress: Progress, *, link: bool) -> None:
    restore(source, target, progress=progress, link=link)


def _to(target: Path, make: Callable[[Path, Progress], None]) -> Work:
    def begin(watch: Watch) -> None:
        progress = Progress("a copy", "bytes")
        watch(progress)
        try:
            make(target, progress)
        except Cancelled:
            assert not target.exists()
            assert not target.with_name(f"{target.name}.partial").exists()
            raise
        shutil.rmtree(target)

    return begin


# --- measuring ------------------------------------------------------------------------------------


def _measured(db: Engine, name: str, whole: Work, part: Work) -> tuple[str, ...]:
    began = time.perf_counter()
    whole(lambda _: None)
    takes_s = time.perf_counter() - began
    times = min(TIMES, max(TIMES_MIN, round(2 * KIND_S / takes_s)))
    waits = [
        wait for at in range(times) if (wait := _wait_s(db, part, takes_s * at / times)) is not None
    ]
    return (
        name,
        f"{takes_s:.2f} s",
        f"{len(waits)} of {times}",
        f"{1e3 * np.median(waits):.0f} ms" if waits else "",
        f"{1e3 * max(waits):.0f} ms" if waits else "",
    )


def _wait_s(db: Engine, work: Work, after_s: float) -> float | None:
    """From a call to end it to the end; None: it was done by then."""
    begun: list[Progress] = []
    has_begun, ended = threading.Event(), []

    def watch(progress: Progress) -> None:
        begun.append(progress)
        has_begun.set()

    def do() -> None:
        try:
            work(watch)
        except Cancelled:
            ended.append(time.perf_counter())
        has_begun.set()

    rows = db.core.store.runs(STREAM)
    thread = threading.Thread(target=do)
    thread.start()
    has_begun.wait()
    thread.join(after_s)
    called_s = time.perf_counter()
    begun[0].cancel()
    thread.join()
    if not ended:
        return None
    _check_nothing_left(db, rows)
    return ended[0] - called_s


def _check_nothing_left(db: Engine, before: list[Run]) -> None:
    runs, directory = db.core.store.runs(STREAM), db.core.store.directory
    assert runs == before
    assert db.tasks.facts() == []
    left = [path.name for path in (directory / "tmp").glob(f"{STREAM}-*")]
    left += [path.name for path in (directory / "tmp").glob("index-*")]
    left += [path.name for path in (directory / "indexes").rglob("*.index")]
    assert not left, left
    found = {f"{STREAM}/{path.name}" for path in (directory / "runs" / str(STREAM)).iterdir()}
    assert found == {name for run in runs for name in run.files}, found
