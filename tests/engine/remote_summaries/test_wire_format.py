"""What was built of tuples elsewhere: the same answers, the same ledger, and no trust."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser, built_of
from shedder.engine.remote_summaries.validation import ValidatedSummaries
from shedder.engine.remote_summaries.wire_format import SegmentSummary, Summaries
from shedder.errors import BadBatch, BadTimestamp, BatchTooLarge, PlansChanged, ShedderError
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import BatchLimits
from synopses.model.binary_header import Kind, seal
from synopses.moments.moments import GroupedMoments
from synopses.theta.theta_sketch import GroupedTheta
from tests.engine.killed import copy_killed
from tests.engine.summary_world import (
    QUERIES,
    SECOND,
    answers,
    built,
    created,
    opened,
    plans_of,
    plans_of_new,
    pushed,
    rows,
    same,
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with created(tmp_path / "data") as engine:
        yield engine


@pytest.mark.slow
def test_summaries_of_tuples_come_to_what_the_tuples_come_to(tmp_path: Path) -> None:
    with created(tmp_path / "tuples") as tuples, created(tmp_path / "summaries") as summaries:
        plans = plans_of(summaries)
        for number in range(3):
            table = rows(20_000, number, begin_s=20.0 * number)
            pushed(tuples, table)
            data = built(plans, table).to_bytes()
            receipt = summaries.merge("s", data, producer="p", sequence=number)
            assert (receipt.rows, receipt.position, receipt.duplicate) == (20_000, 0, False)
            same(tuples, summaries)
        again = summaries.merge("s", data, producer="p", sequence=2)
        assert again.duplicate
        ledger = summaries.ledger("s")
        assert (ledger.accepted, ledger.applied, ledger.duplicate) == (80_000, 60_000, 20_000)
        assert {(q.read, q.thinned, q.late) for q in ledger.queries} == {(60_000, 0, 0)}
        pushed(tuples, rows(1_000, 9, begin_s=61))
        pushed(summaries, rows(1_000, 9, begin_s=61))  # Tuples and summaries, side by side.
        same(tuples, summaries)
        archived = summaries.execute("SELECT ts FROM s")
        assert archived.table.num_rows == 1_000
        assert archived.notes[0].startswith("stream s: 60,000 tuples came as summaries")


@pytest.mark.slow
@pytest.mark.parametrize("overlap_s", [0.0, 1.5])
def test_panes_that_one_part_alone_has_are_what_they_would_be_if_they_were_merged(
    db: Engine, overlap_s: float
) -> None:
    plans, made = plans_of(db), []
    for number in range(4):
        builder = Summariser(plans, number << 40)
        for batch in conform(rows(3_000, number, 5.0 * number, 5.0 + overlap_s), plans.schema):
            builder.add(batch)
        made.append(builder.summaries())
    folded = Summariser(plans)
    for each in made:
        folded.merge(each)
    assert built_of(made, plans) == folded.summaries()
    assert built_of(made[:1], plans) == made[0]


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_what_was_merged_is_there_after_a_stop(tmp_path: Path, *, is_closed: bool) -> None:
    with created(tmp_path / "data") as engine:
        data = built(plans_of(engine), rows(20_000, 1)).to_bytes()
        engine.merge("s", data, producer="p", sequence=0)
        before = answers(engine)
        if not is_closed:  # As a power cut would leave it.
            copy_killed(engine, tmp_path / "copy")
    with opened(tmp_path / ("data" if is_closed else "copy")) as again:
        assert answers(again) == before
        assert again.merge("s", data, producer="p", sequence=0).duplicate
        assert again.ledger("s").applied == 20_000
        assert {q.read for q in again.ledger("s").queries} == {20_000}


@pytest.mark.slow
def test_panes_that_the_watermark_has_passed_count_as_late(db: Engine) -> None:
    plans = plans_of(db)
    db.merge("s", built(plans, rows(5_000, 1, begin_s=100)).to_bytes())
    late = rows(3_000, 2, begin_s=109)  # From 109 s to 129 s; the watermark is at 115 s.
    db.merge("s", built(plans, late).to_bytes())
    times = np.asarray(late["ts"].cast(pa.int64()))
    found = {q.query: q for q in db.ledger("s").queries}
    closed = int((times < 114 * SECOND).sum()), int((times < 115 * SECOND).sum())
    assert found["sliding"].late in closed
    assert found["sliding"].late > 0
    assert found["grouped"].late == 0
    assert all(q.read + q.late == 8_000 for q in found.values())
    assert db.query("sliding").answer().rows()[0]["n_bound"] in ("exact", "interval")


def test_builders_thin_as_the_plans_say_and_intervals_hold(tmp_path: Path) -> None:
    values = "COUNT(*) AS n, AVG(x) AS a, COUNT(DISTINCT k) AS d"
    text = f"SELECT {values} FROM s CONFIDENCE 99.9999 PERCENT"
    with created(tmp_path / "data", {"q": text}) as engine:
        engine.execute("ALTER QUERY q SET THINNING 1/4")
        table = rows(40_000, 5)
        engine.merge("s", built(plans_of(engine), table).to_bytes())
        (row,) = engine.query("q").answer().rows()
        x = np.asarray(table["x"].drop_null())
        for name, truth in (("n", 40_000), ("a", x.mean()), ("d", len(table["k"].unique()))):
            assert row[f"{name}_low"] <= truth <= row[f"{name}_high"], name
        (ledger,) = engine.ledger("s").queries
        assert ledger.read + ledger.thinned == 40_000
        assert 9_000 < ledger.read < 11_000


@pytest.mark.slow
def test_groups_that_find_no_room_are_among_the_others(tmp_path: Path) -> None:
    text = {"q": "SELECT k, COUNT(*) AS n FROM s GROUP BY k"}
    with created(tmp_path / "data", text, group_bytes_max=1 << 16) as engine:
        count = 30_000
        table = rows(count, 1).set_column(1, "k", pa.array(np.arange(count) % 10_000))
        for first in range(0, count, 3_000):
            engine.merge("s", built(plans_of(engine), table.slice(first, 3_000)).to_bytes())
        found = engine.query("q").answer().rows()
        assert sum(row["n"] for row in found) == count
        assert len(found) < 10_000
        groups = [row for row in found if row["k"] is not None]
        assert all(row["n_low"] <= 3 <= row["n_high"] or row["n_bound"] == "none" for row in groups)


@pytest.mark.slow
def test_summaries_of_other_queries_are_refused_until_they_are_built_again(db: Engine) -> None:
    table = rows(2_000, 1)
    data = built(plans_of(db), table).to_bytes()
    db.register("later", "SELECT SUM(x) AS s FROM s")
    with pytest.raises(PlansChanged, match="nothing is there for query 'later'"):
        db.merge("s", data)
    db.merge("s", built(plans_of(db), table).to_bytes())
    data = built(plans_of(db), table).to_bytes()
    db.drop_query("later")
    with pytest.raises(PlansChanged, match="no query 'later'"):
        db.merge("s", data)
    assert db.ledger("s").refused_rows == 4_000
    assert db.ledger("s").applied == 2_000


@pytest.mark.slow
def test_one_time_questions_say_that_they_do_not_know_them(db: Engine) -> None:
    db.push("s", rows(500, 1))
    assert db.execute("SELECT COUNT(*) AS n FROM s").rows()[0]["n_bound"] == "exact"
    db.merge("s", built(plans_of(db), rows(2_000, 2)).to_bytes())
    for text in ("SELECT COUNT(*) AS n FROM s", "SELECT COUNT(*) AS n FROM s WITHIN 5 PERCENT"):
        answer = db.execute(text)
        (row,) = answer.rows()
        assert (row["n"], row["n_bound"]) == (500, "none")
        assert "2,000 tuples came as summaries" in answer.notes[0]


def broken(made: Summaries, **changes: Any) -> bytes:
    """With another first pane."""
    first, *others = made.panes
    return replace(made, panes=(replace(first, **changes), *others)).to_bytes()


@pytest.mark.slow
def test_what_contradicts_itself_is_refused_with_words(db: Engine) -> None:
    made = built(plans_of(db), rows(2_000, 1))
    first = made.panes[0]
    with pytest.raises(BadBatch, match="tuples were thinned or match"):
        db.merge("s", broken(made, matching=first.tuples + 1))
    with pytest.raises(BadBatch, match=r"have 2,001 tuples, all 2,000"):
        db.merge("s", broken(made, tuples=first.tuples + 1))
    with pytest.raises(BadBatch, match="counts"):
        db.merge("s", broken(made, matching=first.matching - 1))
    with pytest.raises(BadBatch, match="1 synopses; the query has"):
        db.merge("s", broken(made, images=first.images[:1], thinned=(0,)))
    with pytest.raises(BadBatch, match="corrupt synopsis"):
        db.merge("s", broken(made, images=(first.images[1], *first.images[1:])))
    with pytest.raises(BadTimestamp, match="further in the future"):
        db.merge("s", replace(made, newest_us=1 << 60).to_bytes())
    with pytest.raises(BadBatch, match="no summaries of format"):
        db.merge("s", b"\x05\x00\x00\x00{}")
    for pane in made.panes:
        if pane.query == "grouped":
            panes = [replace(p, groups=b"") if p is pane else p for p in made.panes]
            with pytest.raises(BadBatch, match="of query 'grouped': the Arrow"):
                db.merge("s", replace(made, panes=tuple(panes)).to_bytes())
    assert db.ledger("s").applied == 0
    db.merge("s", made.to_bytes())
    assert db.ledger("s").applied == 2_000


def claiming(made: Summaries, population: int) -> Summaries:
    """With a synopsis more in the first pane, read at a level, of so many values."""
    pane = made.panes[0]
    at = next(at for at, image in enumerate(pane.images) if image[5] == Kind.MOMENTS)
    whole = GroupedMoments.from_bytes(pane.images[at])
    empty = GroupedMoments(whole.groups, integer=whole.integer, variance=True).to_bytes()
    more = SegmentSummary(at, 3, (population, 10, -10, 10), empty)
    return replace(made, panes=(replace(pane, segments=(more,)), *made.panes[1:]))


def left_out_almost_all(made: Summaries) -> Summaries:
    """Each theta sketch has the lowest threshold that there is."""

    def emptied(image: bytes) -> bytes:
        if image[5] != Kind.THETA:
            return image
        held = GroupedTheta.from_bytes(image)
        thresholds = np.ones(held.groups, np.uint64)
        body = [thresholds, np.zeros(held.groups, np.int64), np.zeros(0, np.uint64)]
        return seal(Kind.THETA, (held.groups, held.lg_k), body)

    panes = [replace(pane, images=tuple(map(emptied, pane.images))) for pane in made.panes]
    assert panes != list(made.panes)
    return replace(made, panes=tuple(panes))


@pytest.mark.slow
def test_counts_that_cannot_be_are_refused(db: Engine) -> None:
    made = built(plans_of(db), rows(2_000, 1))
    matching = made.panes[0].matching
    with pytest.raises(BadBatch, match=rf"10 of {matching + 1:,} values where {matching:,} match"):
        db.merge("s", claiming(made, matching + 1).to_bytes())
    with pytest.raises(BadBatch, match=r"summaries of 1,099,511,627,777 tuples; at most"):
        db.merge("s", replace(made, rows=2**40 + 1).to_bytes())


@pytest.mark.slow
@pytest.mark.timeout(120, method="thread")  # A kernel that does not end cannot be interrupted.
@pytest.mark.parametrize("ill", [lambda made: claiming(made, 2**60), left_out_almost_all])
def test_what_an_older_version_let_into_the_log_stops_nobody(
    tmp_path: Path, ill: Callable[[Summaries], Summaries]
) -> None:
    """Such counts once made an interval that was never found, and each start began with it."""
    made = ill(built(plans_of_new(tmp_path / "plans"), rows(300, 1, seconds=2)))
    with created(tmp_path / "data") as engine:
        unchecked = engine.admission.intake("s").append_built(
            ValidatedSummaries(made), made.to_bytes(), producer="p", epoch=0, sequence=0
        )
        assert unchecked.result().rows == 300
        engine.core.executor.call(lambda: None).result()  # It is applied, too.
        before = answers(engine)
        copy_killed(engine, tmp_path / "copy")  # As a power cut would leave it.
    with opened(tmp_path / "copy") as again:
        assert answers(again) == before
        pushed(again, rows(300, 2, begin_s=2))
        assert all(table.num_rows for table in answers(again).values())
        late = {query.query: query.late for query in again.ledger("s").queries}
        is_refused = ill is not left_out_almost_all  # A threshold may be that low.
        assert sum(late.values()) == (made.panes[0].tuples if is_refused else 0)


@pytest.mark.slow
def test_a_segment_without_its_bytes_is_refused(db: Engine) -> None:
    data = built(plans_of(db), rows(300, 1)).to_bytes()
    length = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + length])
    header["panes"][-1]["segments"] = [[0, 1, 0, 0, None, None]]
    text = json.dumps(header).encode()
    with pytest.raises(BadBatch, match="no summaries of format"):
        db.merge("s", len(text).to_bytes(4, "little") + text + data[4 + length :])


def test_queries_that_count_the_same_rows_count_them_apart(tmp_path: Path) -> None:
    """What one reads of the same bytes is read once, and folded into each one's own panes."""
    window = "FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]"
    queries = {
        "sum": f"SELECT SUM(k) AS s {window}",
        "mean": f"SELECT AVG(k) AS m, COUNT(*) AS n {window}",
        "rows": f"SELECT COUNT(*) AS n {window}",
        "wide": "SELECT SUM(k) AS s FROM s [RANGE 20 SECONDS SLIDE 1 SECOND]",
    }
    with (
        created(tmp_path / "tuples", queries) as tuples,
        created(tmp_path / "summaries", queries) as summaries,
    ):
        plans = plans_of(summaries)
        for number in range(4):  # The same seconds thrice: panes are there, and are added to.
            table = rows(2_000, number, begin_s=40.0 if number == 3 else 20.0, seconds=4.0)
            pushed(tuples, table)
            summaries.merge("s", built(plans, table).to_bytes())
        for name in queries:
            ours, theirs = (engine.query(name).answer().table for engine in (summaries, tuples))
            assert ours.equals(theirs), name
            assert tuples.query(name).answer().table.num_rows == 1


