"""Self-audit: answers are computed again from the archive, and wrong queries lose certification."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shedder
from shedder.engine.audit.self_audit import GROUPS_MAX
from shedder.engine.engine import Engine
from shedder.queries.certification.certification import REGAIN, Certification, broken_share
from synopses.kernels.hashing import position_keys
from tests.engine.killed import copy_killed
from tests.scale import scaled

SECOND = 1_000_000
WINDOW = "[RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]"
ROWS = 2_000  # of a window
SEEDS = scaled(1, 8)

CREATE = "CREATE STREAM r (ts TIMESTAMP NOT NULL, x DOUBLE, k BIGINT, g VARCHAR) TIMESTAMP BY ts"
EVERYTHING = (
    "SELECT g, COUNT(*) AS n, SUM(x) AS total, AVG(x) AS mean, COUNT(DISTINCT k) AS keys, "
    "QUANTILE(x, 0.9) AS p90, TOP(k, 3) AS top, FREQUENT(k, 0.05) AS heavy, MIN(x) AS least, "
    "HISTOGRAM(x, [-1, 0, 1]) AS histogram, LAST(x) AS latest, SELF_JOIN_SIZE(k) AS pairs, "
    "DISTINCT_BOTH(k, x > 0, x <= 0) AS mixed, VAR(x) AS spread, CDF(x, 0.5) AS half "
    f"FROM r {WINDOW} GROUP BY g"
)


@pytest.fixture
def db(tmp_path):
    with shedder.open(tmp_path / "data", audit_share=0.5) as opened:
        opened.execute(CREATE)
        yield opened


def window(number: int, rng: np.random.Generator, x: np.ndarray | None = None) -> pa.Table:
    """The tuples of one window; x: their values, else drawn."""
    times = np.sort(rng.integers(0, 10 * SECOND, ROWS)) + number * 10 * SECOND
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "x": rng.normal(0, 1, ROWS) if x is None else x,
            "k": rng.zipf(1.4, ROWS) % 3_000,
            "g": rng.choice(["a", "b", "c"], ROWS, p=[0.7, 0.2, 0.1]),
        }
    )


def step(db: Engine, number: int, rng: np.random.Generator, x: np.ndarray | None = None) -> None:
    """One more window closes."""
    db.push("r", window(number, rng, x))
    db.heartbeat("r", (number + 1) * 10 * SECOND)


def look(db: Engine) -> bool | None:
    """Whether the query is certified when its newest answer was audited."""
    assert db.audit.look() == "q"
    return db.query("q").answer().certified


def facts(db: Engine, entity: str, name: str) -> dict[str, str]:
    rows = db.control().to_pylist()
    return {r["key"]: r["value"] for r in rows if (r["entity"], r["name"]) == (entity, name)}


@pytest.mark.slow
@pytest.mark.parametrize("thinning", ["", " THINNING 1/8"])
def test_a_healthy_query_stays_certified_over_many_seeds(tmp_path, thinning):
    values = missed = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        with shedder.open(tmp_path / f"{seed}") as db:
            db.execute(CREATE)
            query = db.register("q", EVERYTHING + thinning)
            assert query.answer().certified is None
            for number in range(8):
                step(db, number, rng)
                assert look(db), facts(db, "query", "q")["certification_lost"]
            found = facts(db, "query", "q")
            values += int(found["audited_values"])
            missed += int(found["audited_missed"])
            assert float(found["audited_coverage"]) > 0.9
    assert values > 500 * SEEDS
    assert (missed > 0) == bool(thinning)


@pytest.mark.slow
def test_first_looks_at_many_values_refute_as_rarely_as_they_say(db):
    """One value in three thousand may, at 43 values one look in eighty did."""
    rng = np.random.default_rng(43)
    text = "SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m, QUANTILE(x, 0.9) AS p, VAR(x) AS v "
    groups = "GROUP BY g HAVING n > 0 THINNING 1/4"
    db.register("q", f"{text} FROM r {WINDOW} {groups}")
    standing_query = db.core.stream("r").queries["q"]
    refuted = values = 0
    for number in range(200):
        rows = window(number, rng)
        many = pa.array([f"{each}" for each in rng.integers(0, 9, ROWS)])
        db.push("r", rows.set_column(3, "g", many))
        db.heartbeat("r", (number + 1) * 10 * SECOND)
        db.core.executor.call(lambda: standing_query.certify(Certification())).result()
        refuted += not look(db)
        values += standing_query.audits.certification.values
    assert values > 8_000
    assert refuted == 0


@pytest.mark.slow
def test_a_thinned_query_that_is_wrong_is_refuted_at_the_first_look(db):
    rng = np.random.default_rng(9)
    query = db.register("q", f"SELECT g, AVG(x) AS mean FROM r {WINDOW} GROUP BY g THINNING 1/2")
    step(db, 0, rng)
    damaged(db, by=5.0)
    assert look(db) is False
    assert any("not certified: mean of" in note for note in query.answer().notes)


@pytest.mark.slow
def test_rows_that_limit_and_having_show_are_counted_as_they_are_shown(db):
    rng = np.random.default_rng(10)
    grouped = f"SELECT g, COUNT(*) AS n FROM r {WINDOW} GROUP BY g"
    db.register("q", f"{grouped} ORDER BY n DESC LIMIT 5 THINNING 1/16")
    shown = missed = 0
    for number in range(3):
        rows = window(number, rng)
        groups = rng.integers(0, 100, ROWS)
        db.push("r", rows.set_column(3, "g", pa.array([f"{each}" for each in groups])))
        db.heartbeat("r", (number + 1) * 10 * SECOND)
        answered = db.query("q").answer().rows()
        truth = np.bincount(groups, minlength=100)
        held = [row["n_low"] <= truth[int(row["g"])] <= row["n_high"] for row in answered]
        shown, missed = shown + len(held), missed + held.count(False)
        assert look(db) is True
    assert facts(db, "query", "q")["audited_values"] == str(shown) == "15"
    assert facts(db, "query", "q")["audited_missed"] == str(missed)


@pytest.mark.slow
def test_places_that_are_certain_are_one_value_more(db):
    rng = np.random.default_rng(14)
    text = f"SELECT g, AVG(x) AS mean FROM r {WINDOW} GROUP BY g HAVING mean > -3 THINNING 1/2"
    query = db.register("q", text)
    for number, values, missed in ((0, 4, 0), (1, 8, 4)):
        step(db, number, rng)
        assert [row["certain"] for row in query.answer().rows()] == [True] * 3
        if number:
            damaged(db, by=-9.0)  # Now no group passes.
        assert look(db) is (number == 0)
        found = facts(db, "query", "q")
        assert (found["audited_values"], found["audited_missed"]) == (str(values), str(missed))


@pytest.mark.slow
def test_an_answer_that_shows_no_group_is_audited_by_those_that_it_leaves_out(db):
    rng = np.random.default_rng(12)
    text = f"SELECT g, AVG(x) AS mean FROM r {WINDOW} GROUP BY g HAVING mean > 3 THINNING 1/2"
    query = db.register("q", text)
    step(db, 0, rng)
    assert query.answer().rows() == []
    assert look(db) is True
    found = facts(db, "query", "q")
    assert (found["audited_answers"], found["audited_values"]) == ("1", "0")
    assert float(found["audited_evidence"]) < 1.0
    step(db, 1, rng)
    damaged(db, by=5.0)
    assert look(db) is False
    assert any("not certified: mean of" in note for note in query.answer().notes)


def damaged(db: Engine, by: float = 0.001) -> tuple[bytes, object]:
    """Alter what the archive says, behind the service's back; the old bytes and the file."""
    db.seal("r")
    [run] = db.core.store.runs(db.core.stream("r").id)
    file = db.core.store.directory / "runs" / run.file
    before, table = file.read_bytes(), pq.read_table(file)
    at = table.schema.get_field_index("x")
    grown = pa.array(table["x"].to_numpy() + by)
    pq.write_table(table.set_column(at, table.schema.field("x"), grown), file)
    return before, file


