"""Rollups: they answer what all tuples would, whatever happens to them."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.archive.catalog.run_annotations import SCANS_MIN
from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, RollupExists, UnknownColumn, UnknownRollup, UnknownStream
from tests.engine.supervised import REWRITES, GatedFiles, Supervised, settle
from tests.fractions_of_columns import variance
from tests.scale import scaled

MINUTE_US = 60_000_000
COLUMNS = "(ts TIMESTAMP, g VARCHAR, f DOUBLE, x DOUBLE, i BIGINT, b BOOLEAN, d DATE)"
KEPT = """COUNT(*), COUNT(g), SUM(x), VAR(x), MIN(x), MAX(x), AVG(i), VAR(i), MIN(i), MAX(i),
    MIN(ts), MAX(ts), MIN(b), MAX(d)"""
LISTED = """COUNT(*) AS n, COUNT(g) AS ng, COUNT(x) AS nx, SUM(x) AS sx, AVG(x) AS ax, VAR(x) AS vx,
    STDDEV(x) AS dx, MIN(x) AS lx, MAX(x) AS hx, SUM(i) AS si, AVG(i) AS ai, VAR(i) AS vi,
    MIN(i) AS li, MAX(i) AS hi, MIN(ts) AS lt, MAX(ts) AS ht, MIN(b) AS lb, MAX(d) AS hd"""
CREATE_ROLLUP = "CREATE ROLLUP {} AS SELECT g, f, {} FROM {} [RANGE 1 MINUTE] GROUP BY g, f"


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """One engine for many examples; each makes streams of its own."""
    with Engine.open(tmp_path_factory.mktemp("rollups"), machine=Supervised()) as engine:
        yield engine, iter(range(1_000_000))


def table_of(rows: list[tuple]) -> pa.Table:
    times, g, f, x, i = (list(column) for column in zip(*rows, strict=True))
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "g": pa.array(g, pa.string()),
            "f": pa.array(f, pa.float64()),
            "x": pa.array(x, pa.float64()),
            "i": pa.array(i, pa.int64()),
            "b": pa.array([None if each is None else each % 2 == 0 for each in i], pa.bool_()),
            "d": pa.array([us // 86_400_000_000 for us in times], pa.int32()).cast(pa.date32()),
        }
    )


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isfinite(other):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return one == other


def assert_same(engine: Engine, question: str, rolled: str, plain: str):
    """Both streams give the same answer; returns that of the stream with rollups."""
    answer = engine.execute(question.format(rolled))
    truth = engine.execute(question.format(plain))
    assert truth.sources == ("archive",)
    names = answer.outputs
    found, wanted = (each.table.select(names).to_pylist() for each in (answer, truth))
    key = lambda row: repr([row[name] for name in names if name.startswith("k")])  # noqa: E731
    found, wanted = sorted(found, key=key), sorted(wanted, key=key)
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert all(same(mine[name], theirs[name]) for name in names), (mine, theirs)
    return answer


TIMES = st.integers(-5 * MINUTE_US, 20 * MINUTE_US) | st.sampled_from(
    [0, MINUTE_US - 1, MINUTE_US, 7 * MINUTE_US, -MINUTE_US]
)
DOUBLES = st.one_of(
    st.none(),
    st.floats(-1e6, 1e6),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.1, 1e12 + 0.5]),
)
INTEGERS = st.none() | st.integers(-100, 100) | st.sampled_from([2**62, -(2**63), 2**63 - 1])
ROWS = st.lists(
    st.tuples(
        TIMES,
        st.sampled_from(["a", "b", "", None]),
        st.sampled_from([None, math.nan, 0.5, math.inf]),
        DOUBLES,
        INTEGERS,
    ),
    min_size=3,
    max_size=60,
)
ENDS = st.none() | TIMES


@st.composite
def questions(draw: st.DrawFn) -> str:
    groups = draw(
        st.sampled_from(
            [
                "",
                "g",
                "f",
                "g, f",
                "UPPER(g)",
                "DATE_TRUNC('minute', ts)",
                "EXTRACT(HOUR FROM ts), g",
            ]
        )
    )
    where = draw(st.sampled_from(["", "WHERE g = 'a'", "WHERE g IS NULL OR f > 0", "WHERE FALSE"]))
    ends = sorted(end for end in (draw(ENDS), draw(ENDS)) if end is not None)
    window = ""
    if len(ends) == 2 and ends[0] < ends[1]:
        window = f"[FROM CAST({ends[0]} AS TIMESTAMP) TO CAST({ends[1]} AS TIMESTAMP)]"
    elif ends:
        window = f"[FROM CAST({ends[0]} AS TIMESTAMP)]"
    keys = [] if not groups else [f"{part} AS k{at}" for at, part in enumerate(_parts(groups))]
    outputs = ", ".join([*keys, LISTED])
    by = f" GROUP BY {groups}" if groups else ""
    return f"SELECT {outputs} FROM {{}} {window} {where}{by}"


def _parts(groups: str) -> list[str]:
    return [groups] if groups.startswith(("DATE_TRUNC", "UPPER")) else groups.split(", ")


@pytest.mark.slow
@settings(max_examples=scaled(8, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=ROWS,
    cuts=st.lists(st.integers(1, 99), min_size=1, max_size=3),
    layout=st.sampled_from(["plain", "hybrid(blocks=3, block_rows=2)"]),
    made=st.integers(0, 3),
    deleted=st.sampled_from([None, None, None, "g = 'a'", "i > 0"]),
    rebuilt=st.booleans(),
    queries=st.lists(questions(), min_size=2, max_size=4),
)
def test_a_rollup_answers_what_all_tuples_would(
    worlds, rows, cuts, layout, made, deleted, rebuilt, queries
):
    engine, numbers = worlds
    number = next(numbers)
    streams = [f"r{number}", f"p{number}"]
    for name in streams:
        engine.execute(f"CREATE STREAM {name} {COLUMNS} TIMESTAMP BY ts ARCHIVE {layout}")
    table = table_of(rows)
    places = [0, *sorted(-(-cut * len(rows) // 100) for cut in cuts), len(rows)]
    made = min(made, len(places) - 2)  # At the last: all of its runs are older.
    for at, (begin, end) in enumerate(pairwise(places)):
        if at == made:
            engine.execute(CREATE_ROLLUP.format(f"m{number}", KEPT, streams[0]))
        for name in streams:
            if begin < end:
                engine.push(name, table.slice(begin, end - begin))
            if at + 2 < len(places):
                engine.seal(name)
    settle(engine, REWRITES)
    if deleted is not None:
        for name in streams:
            engine.execute(f"DELETE FROM {name} WHERE {deleted}")
        if rebuilt:
            settle(engine, REWRITES)
    for question in queries:
        assert_same(engine, question, *streams)
    for name in streams:
        engine.execute(f"DROP STREAM {name}")


# --- a month of minutes, told ---------------------------------------------------------------------

COUNT = "SELECT g AS k, COUNT(*) AS n, SUM(i) AS s FROM {} GROUP BY g"


def numbered(first: int, end: int) -> pa.Table:
    """A row per second."""
    rng = np.random.default_rng(first)
    return table_of(
        [
            (n * 1_000_000, "abc"[n % 3], None, float(v), int(v))
            for n, v in zip(range(first, end), rng.integers(-9, 9, end - first), strict=True)
        ]
    )


def filled(directory, *, runs: int = 3, more: str = "", files: GatedFiles | None = None) -> Engine:
    """Streams s and p of the same rows, the first with a rollup."""
    engine = Engine.open(directory, machine=Supervised(files=files))
    for name in ("s", "p"):
        engine.execute(f"CREATE STREAM {name} {COLUMNS} TIMESTAMP BY ts ARCHIVE plain {more}")
    engine.execute(CREATE_ROLLUP.format("m", "COUNT(*), SUM(i)", "s"))
    for at in range(runs):
        for name in ("s", "p"):
            engine.push(name, numbered(at * 3_000, at * 3_000 + 3_000))
            engine.seal(name)
    return engine


def held(engine: Engine) -> AbstractContextManager[None]:
    """Hold all background writes until the block ends."""
    machine = engine.core.machine
    assert isinstance(machine, Supervised)
    return machine.held("shedder-relayout")


def shown(engine: Engine) -> dict:
    (row,) = engine.execute("SHOW ROLLUPS").table.to_pylist()
    return row


def rolled_of(engine: Engine) -> dict[str, int]:
    """How many runs have their partial aggregates, by rollup."""
    rows = engine.execute("SHOW ROLLUPS").table.to_pylist()
    return {row["rollup"]: row["runs_rolled"] for row in rows}


@pytest.mark.slow
def test_it_says_so(tmp_path):
    with filled(tmp_path) as engine:
        answer = assert_same(engine, COUNT, "s", "p")
        assert answer.sources == ("rollup m",)
        assert answer.archive_share_read == 0.0
        (note,) = answer.notes
        assert "450 rows for 3 of 3 runs; 0 of 9,000 tuples are read" in note
        plan = "\n".join(engine.execute(f"EXPLAIN {COUNT.format('s')}").table["plan"].to_pylist())
        assert "source:    the rollup m, exactly" in plan
        within = COUNT.format("s") + " WITHIN 1 PERCENT"
        assert engine.execute(within).sources == ("rollup m",)
        row = shown(engine)
        assert (row["rollup"], row["stream"], row["runs_rolled"], row["runs"]) == ("m", "s", 3, 3)
        assert row["rows"] == 450
        other = engine.execute("SELECT QUANTILE(i, 0.5) AS q FROM s")
        assert other.sources == ("archive",)
        engine.push("s", numbered(9_000, 9_100))
        engine.push("p", numbered(9_000, 9_100))
        assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m",)
        window = " [FROM TIMESTAMP '1970-01-01 00:00:30' TO TIMESTAMP '1970-01-01 02:00:30']"
        edged = COUNT.replace("{}", "{}" + window)
        answer = assert_same(engine, edged, "s", "p")
        assert answer.sources == ("rollup m", "archive")
        assert 0.0 < answer.archive_share_read < 1.0
    assert check(tmp_path).ok


@pytest.mark.slow
def test_variances_of_numbers_beyond_doubles_have_their_digits(tmp_path):
    """Runs of numbers within 1,000 of 2^62, whose means doubles do not tell apart."""
    numbers = 2**62 + np.random.default_rng(4).integers(0, 1000, 3_000)
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        engine.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts ARCHIVE plain")
        engine.execute(CREATE_ROLLUP.format("m", "COUNT(*), VAR(i)", "s"))
        for first in range(0, 3_000, 1_000):
            values = numbers[first : first + 1_000].tolist()
            rows = [(n * 1_000_000, None, None, 0.0, v) for n, v in enumerate(values, first)]
            engine.push("s", table_of(rows))
            engine.seal("s")
        answer = engine.execute("SELECT VAR(i) AS v FROM s")
        assert answer.sources == ("rollup m",)
        [row] = answer.table.to_pylist()
        assert row["v_bound"] == "exact"
        assert row["v"] == pytest.approx(variance(numbers), rel=1e-13)


@pytest.mark.slow
def test_late_tuples_are_in_the_run_in_which_they_came(tmp_path):
    with filled(tmp_path) as engine:
        for name in ("s", "p"):
            engine.push(name, numbered(100, 400))
            engine.seal(name)
        hour = " [FROM TIMESTAMP '1970-01-01 00:00:00' TO TIMESTAMP '1970-01-01 01:00:00']"
        answer = assert_same(engine, COUNT.replace("{}", "{}" + hour), "s", "p")
        assert sum(answer.table["n"].to_pylist()) == 3_900
        assert answer.sources[0] == "rollup m"


@pytest.mark.slow
def test_what_is_deleted_is_in_no_answer(tmp_path):
    with filled(tmp_path) as engine:
        with held(engine):  # Background writes are held.
            for name in ("s", "p"):
                engine.execute(f"DELETE FROM {name} WHERE i < 0")
            assert shown(engine)["runs_rolled"] == 0
            assert assert_same(engine, COUNT, "s", "p").sources == ("archive",)
        settle(engine, REWRITES)
        assert shown(engine)["runs_rolled"] == 3
        assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m",)
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_retention_takes_them_with_their_runs(tmp_path):
    with filled(tmp_path, more="RETAIN INTERVAL '1' HOUR") as engine:
        for name in ("s", "p"):
            engine.push(name, numbered(9_000, 9_100))
            engine.seal(name)
        before = engine.core.store.runs(1)
        engine.core.executor.call(engine.checkpoints.tidy).result()
        kept = engine.core.store.runs(1)
        assert 0 < len(kept) < len(before)
        assert shown(engine)["runs_rolled"] == len(kept)
        assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m",)
        left = {f"1/{path.name}" for path in (tmp_path / "runs" / "1").iterdir()}
        assert left == {name for run in kept for name in run.files}
        assert len(left) == 2 * len(kept)
    assert check(tmp_path).notes == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["rot", "missing"])
def test_a_damaged_file_is_left_aside_and_made_anew(tmp_path, harm):
    filled(tmp_path).close()
    path = sorted((tmp_path / "runs" / "1").glob("*-w1.parquet"))[1]
    if harm == "rot":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    else:
        path.unlink()
    (note,) = check(tmp_path).notes
    assert path.name in note
    assert "SCRUB drops it" in note
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        answer = assert_same(engine, COUNT, "s", "p")
        assert answer.sources == ("rollup m", "archive")
        assert answer.notes[0] == "rollup m is damaged in 1 runs, which were read themselves"
        settle(engine, REWRITES)
        answer = assert_same(engine, COUNT, "s", "p")
        assert (answer.sources, len(answer.notes)) == (("rollup m",), 1)
    report = check(tmp_path)
    assert report.ok
    assert report.notes == []


@pytest.mark.slow
def test_a_scrub_drops_what_is_damaged(tmp_path):
    with filled(tmp_path) as engine:
        path = sorted((tmp_path / "runs" / "1").glob("*-w1.parquet"))[0]
        path.write_bytes(path.read_bytes()[:-3] + b"abc")
        with held(engine):
            engine.execute("SCRUB")
            assert shown(engine)["runs_rolled"] == 2
            assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m", "archive")


@pytest.mark.slow
def test_older_runs_get_theirs_in_the_background_and_after_a_restart(tmp_path):
    files = GatedFiles()
    with filled(tmp_path, files=files) as engine:
        with files.shut() as reached:
            engine.execute(CREATE_ROLLUP.format("late", "COUNT(*), MAX(i)", "s"))
            reached.wait()
            (task,) = [row for row in engine.control().to_pylist() if row["key"] == "what"]
            assert task["value"] == "rollup late"
            engine.tasks.cancel(task["name"])
        settle(engine, REWRITES)
        (_, row) = engine.execute("SHOW ROLLUPS").table.to_pylist()
        assert (row["rollup"], row["runs_rolled"]) == ("late", 0)
        question = "SELECT g AS k, MAX(i) AS n FROM {} GROUP BY g"
        assert assert_same(engine, question, "s", "p").sources == ("archive",)
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        settle(engine, REWRITES)
        assert assert_same(engine, question, "s", "p").sources == ("rollup late",)
        engine.execute("DROP ROLLUP late")
        assert assert_same(engine, question, "s", "p").sources == ("archive",)
        assert shown(engine)["rollup"] == "m"
        assert not list((tmp_path / "runs" / "1").glob("*-w2.parquet"))
        engine.execute("DROP STREAM s")
        assert engine.execute("SHOW ROLLUPS").table.num_rows == 0
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_a_lazy_one_is_kept_of_runs_that_were_read_for_it(tmp_path):
    first = " [FROM TIMESTAMP '1970-01-01 00:00:00' TO TIMESTAMP '1970-01-01 00:50:00']"
    question, early = COUNT, COUNT.replace("{}", "{}" + first)
    with filled(tmp_path) as engine:
        engine.execute("DROP ROLLUP m")
        engine.execute(CREATE_ROLLUP.format("m", KEPT, "s").replace("ROLLUP", "LAZY ROLLUP"))
        settle(engine, REWRITES)
        row = shown(engine)
        assert (row["lazy"], row["runs_rolled"], row["runs"]) == (True, 0, 3)
        other = "SELECT QUANTILE(i, 0.5) AS q FROM s"
        engine.execute(other)
        engine.execute(question.format("s") + " WITHIN 50 PERCENT")  # From the live sample.
        settle(engine, REWRITES)
        assert shown(engine)["runs_rolled"] == 0
        assert assert_same(engine, early, "s", "p").sources == ("archive",)
        settle(engine, REWRITES)
        assert shown(engine)["runs_rolled"] == 1
        assert assert_same(engine, early, "s", "p").sources == ("rollup m",)
        assert assert_same(engine, question, "s", "p").sources == ("rollup m", "archive")
        settle(engine, REWRITES)
        assert shown(engine)["runs_rolled"] == 3
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        assert assert_same(engine, question, "s", "p").sources == ("rollup m",)
        for name in ("s", "p"):
            engine.push(name, numbered(9_000, 12_000))
            engine.seal(name)
        settle(engine, REWRITES)
        row = shown(engine)
        assert (row["lazy"], row["runs_rolled"], row["runs"]) == (True, 3, 4)
        assert assert_same(engine, question, "s", "p").sources == ("rollup m", "archive")
        settle(engine, REWRITES)
        assert assert_same(engine, question, "s", "p").sources == ("rollup m",)
        engine.execute("DROP STREAM s")
        assert engine.execute("SHOW ROLLUPS").table.num_rows == 0
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_a_lazy_one_that_too_many_questions_miss_is_dropped_and_made_again(tmp_path):
    missed = "SELECT QUANTILE(i, 0.5) AS q FROM {}"
    with filled(tmp_path) as engine:
        engine.execute("CREATE LAZY ROLLUP hours AS SELECT MAX(i) FROM s [RANGE 1 HOUR]")
        largest = "SELECT MAX(i) AS x FROM {}"
        assert assert_same(engine, largest, "s", "p").sources == ("archive",)
        settle(engine, REWRITES)
        for text in (largest, missed, largest, missed, largest):  # As many as not: they stay.
            engine.execute(text.format("s"))
            settle(engine, REWRITES)
            assert rolled_of(engine) == {"m": 3, "hours": 3}
        engine.execute(COUNT.format("s"))  # From the other rollup: that is no scan.
        engine.execute(missed.format("s"))
        settle(engine, REWRITES)
        assert rolled_of(engine) == {"m": 3, "hours": 3}
        engine.execute(missed.format("s"))
        settle(engine, REWRITES)
        assert rolled_of(engine) == {"m": 3, "hours": 0}  # What is written on arrival stays.
        assert not list((tmp_path / "runs" / "1").glob("*-w2.parquet"))
        for _ in range(SCANS_MIN):
            engine.execute(missed.format("s"))
        assert assert_same(engine, largest, "s", "p").sources == ("archive",)
        settle(engine, REWRITES)
        assert rolled_of(engine) == {"m": 3, "hours": 3}  # Counted anew since they were made.
        assert assert_same(engine, largest, "s", "p").sources == ("rollup hours",)
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_a_lazy_one_is_not_made_where_an_eager_one_answers(tmp_path):
    with filled(tmp_path) as engine:
        engine.execute("CREATE LAZY ROLLUP hours AS SELECT COUNT(*) FROM s [RANGE 1 HOUR]")
        with held(engine):  # The eager rollup cannot be used now.
            for name in ("s", "p"):
                engine.execute(f"DELETE FROM {name} WHERE i = 1")
            answer = assert_same(engine, "SELECT COUNT(*) AS n FROM {}", "s", "p")
            assert answer.sources == ("archive",)
        settle(engine, REWRITES)
        (_, lazy) = engine.execute("SHOW ROLLUPS").table.to_pylist()
        assert (lazy["rollup"], lazy["runs_rolled"]) == ("hours", 0)


@pytest.mark.slow
def test_another_layout_keeps_them(tmp_path):
    with filled(tmp_path) as engine:
        files = sorted(path.name for path in (tmp_path / "runs" / "1").glob("*-w1.parquet"))
        engine.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        settle(engine, REWRITES)
        assert {run.blocks - run.halvings for run in engine.core.store.runs(1)} == {4}
        assert sorted(p.name for p in (tmp_path / "runs" / "1").glob("*-w1.parquet")) == files
        assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m",)
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_a_run_that_cannot_be_read_is_missing_only_where_it_is_needed(tmp_path):
    filled(tmp_path).close()
    path = next((tmp_path / "runs" / "1").glob("*3000-*6000.parquet"))
    path.write_bytes(b"x" * path.stat().st_size)
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        assert assert_same(engine, COUNT, "s", "p").sources == ("rollup m",)
        edge = " [FROM TIMESTAMP '1970-01-01 01:00:30' TO TIMESTAMP '1970-01-01 02:00:00']"
        answer = engine.execute(COUNT.format("s" + edge))
        assert not answer.complete
        assert "missing" in " ".join(answer.notes)
        assert {row["n_bound"] for row in answer.rows()} == {"interval"}


@pytest.mark.slow
def test_the_finer_of_two_is_not_read_where_the_coarser_does(tmp_path):
    with filled(tmp_path) as engine:
        engine.execute("CREATE ROLLUP hours AS SELECT COUNT(*) FROM s [RANGE 1 HOUR]")
        settle(engine, REWRITES)
        count = "SELECT COUNT(*) AS n FROM {}"
        assert assert_same(engine, count, "s", "p").sources == ("rollup hours",)
        assert assert_same(engine, count + " WHERE g = 'a'", "s", "p").sources == ("rollup m",)
        minutes = "SELECT DATE_TRUNC('minute', ts) AS k, COUNT(*) AS n FROM {} GROUP BY k"
        assert assert_same(engine, minutes, "s", "p").sources == ("rollup m",)
        seconds = minutes.replace("minute", "second")
        assert assert_same(engine, seconds, "s", "p").sources == ("archive",)


def test_names(tmp_path):
    with filled(tmp_path) as engine:
        again = CREATE_ROLLUP.format("m", "COUNT(*)", "p")
        with pytest.raises(RollupExists, match="'m' exists"):
            engine.execute(again)
        said = engine.execute(again.replace("ROLLUP m", "ROLLUP IF NOT EXISTS m"))
        assert said.table["status"].to_pylist() == ["rollup m exists"]
        with pytest.raises(UnknownRollup, match="no rollup 'x'; there are: m"):
            engine.execute("DROP ROLLUP x")
        said = engine.execute("DROP ROLLUP IF EXISTS x")
        assert said.table["status"].to_pylist() == ["rollup x does not exist"]


@pytest.mark.parametrize(
    ("select", "error"),
    [
        ("COUNT(*) FROM s", BadQuery),
        ("COUNT(*) FROM s [RANGE 2 HOUR SLIDE 1 HOUR]", BadQuery),
        ("COUNT(*) FROM s [RANGE 1 HOUR] WHERE g = 'a'", BadQuery),
        ("COUNT(*) FROM s [RANGE 1 HOUR] WITHIN 1 PERCENT", BadQuery),
        ("QUANTILE(x, 0.5) FROM s [RANGE 1 HOUR]", BadQuery),
        ("SUM(x + 1) FROM s [RANGE 1 HOUR]", BadQuery),
        ("MIN(g) FROM s [RANGE 1 HOUR]", BadQuery),
        ("COUNT(*) FROM s [RANGE 1 HOUR] GROUP BY UPPER(g)", BadQuery),
        ("COUNT(*) FROM s [RANGE 1 HOUR] GROUP BY ts", BadQuery),
        ("SUM(nothing) FROM s [RANGE 1 HOUR]", UnknownColumn),
        ("COUNT(*) FROM nothing [RANGE 1 HOUR]", UnknownStream),
    ],
)
def test_bad_rollups_are_refused(tmp_path, select, error):
    with Engine.open(tmp_path, machine=Supervised()) as engine:
        engine.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts")
        with pytest.raises(error):
            engine.execute(f"CREATE ROLLUP m AS SELECT {select}")
        assert engine.execute("SHOW ROLLUPS").table.num_rows == 0