@pytest.mark.slow
def test_too_many_bytes_are_refused_with_the_limit(tmp_path: Path) -> None:
    with created(tmp_path / "data", batch_bytes_max=1 << 16) as engine:
        data = built(plans_of(engine), rows(2_000, 1)).to_bytes()
        with pytest.raises(BatchTooLarge, match="the limit is 65,536"):
            engine.merge("s", data)


@pytest.mark.slow
def test_hostile_bytes_never_reach_a_pane(db: Engine) -> None:
    """Flipped, cut and swapped bytes: refused, or harmless; the engine goes on."""
    rng = np.random.default_rng(3)
    made = built(plans_of(db), rows(300, 1, seconds=2))
    data = np.frombuffer(made.to_bytes(), np.uint8)
    header = int(data[:4].view(np.uint32)[0]) + 4
    accepted = 0
    for _ in range(2_000):
        bad = data.copy()
        first = 0 if rng.random() < 0.1 else header
        at = rng.integers(first, len(bad), rng.integers(1, 6))
        bad[at] = rng.integers(0, 256, len(at))
        try:
            db.merge("s", bad.tobytes())
            accepted += 1
        except ShedderError as error:
            assert len(str(error)) < 1_000  # noqa: PT017 - of whichever kind
    assert db.ledger("s").applied == accepted * 300
    for name in QUERIES:  # An answer, not an error.
        assert db.query(name).answer().table.num_columns


