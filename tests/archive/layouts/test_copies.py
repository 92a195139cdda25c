"""Eager and lazy layouts: copies are nested random samples, scans take the one that suits them."""

import math

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.archive_store import Store
from shedder.archive.catalog.run_annotations import SCANS_MIN
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.copies import places_of
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.operations.backup import restore
from shedder.archive.operations.scrub import scrub
from shedder.archive.operations.verify import check
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Eager, Hybrid, Lazy, Plain
from shedder.errors import BadQuery
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import ingest, opened, part_blocks, positions, recover

ROWS = 2000
WANTED = Wanted("ts", ("serial", POSITION))


def scan(store: Store, reduction: float) -> list[tuple[float, list[int]]]:
    """Of each run, the reduction that was given and the tuples that were read; marks are noted."""
    with store.snapshot(1) as snapshot:
        parts = [part_of(run, reduction) for run in snapshot.runs]
        found = []
        for part in parts:
            blocks = part_blocks(snapshot, part, WANTED)
            serial = [n for block in blocks for n in block.table["serial"].to_pylist()]
            assert [n for b in blocks for n in b.table[POSITION].to_pylist()] == serial
            found.append((part.reduction, sorted(serial)))
    store.layouts.note_scans([(part, reduction) for part in parts])
    return found


def vacuum(store: Store) -> int:
    return sum(store.layouts.vacuum(run) for run in store.layouts.waste(1))


def expected(first: int, end: int, reduction: float) -> list[int]:
    numbers = np.arange(first, end)
    return numbers[places_of(SCHEMA.seed, numbers) >= reduction].tolist()


def test_eager_copies_are_nested_samples_of_the_run(tmp_path):
    store = opened(tmp_path, Eager((0.0, 0.5, 0.9)), ROWS, 300)
    for run in store.runs(1):
        assert [copy.reduction for copy in run.copies] == [0.0, 0.5, 0.9]
        for copy in run.copies:
            kept = expected(run.first_position, run.end_position, copy.reduction)
            assert copy.rows == len(kept)
            slack = 6 * math.sqrt(run.rows * copy.reduction * (1 - copy.reduction))
            assert abs(copy.rows - run.rows * (1 - copy.reduction)) <= slack
    assert positions(store) == list(range(ROWS + 300))
    store.close()
    assert check(tmp_path).ok


@pytest.mark.parametrize(
    ("wanted", "given"), [(0.0, 0.0), (0.49, 0.0), (0.5, 0.5), (0.89, 0.5), (0.9, 0.9), (0.99, 0.9)]
)
def test_an_eager_scan_takes_the_next_finer_copy(tmp_path, wanted, given):
    store = opened(tmp_path, Eager((0.5, 0.9)), ROWS)
    ((reduction, serial),) = scan(store, wanted)
    assert reduction == given
    assert serial == expected(0, ROWS, given)
    store.close()


def test_a_copy_without_a_tuple_gives_way_to_a_finer_one(tmp_path):
    store = opened(tmp_path, Eager((0.5, 0.999)), 20)
    (run,) = store.runs(1)
    assert run.copies[1].rows == 0
    ((reduction, serial),) = scan(store, 0.9999)
    assert (reduction, serial) == (0.5, expected(0, 20, 0.5))
    with store.snapshot(1) as snapshot:
        (block,) = snapshot.files.read_blocks(run.of_copy(run.copies[1]), [0], WANTED)
    assert (block.rows, block.table.num_rows) == (0, 0)
    assert block.table.schema.names == list(WANTED.columns)
    store.close()
    assert check(tmp_path).ok


