"""Files that grow, loads that are interrupted anywhere, in any order: each row is stored once."""

from __future__ import annotations

import io
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shedder
from shedder.cli.files.contents import Digest
from shedder.cli.files.event_order import SortLimits
from shedder.cli.files.formats import FileFormat, format_of
from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.loading.load_history import Member
from shedder.cli.loading.load_identity import FileIdentity, producer_of
from shedder.cli.loading.load_progress import shown_progress
from shedder.cli.loading.load_sources import LoadOptions, sources
from shedder.cli.loading.loads import FileLoad, spooled
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.engine.ingest.producer_sequences import NUMBER_MAX
from shedder.errors import (
    FailedPrecondition,
    ProducerForgotten,
    SchemaMismatch,
    ShedderError,
    Unavailable,
)
from tests.cli.loading.interrupted import Fault, load
from tests.cli.worlds import rows_in

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "c"]
FAULTS = st.none() | st.tuples(st.integers(0, 14), st.booleans())
GROWTH = st.tuples(st.sampled_from(NAMES), st.lists(st.integers(0, 99), min_size=1, max_size=6))
COPY = st.tuples(st.sampled_from(NAMES), st.integers(0, 9))  # Pushes content that was stored.
PUSH = st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), st.booleans(), FAULTS)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with shedder.open(tmp_path_factory.mktemp("data")) as opened:
        yield opened


class World:
    """Files that grow, and one stream that they are loaded into.

    alternates: whether each load has other options than the one before, which read the same rows.
    """

    def __init__(
        self, database, directory: Path, stream: str, *, sorts: bool, alternates: bool = False
    ) -> None:
        self.database = database
        self.directory = directory
        self.stream = stream
        self.sorts = sorts
        self.alternates = alternates
        self.rows: dict[str, list[str]] = {}
        self.loaded: list[tuple[str, int]] = []  # Names and rows of files, some of them stored.
        self.loads = 0
        text = "ts TIMESTAMP NOT NULL, x VARCHAR"
        database.execute(f"CREATE STREAM {stream} ({text}) TIMESTAMP BY ts")

    def grow(self, name: str, seconds: list[int]) -> None:
        rows = self.rows.setdefault(name, [])
        rows += [
            f"2024-01-01 00:{at // 60:02}:{at % 60:02},{name}{len(rows) + n}"
            for n, at in enumerate(seconds)
        ]

    def path(self, name: str, count: int) -> Path:
        path = self.directory / f"{self.stream}-{name}.csv"
        path.write_text("ts,x\n" + "".join(f"{row}\n" for row in self.rows[name][:count]))
        return path

    def push(self, names: list[str], fault: Fault, *, resumes: bool) -> None:
        now = [(name, len(self.rows[name])) for name in names]
        try:
            self.push_contents(now, fault, resumes=resumes)
        finally:
            begun = self.stored()
            self.loaded += [
                (name, count)
                for name, count in now
                if begun.keys() & {row.partition(",")[2] for row in self.rows[name][:count]}
            ]

    def push_contents(
        self, contents: list[tuple[str, int]], fault: Fault, *, resumes: bool
    ) -> None:
        files = [RowFile(self.path(*each), FileFormat.CSV) for each in contents]
        limits = SortLimits(batch_rows=2)
        given, other = ("", "/other") if self.loads % 2 and self.alternates else ("/other", "")
        options = LoadOptions("file", self.sorts, resumes, limits=limits)
        self.loads += 1
        place = self.directory / f"{self.stream}-{self.loads}"
        place.mkdir()
        load(self.database, self.stream, files, options, place, fault, (given, other))

    def stored(self) -> Counter[str]:
        return Counter(rows_in(self.database, self.stream)["x"].to_pylist())

    def written(self) -> set[str]:
        return {row.partition(",")[2] for rows in self.rows.values() for row in rows}


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(GROWTH | PUSH | COPY, max_size=8), sorts=st.booleans(), alternates=st.booleans()
)
@example(
    steps=[("a", [1, 2, 3]), (["a"], False, (1, True)), ("a", [5])], sorts=True, alternates=False
)
@example(
    steps=[("a", [3, 1, 2]), (["a"], False, (0, True)), ("a", [5, 4])], sorts=True, alternates=True
)
@example(
    steps=[
        ("a", [1, 2, 3, 4]),
        (["a"], False, None),
        ("a", [5, 6, 7, 8]),
        (["a"], True, (1, True)),
        (["a"], False, None),
    ],
    sorts=True,
    alternates=True,
)
@example(
    steps=[("b", [0]), ("a", [0, 1]), (["a", "b"], False, None), (["b", "a"], False, None)],
    sorts=True,
    alternates=True,
)
@example(
    steps=[
        ("a", [1, 5, 9, 3]),
        ("b", [2, 4, 6]),
        (["a", "b"], False, (2, True)),
        (["a"], True, None),
    ],
    sorts=True,
    alternates=True,
)
@example(
    steps=[
        ("a", [1, 2, 3, 4]),
        (["a"], False, None),
        ("a", [5, 6, 7]),
        (["a"], True, None),
        ("a", [8, 9, 10]),
        (["a"], True, None),
        ("a", 1),
    ],
    sorts=True,
    alternates=True,
)
@example(
    steps=[
        ("a", [1, 2, 3, 4]),
        (["a"], False, None),
        ("a", [5, 6, 7, 8, 9]),
        (["a"], True, (3, True)),
        ("a", [10, 11]),
        (["a"], True, None),
    ],
    sorts=True,
    alternates=True,
)
@example(
    steps=[
        ("a", [1, 5, 9, 3]),
        ("b", [2, 4, 6]),
        (["a", "b"], False, (6, True)),
        ("a", [10, 11]),
        (["a"], True, None),
        (["b"], True, None),
        (["a", "b"], True, None),
    ],
    sorts=True,
    alternates=True,
)
@example(
    steps=[
        ("a", [1, 5, 9, 3]),
        ("b", [2, 4, 6]),
        (["a", "b"], False, (2, True)),
        (["b"], False, None),
        ("b", [7]),
    ],
    sorts=True,
    alternates=True,
)
def test_each_row_is_stored_once(database, tmp_path_factory, steps, sorts, alternates):
    directory = tmp_path_factory.mktemp("files")
    stream = f"s{directory.name.replace('-', '')}"
    world = World(database, directory, stream, sorts=sorts, alternates=alternates)
    interrupted = []
    for step in steps:
        if isinstance(step[1], list):
            world.grow(*step)
            continue
        before = world.stored()
        if isinstance(step[1], int):
            if copies := [each for each in world.loaded if each[0] == step[0]]:
                with suppress(FailedPrecondition):  # The load of the copy was interrupted.
                    world.push_contents([copies[step[1] % len(copies)]], Fault(), resumes=False)
        else:
            names, resumes, fault = step
            known = [name for name in names if name in world.rows]
            contents = [(name, len(world.rows[name])) for name in known]
            lost = Fault() if fault is None else Fault(*fault)
            try:
                world.push(known, lost, resumes=resumes)
            except FailedPrecondition:
                assert before <= world.stored()
            except ShedderError:
                assert lost.push is not None
                interrupted.append(contents)
        assert all(count == 1 for count in world.stored().values())
    if world.rows:
        try:
            world.push(list(world.rows), Fault(), resumes=True)
        except (
            FailedPrecondition
        ):  # Says that loads are to be repeated with the files as they were.
            for contents in interrupted:
                with suppress(FailedPrecondition):
                    world.push_contents(contents[::-1], Fault(), resumes=True)
            world.push(list(world.rows), Fault(), resumes=True)
        assert world.stored() == Counter(world.written())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_load_that_is_interrupted_at_each_push_is_completed(
    database, tmp_path, count, is_stored, names
):
    stream = f"t{count}{'s' if is_stored else 'l'}{len(names)}"
    world = World(database, tmp_path, stream, sorts=True)
    for at, name in enumerate(names):
        world.grow(name, [(5 * n + 3 * at) % 11 for n in range(count)])
    push = 0
    while True:
        fault = Fault(push, is_stored)
        try:
            world.push(names, fault, resumes=False)
            break
        except ShedderError:
            push += 1
    world.push(names, Fault(), resumes=False)
    assert world.stored() == Counter(world.written())
    assert push >= min(count, 3)


