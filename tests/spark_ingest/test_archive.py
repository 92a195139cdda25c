"""An archive as a DataFrame: all of it, a stretch, a part; deleted rows are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import shedder
from shedder.archive.archive_store import Store
from shedder.cql.statements.archive_layout import layout_from_text
from shedder.errors import BadReduction, OutOfRange, UnknownColumn, UnknownStream
from shedder.queries.answers.answer import Answer
from spark_ingest.archive import SHARE, read_archive
from spark_ingest.baseline import exact_answer, relation, sealed_stream, stretch_of
from spark_ingest.question_runner import bound
from tests.scale import scaled

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = scaled(16_000, 40_000)
RUN_ROWS, BATCH_ROWS = ROWS // 5, ROWS // 8
BLOCKS = f"hybrid(blocks=16, block_rows={ROWS // 80})"
STEP_US = 40_000_000 // ROWS  # Forty seconds of tuples.
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def made(directory: Path, layout: str) -> Path:
    rng = np.random.default_rng(1)
    first = int(NOON.timestamp()) * 1_000_000
    with shedder.open(directory, run_rows=RUN_ROWS) as db:
        db.execute(
            f"CREATE STREAM s (ts TIMESTAMP, g VARCHAR, x DOUBLE) TIMESTAMP BY ts ARCHIVE {layout}"
        )
        table = pa.table(
            {
                "ts": pa.array(first + np.arange(ROWS) * STEP_US, pa.timestamp("us")),
                "g": rng.choice(["a", "b"], ROWS),
                "x": rng.normal(5, 1, ROWS),
            }
        )
        for start in range(0, ROWS, BATCH_ROWS):
            db.push("s", table.slice(start, BATCH_ROWS))
            if start == BATCH_ROWS:
                db.seal("s")  # So there are two runs at least.
        db.seal("s")
        db.execute("DELETE FROM s WHERE x > 7")
    return directory


@pytest.mark.parametrize("layout", ["plain", BLOCKS])
def test_what_is_read_is_what_is_there(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    directory = made(tmp_path / "data", layout)
    with shedder.open(directory) as db:
        (right,) = db.execute("SELECT COUNT(*) AS n, SUM(x) AS s FROM s").rows()
    whole = read_archive(spark, directory, "s").agg(sf.count("*"), sf.sum("x")).first()
    assert whole[0] == right["n"] < ROWS
    assert whole[1] == pytest.approx(right["s"], rel=1e-12)
    with relation(spark, sealed_stream(directory, "s")) as name:  # The judge's own way.
        assert spark.table(f"`{name}`").count() == right["n"]
    end = NOON.replace(second=7)
    stretch = read_archive(spark, directory, "s", columns=["ts", "g"], start=NOON, end=end)
    read = stretch.count()  # Before an engine rewrites the runs that rows were deleted of.
    with shedder.open(directory) as db:
        ends = "FROM TIMESTAMP '2026-01-01 12:00:00' TO TIMESTAMP '2026-01-01 12:00:07'"
        (row,) = db.execute(f"SELECT COUNT(*) AS n FROM s [{ends}]").rows()
        assert read == row["n"]
    assert stretch.columns == ["ts", "g", "__position", SHARE]


def test_the_judge_reads_no_run_outside_of_the_window(spark: SparkSession, tmp_path: Path) -> None:
    sealed = sealed_stream(made(tmp_path / "data", "plain"), "s")
    first_us = int(NOON.timestamp()) * 1_000_000
    ends = [run.end_position for run in sealed.runs]  # Where the cutter came to them.
    assert len(ends) > 1
    assert ends[-1] == ROWS
    firsts = [first_us + STEP_US * position for position in (0, *ends[:-1])]
    lasts = [first_us + STEP_US * (position - 1) for position in ends]
    stretches: list[tuple[int | None, int | None]] = [
        (None, None),
        (None, first_us + 1),
        (lasts[0], firsts[1] + 1),
        (lasts[0] + 1, None),
        (first_us - 2, first_us - 1),
    ]
    for start_us, end_us in stretches:
        runs = sum(
            (start_us is None or last >= start_us) and (end_us is None or first < end_us)
            for first, last in zip(firsts, lasts, strict=True)
        )
        with relation(spark, sealed, start_us, end_us) as name:  # A view has a file at least.
            assert len(spark.table(f"`{name}`").inputFiles()) == max(runs, 1)
    answers = [Answer(pa.table({}), start_us=a, end_us=b) for a, b in [(5, 9), (2, 7)]]
    assert stretch_of(answers) == (2, 9)
    assert stretch_of([*answers, Answer(pa.table({}), start_us=None, end_us=3)]) == (None, 9)
    assert stretch_of([]) == (None, None)


@pytest.mark.parametrize("layout", ["plain", BLOCKS, "eager(0.5, 0.9)"])
def test_a_part_weighed_by_its_share_estimates_the_whole(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    directory = made(tmp_path / "data", layout)
    whole = read_archive(spark, directory, "s").agg(sf.count("*"), sf.sum("x")).first()
    part = read_archive(spark, directory, "s", reduction=0.75, seed=3)
    read, n, s = part.agg(
        sf.count("*"), sf.sum(1 / sf.col(SHARE)), sf.sum(sf.col("x") / sf.col(SHARE))
    ).first()
    assert 0.2 * whole[0] < read < 0.3 * whole[0]
    # Five standard errors of a Bernoulli sample of a quarter: sqrt(3 / rows).
    assert n == pytest.approx(whole[0], rel=5 * (3 / whole[0]) ** 0.5)
    assert s == pytest.approx(whole[1], rel=5 * (3.2 / whole[0]) ** 0.5)
    again = read_archive(spark, directory, "s", reduction=0.75, seed=3)
    assert again.agg(sf.sum("__position")).first() == part.agg(sf.sum("__position")).first()


@contextmanager
def stored(directory: Path) -> Iterator[tuple[Store, int]]:
    """The archive without a service, which would do in the background what a test asks for."""
    store = Store.open(directory)
    try:
        [entry] = store.catalog.streams()
        yield store, entry.id
    finally:
        store.close()


def written_anew(directory: Path, layout: str) -> None:
    """What a service does in the background: runs in another layout, without deleted rows."""
    with stored(directory) as (store, stream):
        files = {(run.file, run.crc) for run in store.runs(stream)}
        store.set_layout(stream, layout_from_text(layout))
        for run in store.layouts.unlike(stream):
            assert store.layouts.rewrite(run)
        for run in store.purger.marked(stream):
            assert store.purger.purge(run)
        assert files.isdisjoint((run.file, run.crc) for run in store.runs(stream))


@pytest.mark.parametrize(("before", "after"), [("plain", BLOCKS), (BLOCKS, "plain")])
def test_runs_that_are_written_anew_before_they_are_read_are_read_all_the_same(
    spark: SparkSession, tmp_path: Path, before: str, after: str
) -> None:
    directory = made(tmp_path / "data", before)
    whole, x = read_archive(spark, directory, "s"), ["x"]
    rows = sorted(tuple(row) for row in whole.collect())
    parts = {
        seed: read_archive(spark, directory, "s", columns=x, reduction=0.75, seed=seed)
        for seed in (1, 2)
    }
    query = bound(
        "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM s GROUP BY g",
        sealed_stream(directory, "s").schema,
    )
    sealed = sealed_stream(directory, "s")
    right = exact_answer(spark, sealed, query, watermark_us=None).rows()
    written_anew(directory, after)
    assert sorted(tuple(row) for row in whole.collect()) == rows
    for part in parts.values():
        read, n = part.agg(sf.count("*"), sf.sum(1 / sf.col(SHARE))).first()
        assert 0.2 * len(rows) < read < 0.3 * len(rows)
        assert n == pytest.approx(len(rows), rel=5 * (3 / len(rows)) ** 0.5)
    again = exact_answer(spark, sealed, query, watermark_us=None).rows()
    assert [(row["g"], row["n"]) for row in again] == [(row["g"], row["n"]) for row in right]


def test_what_was_dropped_before_it_is_read_is_said_and_no_sum_lacks_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = made(tmp_path / "data", "plain")
    whole = read_archive(spark, directory, "s")
    sealed = sealed_stream(directory, "s")
    query = bound("SELECT COUNT(*) AS n FROM s", sealed.schema)
    with stored(directory) as (store, stream):
        assert store.retention.apply(
            stream, int(NOON.timestamp()) * 1_000_000 + ROWS * STEP_US // 2
        )
    with pytest.raises(Exception, match=r"does not have positions 0 to .* any more"):
        whole.count()
    with pytest.raises(OutOfRange, match="the run from position 0 was dropped meanwhile"):
        exact_answer(spark, sealed, query, watermark_us=None)
    with stored(directory) as (store, stream):
        assert store.retention.apply(stream, int(NOON.timestamp()) * 1_000_000 + ROWS * STEP_US * 2)
        assert not store.runs(stream)
    with pytest.raises(OutOfRange, match="the run from position 0 was dropped meanwhile"):
        exact_answer(spark, sealed, query, watermark_us=None)


def test_runs_that_lost_all_of_their_rows_have_none(spark: SparkSession, tmp_path: Path) -> None:
    directory = made(tmp_path / "data", BLOCKS)
    whole = read_archive(spark, directory, "s")
    with shedder.open(directory) as db:
        db.execute("DELETE FROM s WHERE x > -100")
    with stored(directory) as (store, stream):
        for run in store.purger.marked(stream):
            store.purger.purge(run)
        assert not store.runs(stream)
    assert whole.count() == 0


def damaged(directory: Path, spared: set[tuple[str, int]]) -> int:
    """Overwrite every block of every run but these; returns how many there were."""
    found = 0
    for file in (directory / "runs").rglob("*.parquet"):
        metadata = pq.ParquetFile(file).metadata
        with file.open("r+b") as out:
            for group in range(metadata.num_row_groups):
                found += 1
                if (file.name, group) in spared:
                    continue
                columns = [metadata.row_group(group).column(c) for c in range(metadata.num_columns)]
                starts = [each.dictionary_page_offset or each.data_page_offset for each in columns]
                first = min(starts)
                end = max(
                    start + each.total_compressed_size
                    for start, each in zip(starts, columns, strict=True)
                )
                out.seek(first)
                out.write(b"\xff" * (end - first))
    return found


def blocks_read(directory: Path, positions: list[int]) -> set[tuple[str, int]]:
    """File and row group of each of these tuples."""
    found = set()
    for file in (directory / "runs").rglob("*.parquet"):
        whole = pq.ParquetFile(file)
        for group in range(whole.metadata.num_row_groups):
            if "__position" in whole.schema_arrow.names:
                held = whole.read_row_group(group, ["__position"])["__position"].to_pylist()
            else:  # In order of position, which the file's name begins with; one row group.
                assert whole.metadata.num_row_groups == 1
                first = int(file.name.partition("-")[0])
                held = list(range(first, first + whole.metadata.num_rows))
            if not set(held).isdisjoint(positions):
                found.add((file.name, group))
    return found


@pytest.mark.parametrize(
    ("layout", "part"),
    [
        (BLOCKS, {"reduction": 0.75, "seed": 3}),
        ("plain", {"start": NOON.replace(second=2), "end": NOON.replace(second=5)}),
    ],
)
def test_blocks_that_are_left_out_are_not_read(
    spark: SparkSession, tmp_path: Path, layout: str, part: dict[str, Any]
) -> None:
    """Bytes of blocks that are not wanted may be wrong; those of blocks that are read may not."""
    directory = made(tmp_path / "data", layout)

    def read() -> list[tuple[int, float]]:
        rows = read_archive(spark, directory, "s", columns=["x"], **part).collect()
        return sorted((row["__position"], row["x"]) for row in rows)

    before = read()
    kept = blocks_read(directory, [position for position, _ in before])
    blocks = damaged(directory, kept)
    assert 0 < len(kept) <= 0.5 * blocks
    assert read() == before
    with pytest.raises(Exception, match="checksum"):
        read_archive(spark, directory, "s", columns=["x"]).collect()


def test_the_coarsest_copy_that_is_fine_enough_is_read_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whichever file gives them: a reduction always comes to the same rows."""
    directory = made(tmp_path / "data", "eager(0.5, 0.9)")
    files = list((directory / "runs").rglob("*.parquet"))
    own = [file for file in files if "-r" not in file.name]
    half = [file for file in files if "-r0.5" in file.name]
    assert len(own) == len(half) > 1
    assert len(files) == 3 * len(own)

    def read(reduction: float) -> list[tuple[int, float, float]]:
        frame = read_archive(spark, directory, "s", columns=["x"], reduction=reduction)
        return sorted((row["__position"], row["x"], row[SHARE]) for row in frame.collect())

    before = {reduction: read(reduction) for reduction in (0.3, 0.5, 0.75, 0.95)}
    assert all(len(rows) > ROWS // 40 for rows in before.values())
    assert {row[0] for row in before[0.95]} < {row[0] for row in before[0.75]}
    aside = tmp_path / "aside"
    aside.mkdir()
    for file in own:
        file.rename(aside / file.name)
    assert {reduction: read(reduction) for reduction in (0.5, 0.75, 0.95)} == {
        reduction: before[reduction] for reduction in (0.5, 0.75, 0.95)
    }
    with pytest.raises(Exception, match=r"No such file|missing"):
        read(0.3)
    for file in own:
        (aside / file.name).rename(file)
    for file in half:
        file.write_bytes(b"damaged")
    assert read(0.75) == before[0.75]


def test_what_makes_no_sense_is_refused_with_words(spark: SparkSession, tmp_path: Path) -> None:
    directory = made(tmp_path / "data", "plain")
    with pytest.raises(BadReduction, match=r"reduction is 1.0; it must be in \[0, 1\)"):
        read_archive(spark, directory, "s", reduction=1.0)
    with pytest.raises(UnknownColumn, match="no column 'y'"):
        read_archive(spark, directory, "s", columns=["y"])
    with pytest.raises(UnknownStream):
        read_archive(spark, directory, "t")