def test_hybrid_and_plain_give_what_they_can(tmp_path):
    store = opened(tmp_path / "h", Hybrid(8, 1), ROWS)
    (run,) = store.runs(1)
    for wanted, blocks in [(0.0, 8), (0.1, 8), (0.125, 7), (0.5, 4), (0.6, 4), (0.875, 1)]:
        part = part_of(run, wanted)
        assert part.blocks == tuple(range(blocks))
        assert part.reduction == 1 - blocks / 8 <= wanted
    assert part_of(run, 0.99).blocks == (0,)
    ((_, serial),) = scan(store, 0.75)
    assert len(serial) == ROWS / 4
    store.close()
    store = opened(tmp_path / "p", Plain(), ROWS)
    assert scan(store, 0.9) == [(0.0, list(range(ROWS)))]
    assert store.layouts.waste(1) == []
    store.close()


@pytest.mark.parametrize("reduction", [-0.1, 1.0, 1.5, math.nan, math.inf])
def test_no_scan_leaves_out_all_or_more_than_that(tmp_path, reduction):
    store = opened(tmp_path, Hybrid(2, 1), 10)
    with pytest.raises(BadQuery, match=r"a reduction is in \[0, 1\)"):
        part_of(store.runs(1)[0], reduction)
    store.close()


def test_lazy_marks_build_compact_and_purge(tmp_path):
    """Figure 7 of the paper: 50 %, vacuum, 75 %, vacuum."""
    store = opened(tmp_path, Lazy(), ROWS)
    assert scan(store, 0.5) == [(0.0, list(range(ROWS)))]
    assert vacuum(store) == 1
    assert scan(store, 0.75) == [(0.5, expected(0, ROWS, 0.5))]
    before = store.runs(1)[0].copies[0]
    assert vacuum(store) == 1
    assert scan(store, 0.8) == [(0.75, expected(0, ROWS, 0.75))]
    (after,) = store.runs(1)[0].copies
    assert after.size_bytes < before.size_bytes
    assert not (tmp_path / "runs" / before.file).exists()
    assert scan(store, 0.0) == [(0.0, list(range(ROWS)))]
    assert positions(store) == list(range(ROWS))
    store.close()
    assert check(tmp_path).ok


def test_marks_survive_a_restart(tmp_path):
    store = opened(tmp_path, Lazy(), ROWS, 10)
    scan(store, 0.5)
    store.close()
    store = recover(tmp_path)
    assert len(store.layouts.waste(1)) == 2
    assert vacuum(store) == 2
    assert vacuum(store) == 0
    store.close()
    store = recover(tmp_path)
    assert store.layouts.waste(1) == []
    assert [reduction for reduction, _ in scan(store, 0.5)] == [0.5, 0.5]
    store.close()


def test_what_arrives_later_goes_to_the_copy_too(tmp_path):
    store = opened(tmp_path, Lazy(), ROWS)
    scan(store, 0.5)
    vacuum(store)
    ingest(store, ROWS, 500)
    store.cut(1)
    assert scan(store, 0.5)[1] == (0.5, expected(ROWS, ROWS + 500, 0.5))
    store.close()


def test_a_copy_that_too_many_scans_miss_is_dropped_and_built_again(tmp_path):
    store = opened(tmp_path, Lazy(), ROWS)
    scan(store, 0.9)
    vacuum(store)
    for _ in range(SCANS_MIN - 1):
        assert scan(store, 0.2)[0][0] == 0.0  # back to the original, which is not changed
    assert vacuum(store) == 0
    scan(store, 0.2)
    assert vacuum(store) == 1
    assert store.runs(1)[0].copies == ()
    scan(store, 0.2)
    vacuum(store)
    assert scan(store, 0.2)[0][0] == 0.2
    store.close()
    assert check(tmp_path).notes == []


def test_a_copy_that_most_scans_use_stays(tmp_path):
    store = opened(tmp_path, Lazy(), ROWS)
    scan(store, 0.5)
    vacuum(store)
    for reduction in [0.5, 0.2] * 6:
        scan(store, reduction)
    assert vacuum(store) == 0
    assert store.runs(1)[0].copies
    store.close()


