"""Answers over an archive with a damaged run: they go on, and say what they do not know."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from shedder.cli.commands import run as command
from shedder.cli.exit_codes import ExitCode
from shedder.engine.engine import Engine
from shedder.errors import CorruptData
from synopses.model.estimate import Bound
from tests.engine.world import CREATE, START_US, requests

ROWS = 4_000
QUESTION = """SELECT {group} COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, AVG(hits) AS a,
    MIN(hits) AS lo, MAX(client) AS hi, STDDEV(hits) AS sd, COUNT(DISTINCT client) AS d,
    QUANTILE(bytes, 0.5) AS q, FIRST(hits) AS f, MIN(domain) AS t
    FROM requests {window} {where}"""
WINDOW = "[FROM CAST({0} AS TIMESTAMP) TO CAST({1} AS TIMESTAMP)]"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Three runs and a tail, event times in order; and what the whole of it says."""
    directory = tmp_path_factory.mktemp("damaged") / "data"
    with Engine.open(directory) as engine:
        engine.execute(CREATE)
        table = requests(ROWS, 1)
        for first in range(0, ROWS, 1_000):
            engine.push("requests", table.slice(first, 1_000))
            if first < 3_000:
                engine.seal("requests")
        whole = {text: engine.execute(text) for text in questions()}
        file = engine.core.store.runs(engine.core.stream("requests").id)[1].file
    return directory, whole, file, table["ts"].cast(pa.int64())


@pytest.fixture(params=["flipped", "gone"])
def engine(original, tmp_path, request):
    """The second run is damaged before any query has read it."""
    directory, whole, file, times = original
    shutil.copytree(directory, tmp_path / "data")
    path = tmp_path / "data" / "runs" / file
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()
    if request.param == "flipped":
        path.write_bytes(damaged)
    with Engine.open(tmp_path / "data") as engine:
        engine.whole, engine.times = whole, times
        yield engine


def questions() -> list[str]:
    return [
        QUESTION.format(group=group, window="", where=f"{where} {by}")
        for where in ("", "WHERE hits > 20 AND ok")
        for group, by in (("", ""), ("domain,", "GROUP BY domain"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", questions())
def test_every_interval_holds_what_the_whole_archive_would_say(engine, text):
    answer, whole = engine.execute(text), engine.whole[text]
    assert not answer.complete
    assert any("1,000 tuples, positions 1000 to 2000" in note for note in answer.notes)
    truths = {row.get("domain"): at for at, row in enumerate(whole.rows())}
    for at, row in enumerate(answer.rows()):
        for name in answer.approximate:
            if name == "t":  # Text has no interval.
                assert row["t_bound"] == "none"
                continue
            found = answer.estimate(at, name)
            truth = whole.estimate(truths[row.get("domain")], name).value
            assert found.bound is not Bound.EXACT, name
            assert found.low <= truth <= found.high or found.bound is Bound.NONE, (name, found)


@pytest.mark.slow
def test_a_stretch_without_the_run_is_exact_and_complete(engine):
    first = int(engine.times[2_000].as_py())
    window = WINDOW.format(first, START_US + 10**12)
    answer = engine.execute(f"SELECT COUNT(*) AS n FROM requests {window}")
    assert answer.rows()[0]["n_bound"] == "exact"
    assert answer.rows()[0]["n"] == 2_000
    assert answer.notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gone", "cut short"])
def test_a_file_that_goes_while_it_is_served_is_missed_and_said_to_be(original, tmp_path, way):
    directory, _, file, _ = original
    shutil.copytree(directory, tmp_path / "data")
    path = tmp_path / "data" / "runs" / file
    text = questions()[0]
    with Engine.open(tmp_path / "data") as engine:
        assert engine.execute(text).complete  # It has been read and verified.
        if way == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
        for _ in range(2):
            answer = engine.execute(text)
            assert not answer.complete
            assert any("1,000 tuples, positions 1000 to 2000" in note for note in answer.notes)


@pytest.mark.slow
def test_show_runs_control_and_rows_tell_of_it(engine, tmp_path, capfd):
    engine.execute("SCRUB")
    problems = [row["problem"] for row in engine.execute("SHOW RUNS").rows()]
    assert [problem is None for problem in problems] == [True, False, True]
    control = {(r["entity"], r["key"]): r["value"] for r in engine.control().to_pylist()}
    assert control["stream", "runs"] == "3"
    assert control["stream", "quarantined_runs"] == "1"
    with pytest.raises(CorruptData, match="positions 1000 to 2000"):
        engine.execute("INSERT INTO requests SELECT * FROM requests")
    engine.close()
    assert command(["scrub", "-d", str(tmp_path / "data")]) == ExitCode.DAMAGED
    assert "in quarantine" in capfd.readouterr().err


@pytest.mark.slow
def test_a_history_that_cannot_be_read_is_not_registered_over(engine):
    engine.execute("SCRUB")
    with pytest.raises(CorruptData, match="quarantine"):
        engine.register("q", "SELECT COUNT(*) AS n FROM requests")
