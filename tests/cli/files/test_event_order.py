"""Rows of files come out in order of event time, all of them, in batches that rows alone decide."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cli.files.event_order import SortLimits, Spool, as_given, cut, in_order, together
from shedder.errors import ResourceExhausted

SCHEMA = pa.schema(
    [pa.field("Ts", pa.timestamp("us"), nullable=False), ("ts", pa.string()), ("x", pa.int64())]
)


def spool(path, rows: list[tuple[int, str | None]], first: int = 0, size: int = 7) -> Spool:
    made = Spool(path, SCHEMA, "Ts", first)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        numbers = [first + start + at for at in range(len(part))]
        columns = [pa.array([time for time, _ in part], pa.timestamp("us"))]
        columns += [pa.array([text for _, text in part], pa.string()), pa.array(numbers)]
        made.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    made.close()
    return made


def table(batches) -> list[tuple[int, str | None, int]]:
    whole = pa.Table.from_batches(list(batches), SCHEMA)
    times = whole["Ts"].cast(pa.int64()).to_pylist()
    return list(zip(times, whole["ts"].to_pylist(), whole["x"].to_pylist(), strict=True))


ROWS = st.lists(
    st.tuples(st.integers(-(2**40), 2**40) | st.integers(0, 5), st.none() | st.text(max_size=3)),
    max_size=30,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)  # Each example sorts in DuckDB.
@given(files=st.lists(ROWS, min_size=1, max_size=4))
def test_sorted_rows_are_those_of_a_stable_sort(tmp_path_factory, files):
    directory = tmp_path_factory.mktemp("spools")
    spools, given = [], []
    for at, rows in enumerate(files):
        spools.append(spool(directory / f"{at}.rows", rows, len(given)))
        given += [(time, text, len(given) + n) for n, (time, text) in enumerate(rows)]
    groups = together(spools)
    got = [row for group in groups for row in table(in_order(group, "Ts"))]
    assert [time for time, _, _ in got] == sorted(time for time, _, _ in given)
    for group in groups:
        wanted = [row for each in group for row in table(each.batches())]
        assert table(in_order(group, "Ts")) == sorted(wanted, key=lambda row: row[0])
        assert table(as_given(group)) == wanted
    assert sorted(got, key=lambda row: row[2]) == given


def test_files_whose_times_overlap_are_one_group(tmp_path):
    spans = {"c": [5, 9], "a": [0, 3], "b": [2, 5], "empty": [], "d": [20, 30], "e": [21, 22]}
    spools = {
        name: spool(tmp_path / name, [(time, None) for time in times])
        for name, times in spans.items()
    }
    names = {id(each): name for name, each in spools.items()}
    groups = together(list(spools.values()))
    assert [[names[id(each)] for each in group] for group in groups] == [
        ["a", "b"],
        ["c"],
        ["d", "e"],
    ]


def test_a_sort_beyond_its_memory_is_made_on_disk(tmp_path):
    rows = [(-(time * 7919) % 80_000, f"{time:0200}") for time in range(80_000)]
    made = spool(tmp_path / "a.rows", rows, size=5_000)
    limits = SortLimits(memory_bytes=24 << 20, threads=1)
    batches = in_order([made], "Ts", limits)
    first = next(batches)
    assert list((tmp_path / "a.sort").iterdir())
    got = table([first, *batches])
    assert [time for time, _, _ in got] == sorted(time for time, _ in rows)


def test_a_sort_that_fails_names_its_directory_and_a_remedy_that_stores_no_row_twice(tmp_path):
    made = spool(tmp_path / "a.rows", [(-time, "x" * 200) for time in range(5_000)])
    with pytest.raises(ResourceExhausted, match=rf"sorted in {tmp_path}: .*TMPDIR") as raised:
        table(in_order([made], "Ts", SortLimits(memory_bytes=1 << 16, threads=1)))
    assert "--no-sort" not in str(raised.value)  # Rows of other groups are stored already.


def test_a_spool_without_room_names_its_directory_and_the_remedy(tmp_path):
    (tmp_path / "a.rows").symlink_to("/dev/full")
    with pytest.raises(ResourceExhausted, match=rf"{tmp_path}: No space left.*TMPDIR"):
        spool(tmp_path / "a.rows", [(1, None)])


@pytest.mark.parametrize("sizes", [[1, 2, 3, 4], [10], [3, 3, 3, 1], [9, 1]])
def test_batches_have_the_same_rows_however_they_came(sizes):
    rows = iter(range(10))
    batches = [pa.RecordBatch.from_pydict({"x": list(islice(rows, size))}) for size in sizes]
    got = [batch.column(0).to_pylist() for batch in cut(iter(batches), 4)]
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_disorder_is_the_most_that_a_row_is_too_early(tmp_path):
    times = [(10, None), (30, None), (5, None), (40, None), (39, None)]
    assert spool(tmp_path / "a", times, size=2).disorder_us == 25
    assert spool(tmp_path / "b", sorted(times, key=lambda row: row[0])).disorder_us == 0