@pytest.mark.parametrize("layout", [Eager((0.5, 0.9)), Lazy()], ids=str)
def test_a_damaged_copy_is_left_out_and_dropped_by_the_scrub(tmp_path, layout):
    store = opened(tmp_path, layout, ROWS)
    scan(store, 0.5)
    vacuum(store)
    copy = store.runs(1)[0].copies[0]
    path = tmp_path / "runs" / copy.file
    data = bytearray(path.read_bytes())
    for offset in range(100, len(data), 64):
        data[offset] ^= 1
    path.write_bytes(data)
    assert scan(store, 0.6) == [(0.5, expected(0, ROWS, 0.5))]  # Out of the run itself.
    assert scrub(store).damaged == []
    assert copy not in store.runs(1)[0].copies
    assert not path.exists()
    assert [store.layouts.rewrite(run) for run in store.layouts.unlike(1)] == [True] * isinstance(
        layout, Eager
    )
    if isinstance(layout, Eager):
        assert scan(store, 0.6) == [(0.5, expected(0, ROWS, 0.5))]
    store.close()
    assert check(tmp_path).ok


def test_a_missing_copy_is_found_by_check_and_is_no_loss(tmp_path):
    store = opened(tmp_path, Eager((0.5,)), 100)
    (copy,) = store.runs(1)[0].copies
    store.close()
    (tmp_path / "runs" / copy.file).unlink()
    report = check(tmp_path)
    (note,) = report.notes
    assert copy.file in note
    assert report.ok
    restore(tmp_path, tmp_path.parent / f"{tmp_path.name} again")
    store = recover(tmp_path)
    assert scan(store, 0.5) == [(0.5, expected(0, 100, 0.5))]
    store.close()


def test_retention_and_dropping_take_the_copies_along(tmp_path):
    store = opened(tmp_path, Eager((0.5,)), 10, 10)
    store.retention.apply(1, 10_000)
    assert len(list((tmp_path / "runs" / "1").iterdir())) == 2
    assert len(store.catalog.annotations.copies()) == 1
    store.drop_stream(1)
    assert list((tmp_path / "runs" / "1").iterdir()) == []
    assert store.catalog.annotations.copies() == {}
    store.close()


def test_a_copy_gives_an_unbiased_mean_with_the_variance_of_a_simple_random_sample(tmp_path):
    """Over 400 stretches of the same numbers: (mean - truth) / deviation has variance about 1."""
    rows, reduction = 200, 0.7
    scores = []
    for first in range(0, 400 * rows, rows):
        kept = np.array(expected(first, first + rows, reduction)) - first
        truth = np.arange(rows)
        deviation = math.sqrt(truth.var(ddof=1) / kept.size * (1 - kept.size / rows))
        scores.append((kept.mean() - truth.mean()) / deviation)
    assert abs(np.mean(scores)) < 5 / math.sqrt(400)
    assert 0.7 < np.var(scores) < 1.4


def test_places_are_uniform_and_not_those_of_the_live_sample():
    from synopses.kernels.hashing import position_keys, uniforms

    places = places_of(5, np.arange(100_000))
    live = uniforms(position_keys(5, 0, 100_000))
    assert abs(np.corrcoef(places, live)[0, 1]) < 0.02
    assert abs(np.histogram(places, 10, (0, 1))[0] - 10_000).max() < 600
    assert pa.array(places).null_count == 0


@pytest.mark.parametrize("damage", ["rotten", "gone"])
def test_a_vacuum_that_meets_a_damaged_copy_makes_the_next_one_of_the_run_itself(tmp_path, damage):
    store = opened(tmp_path, Lazy(), ROWS)
    scan(store, 0.5)
    assert vacuum(store) == 1
    path = tmp_path / "runs" / store.runs(1)[0].copies[0].file
    if damage == "gone":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        for offset in range(100, len(data), 64):
            data[offset] ^= 1
        path.write_bytes(data)
    run = store.runs(1)[0]
    store.layouts.note_scans([(part_of(run, 0.8), 0.8)])
    assert vacuum(store) == 1
    assert scan(store, 0.8) == [(0.8, expected(0, ROWS, 0.8))]
    assert positions(store, 1) == list(range(ROWS))
    store.close()