@pytest.mark.parametrize("is_stored", [False, True])
def test_files_that_begin_alike_are_stored_once_and_a_copy_that_was_never_loaded_is_refused(
    database, tmp_path, is_stored
):
    world = World(database, tmp_path, f"alike_{is_stored}", sorts=True)
    world.grow("a", [3, 1, 4, 1, 5])
    world.rows["b"] = [world.rows["a"][0], "2024-01-01 00:00:02,b1", "2024-01-01 00:00:06,b2"]
    for push in range(99):
        try:
            world.push(["b", "a"], Fault(push, is_stored), resumes=False)
            break
        except Unavailable:
            continue
    expected = Counter({"a0": 2, "a1": 1, "a2": 1, "a3": 1, "a4": 1, "b1": 1, "b2": 1})
    assert world.stored() == expected
    for count in (2, 4):
        with pytest.raises(FailedPrecondition, match="may have been loaded before"):
            world.push_contents([("a", count)], Fault(), resumes=True)
    assert world.stored() == expected


def test_a_load_of_a_grown_file_that_fails_says_how_many_of_its_rows_are_stored(
    database, tmp_path, capfd
):
    world = World(database, tmp_path, "said", sorts=True)
    world.grow("a", [*range(6)])
    with pytest.raises(ShedderError):
        world.push(["a"], Fault(4, is_stored=True), resumes=False)
    world.grow("a", [*range(6, 11)])
    said = []
    for push in range(99):
        capfd.readouterr()
        try:
            world.push(["a"], Fault(push), resumes=True)
            break
        except ShedderError:
            ((at_least, total),) = re.findall(
                "at least ([0-9]+) of ([0-9]+) rows", capfd.readouterr().err
            )
            assert int(at_least) <= world.stored().total()
            said.append((int(at_least), int(total)))
    assert world.stored() == Counter(world.written())
    assert all(at_least <= total for at_least, total in said)
    assert {total for _, total in said} == {11, 5}  # Both parts; then the new one alone.


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_load_that_was_forgotten_is_refused_and_smaller_files_are_not(tmp_path, count):
    limits = ProducerLimits(bytes_max=1, evicted_max=4)
    with Engine.open(tmp_path / "data", producer_limits=limits) as database:
        world = World(database, tmp_path, "s", sorts=True)
        world.grow("a", [*range(count)])
        world.push(["a"], Fault(), resumes=False)
        row = {"ts": [datetime(2024, 1, 1, tzinfo=UTC)], "x": ["other"]}
        for turn in range(8):
            database.push("s", row, producer=f"other {turn}", sequence=0)
        with pytest.raises(ProducerForgotten, match="--producer NAME"):
            world.push(["a"], Fault(), resumes=False)
        del world.rows["a"]
        world.grow("b", [5])
        world.push(["b"], Fault(), resumes=False)
        assert world.stored()["other"] == 8
        assert world.stored()["b0"] == 1
        assert database.ledger("s").applied == count + 9