@pytest.mark.slow
def test_who_is_refuted_by_the_archive_is_not_certified_until_it_holds_again(db):
    rng = np.random.default_rng(1)
    query = db.register("q", f"SELECT COUNT(*) AS n, SUM(x) AS total FROM r {WINDOW}")
    step(db, 0, rng)
    before, file = damaged(db)
    assert look(db) is False
    answer = query.answer()
    assert "NOT CERTIFIED" in str(answer)
    assert any(note.startswith("not certified: total was said to be") for note in answer.notes)
    assert "certified:" in answer.explain()
    assert facts(db, "query", "q")["certified"] == "0"

    file.write_bytes(before)
    needed = 0
    while query.answer().certified is False:
        needed += 1
        step(db, needed, rng)
        assert query.answer().certified is False  # Also of a window that was not looked at yet.
        look(db)
    bet = 1 + 0.9 / (1 - broken_share(0.05)) * broken_share(0.05)
    assert needed == int(np.ceil(-np.log(REGAIN) / np.log(bet)))
    assert "NOT CERTIFIED" not in str(query.answer())
    ledger = db.ledger("r")
    assert ledger.accepted == ledger.applied == (needed + 1) * ROWS
    [each] = ledger.queries
    assert (each.read, each.thinned, each.late) == (ledger.applied, 0, 0)


