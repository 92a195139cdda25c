"""A part of the log is damaged: it is told when opening, and no answer calls itself whole."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_LOAD
from shedder.archive.files.durable_marks import FILE_NAME
from shedder.archive.log.log import Log
from shedder.archive.log.log_segment import RECORD_HEAD_BYTES
from shedder.archive.log.records import LevelFrom, RecordType
from shedder.archive.metadata.position_gaps import holes
from shedder.cli.commands import run as command
from shedder.cli.exit_codes import ExitCode
from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser, built_of
from shedder.errors import CorruptData
from shedder.streams.batch_conversion import conform
from synopses.model.estimate import Bound
from tests.engine.checkpointed import checkpoint
from tests.engine.killed import copy_killed
from tests.engine.world import CREATE, SECOND, START_US, between, requests

ROWS = 3_000
LOST = "1,000 tuples, positions 1000 to 2000"
QUESTION = """SELECT COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, AVG(hits) AS a,
    MIN(hits) AS lo, MAX(hits) AS hi, STDDEV(hits) AS sd, COUNT(DISTINCT client) AS d,
    QUANTILE(hits, 0.5) AS q, MIN(domain) AS t FROM requests"""


@pytest.mark.parametrize(
    ("held", "removed", "found"),
    [
        ([], 0, ()),
        ([(0, 5), (5, 9)], 0, ()),
        ([(5, 9), (0, 3), (12, 13)], 0, ((3, 5), (9, 12))),
        ([(5, 9)], 0, ((0, 5),)),
        ([(5, 9)], 5, ()),
        ([(5, 9)], 4, ((4, 5),)),
        ([(-90, -80), (-10, -5), (0, 2)], 0, ()),
    ],
)
def test_holes_are_between_what_is_held_and_above_what_was_removed(held, removed, found):
    assert holes(held, removed=removed) == found


def test_a_hole_may_be_behind_all_that_is_held():
    assert holes([(0, 5)], removed=0, end=5) == ()
    assert holes([(0, 5)], removed=0, end=9) == ((5, 9),)
    assert holes([(0, 5), (7, 8)], removed=3, end=9) == ((5, 7), (8, 9))
    assert holes([(0, 9)], removed=0, end=5) == ()
    assert holes([], removed=9, end=9) == ()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three batches in the log and in no run; the second one's record has a flipped bit."""
    with Engine.open(tmp_path / "whole") as engine:
        engine.execute(CREATE)
        for first in range(0, ROWS, 1_000):
            engine.push("requests", requests(ROWS, 1).slice(first, 1_000))
        copy_killed(engine, tmp_path / "data")
        whole = engine.execute(QUESTION).rows()[0]
        (tmp_path / "whole.json").write_text(json.dumps(whole, default=str))
    (log,) = (tmp_path / "data" / "log").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return tmp_path / "data"


@pytest.mark.slow
def test_answers_from_what_is_left_say_so_and_hold_the_whole(damaged: Path) -> None:
    whole = json.loads((damaged.parent / "whole.json").read_text())
    with Engine.open(damaged) as engine:
        answer = engine.execute(QUESTION)
        assert not answer.complete
        assert any(LOST in note for note in answer.notes)
        assert answer.rows()[0]["n"] == 2_000
        assert answer.rows()[0]["n_high"] == ROWS
        assert answer.rows()[0]["t_bound"] == "none"
        for name in ["n", "nb", "s", "a", "lo", "hi", "sd", "d", "q"]:
            found = answer.estimate(0, name)
            assert found.bound is not Bound.EXACT, name
            if found.bound is Bound.INTERVAL:
                assert found.low <= whole[name] <= found.high, name
    with Engine.open(damaged) as engine:  # Now from a run, and a checkpoint.
        engine.push("requests", requests(1_000, 2))
        engine.seal("requests")
        assert engine.execute(QUESTION).rows()[0]["n_high"] == ROWS + 1_000
    with Engine.open(damaged) as engine:
        assert engine.execute(QUESTION).rows()[0]["n_high"] == ROWS + 1_000