@pytest.mark.parametrize("sorts", [False, True])
def test_rows_that_are_appended_during_a_load_are_stored_by_the_next_one(database, tmp_path, sorts):
    world = World(database, tmp_path, f"growing_{sorts}", sorts=sorts)
    world.grow("a", [3, 1, 2])
    path = world.path("a", 3)
    options = LoadOptions("file", sorts, resumes=True)
    schema = database.schema(world.stream)
    reading = FileColumns({column.name: column.type for column in schema.columns})
    found = sources(database, world.stream, [RowFile(path, FileFormat.CSV)], options, [[""]])
    world.grow("a", [7, 5])
    world.path("a", 5)
    made = spooled(found.files, reading, schema, options, tmp_path, shown_progress)
    FileLoad(database, world.stream, "ts", options).run([made], shown_progress)
    assert sorted(world.stored()) == ["a0", "a1", "a2"]
    world.push(["a"], Fault(), resumes=True)
    assert world.stored() == Counter(world.written())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ndjson", '\n\n{"x": "a"}\n{"ts": "2024-01-01", "x": "b"}\n{"ts": "2024-01-01"}\n\n'),
        ("a.csv", "ts,x\n,a\n1,2,3\n,b\n2024-01-01,c\n2024-01-01,\n4,5,6\n,d\n"),
    ],
)
def test_rows_that_a_stream_refuses_are_named_by_their_numbers_in_the_file(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    columns = {"ts": ColumnType.TIMESTAMP, "x": ColumnType.VARCHAR}
    defined = tuple(ColumnDefinition(*column, nullable=False) for column in columns.items())
    schema = StreamSchema("s", defined, "ts", 0, None, DEFAULT_LAYOUT, seed=0)
    options = LoadOptions("file", bad_rows=io.StringIO())
    files = sources(None, "s", [RowFile(path, format_of(path))], options, [[""]]).files
    with pytest.raises(SchemaMismatch, match=rf"{name}, rows 4 to 5: "):
        spooled(files, FileColumns(columns, moment="ts"), schema, options, tmp_path, shown_progress)


@pytest.mark.parametrize("begin", ["[\n {", "\n[\n{"])
def test_json_arrays_that_begin_alike_are_separate_files(database, tmp_path, capfd, begin):
    world = World(database, tmp_path, f"arrays{begin.index(chr(91))}", sorts=True)
    options = LoadOptions("file")
    schema = database.schema(world.stream)
    reading = FileColumns({column.name: column.type for column in schema.columns})
    for count in (3, 1, 2):
        path, place = tmp_path / "a.json", tmp_path / str(count)
        rows = [f'"ts": "2024-01-01T00:00:0{at}Z", "x": "{at}"}}' for at in range(count)]
        path.write_text(begin + ", {".join(rows) + "]")
        place.mkdir()
        found = sources(database, world.stream, [RowFile(path, FileFormat.NDJSON)], options, [[""]])
        made = spooled(found.files, reading, schema, options, place, shown_progress)
        FileLoad(database, world.stream, "ts", options).run([made], shown_progress)
    assert world.stored() == {"0": 3, "1": 2, "2": 1}
    assert capfd.readouterr().err == ""


def test_files_of_one_load_with_other_options_have_another_producer():
    """The producer had the options of the first file alone: rows of the second could be lost."""
    first, second = (
        FileIdentity("a", Digest(letter * 64, 1, None), "file", "") for letter in ("a", "b")
    )
    loads = [[first, replace(second, options=options)] for options in ("", "/1", "/2")]
    assert len({producer_of(load) for load in loads}) == 3


@pytest.mark.parametrize("size_bytes", [1, 1 << 38, 1 << 40, 1 << 50])
def test_a_file_of_any_size_has_a_number_that_a_server_takes_as_an_epoch(size_bytes):
    digest = Digest(sha256="f" * 64, size_bytes=size_bytes, head=None)
    assert 0 < Member.of(digest, has_grown=True).number < NUMBER_MAX