@pytest.mark.slow
def test_what_audits_came_to_outlives_the_service(tmp_path):
    rng = np.random.default_rng(5)
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("q", f"SELECT COUNT(*) AS n, SUM(x) AS total FROM r {WINDOW}")
        step(db, 0, rng)
        assert look(db) is True
        was = db.core.stream("r").queries["q"].audits.certification
    with shedder.open(tmp_path / "data") as db:
        assert db.core.stream("r").queries["q"].audits.certification == was
        assert db.query("q").answer().certified is True
        assert db.audit.look() is None  # It has seen this answer.
        step(db, 1, rng)
        damaged(db)
        assert look(db) is False
        reason = facts(db, "query", "q")["certification_lost"]
        killed = copy_killed(db, tmp_path / "killed")
    with shedder.open(killed) as db:
        assert facts(db, "query", "q")["certification_lost"] == reason
        assert "NOT CERTIFIED" in str(db.query("q").answer())
        assert int(facts(db, "query", "q")["audited_answers"]) == was.looks + 1


@pytest.mark.slow
def test_who_misses_too_often_loses_it_though_no_single_miss_proves_it(db):
    # With knowledge of the stream's seed, the rows that are read can be made larger.
    rng = np.random.default_rng(2)
    db.register("q", f"SELECT AVG(x) AS mean FROM r {WINDOW} THINNING 1/8")
    seed, looks = db.schema("r").seed, 0
    while looks < 60:
        read = position_keys(seed, looks * ROWS, ROWS) < np.uint64(1 << 61)
        step(db, looks, rng, rng.normal(0, 1, ROWS) + np.where(read, 0.15, 0.0))
        looks += 1
        if look(db) is False:
            break
    assert 3 <= looks < 60
    assert "more than chance allows" in facts(db, "query", "q")["certification_lost"]


@pytest.mark.slow
def test_what_the_archive_cannot_tell_is_not_audited(db):
    rng = np.random.default_rng(3)
    query = db.register("q", f"SELECT COUNT(*) AS n FROM r {WINDOW}")
    assert db.audit.look() is None  # No window has closed.
    step(db, 0, rng)
    assert look(db) is True
    assert db.audit.look() is None  # Nothing new since.
    db.execute("DELETE FROM r WHERE x > 1")
    step(db, 1, rng)
    assert db.audit.look() is None
    assert query.answer().certified is True
    assert facts(db, "audit", "service")["looks"] == "1"


def test_windows_that_are_too_long_are_left_alone(tmp_path):
    with shedder.open(tmp_path / "data", audit_rows_max=ROWS - 1) as db:
        db.execute(CREATE)
        db.register("q", f"SELECT COUNT(*) AS n FROM r {WINDOW}")
        step(db, 0, np.random.default_rng(4))
        assert db.audit.look() is None


def test_answers_of_very_many_groups_are_left_alone(db):
    db.register("q", f"SELECT x, COUNT(*) AS n FROM r {WINDOW} GROUP BY x")
    step(db, 0, np.random.default_rng(8))
    assert len(db.query("q").answer().table) > GROUPS_MAX
    assert db.audit.look() is None


@pytest.mark.slow
def test_a_landmark_s_answer_is_audited_as_it_grows(db):
    rng = np.random.default_rng(5)
    db.register("q", "SELECT COUNT(DISTINCT k) AS keys, MAX(x) AS most FROM r")
    for number in range(3):
        step(db, number, rng)
        assert look(db) is True


@pytest.mark.slow
def test_it_takes_no_more_than_its_share_of_the_time(tmp_path):
    with shedder.open(tmp_path / "data", audit_share=1e-6) as db:
        db.execute(CREATE)
        rng = np.random.default_rng(6)
        db.register("q", f"SELECT COUNT(*) AS n FROM r {WINDOW}")
        for number in range(3):
            step(db, number, rng)
            db.audit.tick()
        assert db.audit.looks == 1
        assert db.audit.busy_s > 0


@pytest.mark.slow
def test_a_query_that_is_registered_anew_is_not_certified_before_it_was_looked_at(db):
    rng = np.random.default_rng(7)
    text = f"SELECT COUNT(*) AS n FROM r {WINDOW}"
    query = db.register("q", text)
    step(db, 0, rng)
    assert look(db) is True
    query.drop()
    assert db.register("q", text).answer().certified is None