@pytest.mark.slow
def test_the_command_line_tells_it(damaged: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["sql", "-d", str(damaged), "-c", "SELECT COUNT(*) AS n FROM requests"]
    assert command(arguments) == ExitCode.FINE
    said = capfd.readouterr()
    assert LOST in said.err
    assert json.loads(said.out)["n_bound"] == "interval"
    assert command(["check", "-d", str(damaged)]) == ExitCode.DAMAGED


# --- standing queries ----------------------------------------------------------------------------

AGGREGATES = """COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, AVG(hits) AS a, MIN(hits) AS lo,
    MAX(hits) AS hi, STDDEV(hits) AS sd, COUNT(DISTINCT client) AS d, QUANTILE(hits, 0.5) AS q,
    SUM(hits % 7) AS small"""
BUSY = f"SELECT {AGGREGATES} FROM requests [RANGE INTERVAL '60' SECOND SLIDE INTERVAL '10' SECOND]"
BY_DOMAIN = "SELECT domain, COUNT(*) AS n FROM requests [RANGE UNBOUNDED] GROUP BY domain"
PUSHED = requests(ROWS, 5, seconds=70.0, disorder_s=1.0)
IN_WINDOW = between(PUSHED, START_US, START_US + 60 * SECOND)  # Of the last one that closes.
NOW_US = START_US + 80 * SECOND
LIMIT_US = START_US + 100 * SECOND  # Until which clocks are believed.


def opened(directory: Path, now_us: int = NOW_US) -> Engine:
    """An engine whose clock stands still, and that makes no checkpoint by itself."""
    ahead = LIMIT_US - NOW_US
    settings = {"checkpoint_seconds": 3_600.0, "future_us_max": ahead}
    return Engine.open(directory, clock_us=lambda: now_us, **settings)


def flip(directory: Path, share: float) -> None:
    """One bit of the only segment that has anything, so far into what was written."""
    log = max((directory / "log").glob("*.log"), key=lambda path: path.name)
    content = bytearray(log.read_bytes())
    written = len(content.rstrip(b"\0"))
    content[int(written * share)] ^= 1
    log.write_bytes(content)


def flip_record(directory: Path, kind: RecordType, number: int, *, offset: int) -> None:
    """One bit of a record, so many bytes from its beginning; number: of those of its kind."""
    log = max((directory / "log").glob("*.log"), key=lambda path: path.name)
    content = bytearray(log.read_bytes())
    heads = (at for at in range(0, len(content), 8) if content[at : at + 4] == b"SHR1")
    of_kind = [at for at in heads if content[at + RECORD_HEAD_BYTES - 2] == kind]
    content[of_kind[number] + offset] ^= 1
    log.write_bytes(content)


def push_all(engine: Engine) -> None:
    for first in range(0, ROWS, 1_000):
        engine.push("requests", PUSHED.slice(first, 1_000))


def truths(engine: Engine) -> dict[str, float]:
    """By the exact engine over all that was pushed, before any of it was lost."""
    window = "[FROM TIMESTAMP '{}' TO TIMESTAMP '{}']"
    times = [str(pa.scalar(START_US + s * SECOND, pa.timestamp("us"))) for s in (0, 60)]
    answer = engine.execute(f"SELECT {AGGREGATES} FROM requests {window.format(*times)}")
    assert answer.rows()[0]["n"] == IN_WINDOW.num_rows
    return {name: answer.rows()[0][name] for name in answer.outputs}


def look(engine: Engine, name: str, truth: dict[str, float], held: pa.Table) -> None:
    """The answer over the last window says that tuples are lost, and its intervals hold them."""
    answer = engine.query(name).answer()
    assert not answer.complete
    assert any("1,000 tuples were lost with damaged bytes" in note for note in answer.notes)
    row = answer.rows()[0]
    n = between(held, START_US, START_US + 60 * SECOND).num_rows
    assert (row["n_low"], row["n_high"]) == (n, n + 1_000)
    assert truth["n"] > n
    for output, value in truth.items():
        found = answer.estimate(0, output)
        assert found.bound is not Bound.EXACT, output
        if found.bound is Bound.INTERVAL:
            assert found.low <= value <= found.high, output
    assert {"n", "nb", "d", "lo", "hi"} <= {
        output for output in truth if answer.estimate(0, output).bound is Bound.INTERVAL
    }


def look_at_groups(engine: Engine, name: str) -> None:
    answer = engine.query(name).answer()
    found = {row["domain"]: row for row in answer.rows()}
    assert not answer.complete
    for domain, n in Counter(PUSHED["domain"].to_pylist()).items():
        assert found[domain]["n_low"] <= n <= found[domain]["n_high"]
        assert found[domain]["n_bound"] == "interval"
    assert answer.missing.weight_max == 1_001


@pytest.mark.slow
def test_standing_answers_allow_for_what_was_lost_before_they_could_read_it(tmp_path):
    with opened(tmp_path / "whole") as engine:
        engine.execute(CREATE)
        engine.register("busy", BUSY)
        engine.register("domains", BY_DOMAIN)
        push_all(engine)
        truth = truths(engine)
        assert engine.query("busy").answer().rows()[0]["n"] == truth["n"]
        copy_killed(engine, tmp_path / "data")
    flip(tmp_path / "data", 0.5)
    held = pa.concat_tables([PUSHED.slice(0, 1_000), PUSHED.slice(2_000)])
    with opened(tmp_path / "data") as engine:
        look(engine, "busy", truth, held)
        look_at_groups(engine, "domains")
        ledger = engine.ledger("requests")
        assert (ledger.applied, ledger.lost) == (2_000, 1_000)
        engine.register("later", BUSY)
        engine.register("later domains", BY_DOMAIN)
        look(engine, "later", truth, held)
        copy_killed(engine, tmp_path / "killed")
    for directory in (tmp_path / "data", tmp_path / "killed"):
        with opened(directory) as engine:
            for name in ("busy", "later"):
                look(engine, name, truth, held)
            for name in ("domains", "later domains"):
                look_at_groups(engine, name)
            assert engine.ledger("requests").lost == 1_000
            sampled = engine.execute("SELECT COUNT(*) AS n FROM requests WITHIN 90 PERCENT")
            assert not sampled.complete
            assert (sampled.rows()[0]["n_low"], sampled.rows()[0]["n_high"]) == (2_000, ROWS)
    after = PUSHED.set_column(
        0,
        "ts",
        pa.array(PUSHED["ts"].cast(pa.int64()).to_numpy() + 200 * SECOND).cast("timestamp[us]"),
    )
    with opened(tmp_path / "data", NOW_US + 200 * SECOND) as engine:
        receipt = engine.push("requests", after)
        answer = engine.query("busy").answer(receipt)  # Of a window that no lost tuple can be in.
        assert answer.complete
        assert answer.rows()[0]["n_bound"] == "exact"
        assert answer.rows()[0]["n"] == truth["n"]
        assert engine.query("domains").answer().rows()[0]["n_bound"] == "interval"


@pytest.mark.slow
def test_what_a_checkpoint_knew_is_known_though_the_log_has_lost_it(tmp_path):
    with opened(tmp_path / "whole") as engine:
        engine.execute(CREATE)
        engine.register("busy", BUSY)
        push_all(engine)
        truth = truths(engine)
        engine.core.executor.call(engine.checkpoints.now).result()
        copy_killed(engine, tmp_path / "data")
    flip(tmp_path / "data", 0.9)  # The last batch: nothing is behind it.
    for again in range(2):
        with opened(tmp_path / "data") as engine:
            answer = engine.query("busy").answer()
            assert answer.complete
            assert answer.rows()[0]["n_bound"] == "exact"
            assert answer.rows()[0]["n"] == truth["n"]
            assert engine.ledger("requests").lost == 1_000
            if not again:
                engine.register("later", BUSY)
            look(engine, "later", truth, PUSHED.slice(0, 2_000))
            row = engine.execute("SELECT COUNT(*) AS n FROM requests").rows()[0]
            assert (row["n"], row["n_high"]) == (2_000 + again, ROWS + again)
            receipt = engine.push("requests", PUSHED.slice(ROWS - 1, 1))
            assert receipt.position == ROWS + again + 1  # No position is given twice.


@pytest.mark.slow
@pytest.mark.parametrize("head", [False, True])
def test_a_stream_of_which_nothing_is_behind_the_damage_may_have_lost_anything(tmp_path, head):
    """head: the record's own head is damaged, so that its stream is unknown."""
    with opened(tmp_path / "whole") as engine:
        for name in ("requests", "idle", "last"):
            engine.execute(CREATE.replace("requests", name))
            engine.register(f"all of {name}", f"SELECT COUNT(*) AS n FROM {name} [RANGE UNBOUNDED]")
        engine.push("idle", PUSHED.slice(0, 10))
        push_all(engine)
        engine.push("last", PUSHED.slice(0, 10))
        copy_killed(engine, tmp_path / "data")
    flip_record(tmp_path / "data", RecordType.BATCH, 2, offset=0 if head else 5_000)
    doubted = {"idle": head, "requests": False, "last": False}
    for _ in range(2):
        with opened(tmp_path / "data") as engine:
            assert engine.ledger("requests").lost == 1_000
            for name, is_doubted in doubted.items():
                standing = engine.query(f"all of {name}").answer()
                once = engine.execute(f"SELECT COUNT(*) AS n FROM {name}")
                of_all = {"none"} if is_doubted else {"interval" if name == "requests" else "exact"}
                assert {it.rows()[0]["n_bound"] for it in (standing, once)} == of_all
                assert once.complete == (of_all == {"exact"})


@pytest.mark.slow
def test_a_lost_batch_behind_which_nothing_of_its_stream_is_leaves_nothing_certain(tmp_path):
    with opened(tmp_path / "whole") as engine:
        for name in ("requests", "last"):
            engine.execute(CREATE.replace("requests", name))
        engine.register("domains", BY_DOMAIN)
        push_all(engine)
        engine.push("last", PUSHED.slice(0, 10))
        copy_killed(engine, tmp_path / "data")
    flip(tmp_path / "data", 0.9)
    for _ in range(2):
        with opened(tmp_path / "data") as engine:
            standing = engine.query("domains").answer()
            once = engine.execute("SELECT COUNT(*) AS n FROM requests")
            for answer in (standing, once):
                assert answer.rows()[0]["n_bound"] == "none"
                assert not answer.complete
                assert "their number is unknown" in " ".join(answer.notes)
            assert standing.missing.weight_max is None
            assert engine.execute("SELECT COUNT(*) AS n FROM last").complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "policy", "bound"),
    [
        (RecordType.HEARTBEAT, "", "exact"),  # It has no tuples.
        (RecordType.BUILT, "", "none"),  # Tuples without positions.
        (RecordType.BATCH, "", "interval"),
        (
            RecordType.BATCH,
            " ON OVERLOAD DROP",
            "none",
        ),  # It may have said that others were dropped.
    ],
)
def test_what_has_no_positions_leaves_no_hole_and_is_looked_for(tmp_path, lost, policy, bound):
    with opened(tmp_path / "whole") as engine:
        engine.execute(CREATE + policy)
        engine.register("all", "SELECT COUNT(*) AS n FROM requests [RANGE UNBOUNDED]")
        engine.push("requests", PUSHED.slice(0, 1_000))
        plans = Plans.from_json(engine.plans("requests"))
        builder = Summariser(plans, 0)
        for batch in conform(PUSHED.slice(1_000, 1_000), plans.schema):
            builder.add(batch)
        made = built_of([builder.summaries()], plans)
        if lost is RecordType.BUILT:
            engine.merge("requests", made.to_bytes())
        else:
            engine.push("requests", PUSHED.slice(1_000, 1_000))
        engine.heartbeat("requests", START_US)
        engine.push("requests", PUSHED.slice(2_000))
        assert engine.ledger("requests").applied == ROWS
        copy_killed(engine, tmp_path / "data")
    number = 1 if lost is RecordType.BATCH else 0
    flip_record(tmp_path / "data", lost, number, offset=RECORD_HEAD_BYTES + 16)
    for _ in range(2):
        with opened(tmp_path / "data") as engine:
            row = engine.query("all").answer().rows()[0]
            assert row["n_bound"] == bound
            if bound != "none":
                assert row["n_low"] <= ROWS <= row["n_high"]
            once = engine.execute("SELECT COUNT(*) AS n FROM requests")
            assert (once.rows()[0]["n_bound"], once.complete) == (bound, bound == "exact")