def test_plans_survive_being_text(db: Engine) -> None:
    plans = plans_of(db)
    assert Plans.from_json(plans.to_json()) == plans
    assert plans.schema.seed == 0
    assert plans.limits == BatchLimits()
    assert {query.name for query in plans.queries} == set(QUERIES)


def test_nothing_comes_to_nothing(db: Engine) -> None:
    plans = plans_of(db)
    nothing = Summariser(plans).summaries()
    assert Summaries.from_bytes(nothing.to_bytes()) == nothing
    assert db.merge("s", nothing.to_bytes(), producer="p", sequence=0).rows == 0
    assert built_of([nothing, nothing], plans) == nothing


@pytest.mark.slow
def test_texts_of_more_groups_than_metadata_have_room_for_come_through(tmp_path: Path) -> None:
    text = "SELECT k, FIRST(g) AS f, LAST(g) AS l, MIN(g) AS m FROM s GROUP BY k"
    count = 30_000  # Times and positions of 21,845 groups would take a MiB.
    table = rows(count, 3).set_column(1, "k", pa.array(np.arange(count)))
    with created(tmp_path / "data", {"texts": text}) as db:
        plans = Plans.from_json(db.plans("s"))
        db.merge("s", built(plans, table).to_bytes())
        found = db.query("texts").answer().rows()
        right = dict(zip(table["k"].to_pylist(), table["g"].to_pylist(), strict=True))
        assert {row["k"]: row["f"] for row in found} == right
        assert {row["k"]: row["m"] for row in found} == right