@pytest.mark.slow
def test_a_stream_of_which_nothing_is_left_is_answered_for(tmp_path):
    """A checkpoint had its tuples, the log that held them is gone, and no run was written yet."""
    with opened(tmp_path / "whole") as engine:
        engine.execute(CREATE)
        push_all(engine)
        checkpoint(engine)
        copy_killed(engine, tmp_path / "data")
    for path in (tmp_path / "data" / "log").glob("*.log"):
        path.unlink()
    with opened(tmp_path / "data") as engine:
        for question in (QUESTION, "SELECT domain, COUNT(*) AS n FROM requests GROUP BY domain"):
            answer = engine.execute(question)
            assert not answer.complete
        row = engine.execute(QUESTION).rows()[0]
        assert (row["n"], row["n_high"]) == (0, ROWS)


@pytest.mark.slow
def test_a_log_of_streams_that_the_catalog_never_had_is_refused(tmp_path):
    """Whatever else may be said of the catalog, it is older than the log."""
    with opened(tmp_path / "other") as engine:
        engine.execute(CREATE)
    with opened(tmp_path / "data") as engine:
        engine.execute(CREATE.replace("requests", "first"))
        engine.execute(CREATE)
        push_all(engine)
    for path in (tmp_path / "data").glob("catalog.sqlite*"):
        path.unlink()
    (tmp_path / "data" / FILE_NAME).unlink()
    shutil.copy(tmp_path / "other" / "catalog.sqlite", tmp_path / "data" / "catalog.sqlite")
    for _ in range(2):
        with pytest.raises(CorruptData, match=r"is of stream 2, which .*catalog\.sqlite does not"):
            opened(tmp_path / "data")


@pytest.mark.slow
def test_records_that_a_lower_format_would_skip_are_not_skipped(tmp_path):
    with opened(tmp_path / "data") as engine:
        engine.execute(CREATE)
        engine.register("busy", BUSY)
        engine.core.store.allow(FORMAT_LOAD)
    log = Log.open(tmp_path / "data" / "log")
    log.append(RecordType.LEVEL_FROM, [LevelFrom(1, "busy", (1,), 0, 0).to_bytes()])
    log.close()
    (tmp_path / "data" / FILE_NAME).unlink()
    (tmp_path / "data" / "FORMAT").write_text("shedder archive 4\n")
    with pytest.raises(CorruptData, match="FORMAT is lower than 5"):
        opened(tmp_path / "data")