@pytest.mark.slow
def test_panes_built_elsewhere_collapse_when_they_close(tmp_path: Path) -> None:
    text = (
        "SELECT COUNT(*) AS n, SUM(k) AS s, MAX(x) AS h, COUNT(DISTINCT k) AS d "
        "FROM s [RANGE 80 SECONDS SLIDE 1 SECOND COLLAPSE BY 2 AFTER 8]"
    )
    tables = [rows(400, seed, begin, 14) for seed, begin in enumerate((0, 15, 30, 90, 170))]
    for way in ("built", "pushed", "mixed"):
        with created(tmp_path / way, {"coarse": text}) as db:
            for number, table in enumerate(tables):
                if way == "pushed" or (way == "mixed" and number % 2):
                    db.push("s", table)
                else:
                    plans = Plans.from_json(db.plans("s"))
                    db.merge("s", built(plans, table).to_bytes())
                db.core.executor.call(db.checkpoints.now).result()
            query_state = db.core.standing_query("coarse")[1].state
            held = sorted(query_state.panes)
            answers = db.query("coarse").answer().rows()
        with opened(tmp_path / way) as db:
            again = db.query("coarse").answer().rows()
            assert sorted(db.core.standing_query("coarse")[1].state.panes) == held
        if way == "built":
            first, cells = answers, held
        assert (answers, again, held) == (first, first, cells), way
