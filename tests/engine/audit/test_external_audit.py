"""Answers lent to auditors elsewhere: each verdict counts once, and in the certification."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.audit.external_audit import LEASE_S, AuditReport, AuditTicket
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import BadSetting, FailedPrecondition, UnknownStream
from shedder.queries.certification.certification import ALARM

SECOND = 1_000_000
CREATE = "CREATE STREAM r (ts TIMESTAMP NOT NULL, x DOUBLE) TIMESTAMP BY ts"
HOPPING = "SELECT AVG(x) AS mean FROM r [RANGE 10 SECONDS SLIDE 10 SECONDS] THINNING 1/8"
OVERLAPPING = "SELECT AVG(x) AS mean FROM r [RANGE 20 SECONDS SLIDE 10 SECONDS] THINNING 1/8"
HELD = AuditReport(1, 0, 1, 0)
MISSED = AuditReport(1, 1, 1, 1)
NOTHING = AuditReport(0, 0, 0, 0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data") as opened:
        opened.execute(CREATE)
        yield opened


def close_a_window(db: Engine, number: int) -> None:
    rng = np.random.default_rng(number)
    times = np.sort(rng.integers(0, 10 * SECOND, 500)) + number * 10 * SECOND
    db.push("r", {"ts": pa.array(times, pa.timestamp("us")), "x": rng.normal(0, 1, 500)})
    db.heartbeat("r", (number + 1) * 10 * SECOND)


def lend(db: Engine) -> AuditTicket:
    [ticket] = db.audit.tickets.lend("r", answers=10)
    return ticket


def test_an_answer_is_lent_once_with_a_wider_one_that_a_miss_refutes(db: Engine) -> None:
    db.register("q", HOPPING)
    assert db.audit.tickets.lend("r", answers=10) == []  # No window has closed.
    close_a_window(db, 0)
    ticket = lend(db)
    [published], [strict] = ticket.published.rows(), ticket.strict.rows()
    assert strict["mean_low"] < published["mean_low"] < published["mean_high"] < strict["mean_high"]
    assert ticket.strict.confidence > 1 - ALARM
    assert db.audit.tickets.lend("r", answers=10) == []
    assert db.audit.look() is None  # The service does not look at it, either.
    close_a_window(db, 1)
    assert db.audit.tickets.lend("r", answers=10) == []  # Its query is not looked at by two.
    assert db.audit.look() is None
    assert db.audit.tickets.report(ticket.id, HELD).certified is True
    assert db.query("q").answer().certified is True
    assert lend(db).published.start_us == 10 * SECOND


def test_what_was_reported_is_not_reported_again_and_what_is_given_back_does_not_count(
    db: Engine,
) -> None:
    db.register("q", HOPPING)
    close_a_window(db, 0)
    ticket = lend(db)
    assert db.audit.tickets.report(ticket.id, AuditReport(0, 0, 0, 0)).certified is None
    with pytest.raises(FailedPrecondition, match="no answer is lent"):
        db.audit.tickets.report(ticket.id, HELD)
    assert db.audit.tickets.reported == 0
    close_a_window(db, 1)
    ticket = lend(db)
    db.query("q").drop()
    db.register("q", HOPPING)
    with pytest.raises(FailedPrecondition, match="was dropped"):
        db.audit.tickets.report(ticket.id, MISSED)
    assert db.query("q").answer().certified is None


def test_a_refutation_takes_the_certification_and_says_so_in_answers_and_metrics(
    db: Engine,
) -> None:
    db.register("q", HOPPING)
    close_a_window(db, 0)
    now = db.audit.tickets.report(
        lend(db).id, AuditReport(1, 1, 1, 1, "mean was said to be 1, and is 2")
    )
    assert (now.certified, now.lost) == (False, "mean was said to be 1, and is 2")
    answer = db.query("q").answer()
    assert answer.certified is False
    assert "not certified: mean was said to be 1, and is 2" in answer.notes
    facts = {(r["name"], r["key"]): r["value"] for r in db.control().to_pylist()}
    assert facts["q", "audited_coverage"] == "0.000000"
    assert facts["service", "reported"] == "1"


def test_an_answer_that_shows_no_row_is_bet_on_and_may_be_refuted(db: Engine) -> None:
    db.register("q", HOPPING.replace("THINNING", "HAVING AVG(x) > 9 THINNING"))
    close_a_window(db, 0)
    ticket = lend(db)
    assert ticket.published.rows() == []
    assert len(ticket.strict.rows()) == 1
    now = db.audit.tickets.report(ticket.id, NOTHING)
    assert (now.certified, now.looks, now.values) == (True, 1, 0)
    assert now.evidence < 1.0
    close_a_window(db, 1)
    wrong = AuditReport(0, 0, 0, 0, "mean was said to be 1, and is 2")
    assert db.audit.tickets.report(lend(db).id, wrong).lost == "mean was said to be 1, and is 2"


@pytest.mark.parametrize("archived", [True, False])
def test_what_is_found_of_tuples_that_were_deleted_meanwhile_does_not_count(
    db: Engine, archived: bool
) -> None:
    """An answer of 500 tuples is not wrong because a DELETE has left 400 of them to compare."""
    db.register("q", HOPPING)
    close_a_window(db, 0)
    [ticket] = db.audit.tickets.lend("r", answers=10, without_archive=not archived)
    db.execute("DELETE FROM r WHERE x > 1")
    wrong = AuditReport(1, 1, 1, 1, "mean was said to be 1, and is 2")
    if archived:
        with pytest.raises(FailedPrecondition, match="deleted while it was looked at"):
            db.audit.tickets.report(ticket.id, wrong)
        assert db.query("q").answer().certified is None
    else:  # The auditor has the tuples from elsewhere.
        assert db.audit.tickets.report(ticket.id, wrong).certified is False


def test_tuples_are_bet_on_once_however_many_windows_have_them(db: Engine) -> None:
    db.register("q", OVERLAPPING)
    evidence = []
    for number in range(4):
        close_a_window(db, number)
        evidence.append(db.audit.tickets.report(lend(db).id, HELD).evidence)
    # Windows [-10, 10), [0, 20), [10, 30), [20, 40): the second and the fourth are no news.
    assert evidence[0] == evidence[1] > evidence[2] == evidence[3]


def test_who_misses_whenever_it_may_be_bet_on_loses_it_without_a_refutation(db: Engine) -> None:
    db.register("q", HOPPING)
    lost = ""
    for number in range(6):
        close_a_window(db, number)
        lost = db.audit.tickets.report(lend(db).id, MISSED).lost
        if lost:
            break
    assert "more than chance allows" in lost
    assert number > 0


class Watch(Environment):
    """A machine whose clock is set by hand."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def test_who_takes_too_long_comes_too_late_and_the_query_is_looked_at_again(
    tmp_path: Path,
) -> None:
    machine = Watch()
    with Engine.open(tmp_path / "data", machine=machine) as db:
        db.execute(CREATE)
        db.register("q", HOPPING)
        close_a_window(db, 0)
        late = lend(db)
        close_a_window(db, 1)
        machine.ahead_s = LEASE_S
        with pytest.raises(FailedPrecondition, match="30 minutes"):
            db.audit.tickets.report(late.id, MISSED)
        assert db.audit.tickets.report(lend(db).id, HELD).looks == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "found",
    [
        AuditReport(1, 2, 0, 0),
        AuditReport(3, 1, 4, 0),
        AuditReport(3, 1, 2, 2),
        AuditReport(-1, 0, 0, 0),
        AuditReport(0, 0, 0, 0, placed=True),
        AuditReport(3, 1, 3, 1, placed=True),
        AuditReport(3, 1, 2, 1, placed=False),
    ],
)
def test_counts_that_contradict_each_other_are_refused(db: Engine, found: AuditReport) -> None:
    db.register("q", HOPPING)
    close_a_window(db, 0)
    ticket = lend(db)
    with pytest.raises(BadSetting, match=r"larger than the whole|not fresh"):
        db.audit.tickets.report(ticket.id, found)
    assert db.audit.tickets.report(ticket.id, HELD).looks == 1


def test_rows_in_wrong_places_are_bet_on(db: Engine) -> None:
    db.register("q", HOPPING)
    close_a_window(db, 0)
    now = db.audit.tickets.report(lend(db).id, AuditReport(2, 0, 1, 0, placed=True))
    assert (now.values, now.missed) == (2, 0)
    close_a_window(db, 1)
    wrong = db.audit.tickets.report(lend(db).id, AuditReport(1, 1, 0, 0, placed=False))
    assert (wrong.values, wrong.missed) == (3, 1)
    assert wrong.evidence > now.evidence


def test_what_is_asked_wrongly_is_refused(db: Engine) -> None:
    with pytest.raises(BadSetting, match="0 answers"):
        db.audit.tickets.lend("r", answers=0)
    with pytest.raises(UnknownStream):
        db.audit.tickets.lend("nowhere", answers=1)


WIDE = "SELECT g, AVG(x) AS mean FROM w [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY g THINNING 1/2"


def test_as_many_answers_are_lent_as_have_room_and_the_others_afterwards(db: Engine) -> None:
    """A message of a hundred answers of very many groups was too large, and all counted as seen."""
    db.execute("CREATE STREAM w (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE) TIMESTAMP BY ts")
    for name in "abc":
        db.register(name, WIDE)

    def close(number: int) -> None:
        times = np.arange(0, 10 * SECOND, 5_000) + number * 10 * SECOND
        rows = np.arange(len(times))
        ts = pa.array(times, pa.timestamp("us"))
        db.push("w", {"ts": ts, "g": rows // 10, "x": np.sqrt(rows)})
        db.heartbeat("w", (number + 1) * 10 * SECOND)

    def ticket(bytes_max: int) -> list[AuditTicket]:
        found = db.audit.tickets.lend("w", answers=10, bytes_max=bytes_max)
        for each in found:
            db.audit.tickets.report(each.id, HELD)
        return found

    close(0)
    [one] = db.audit.tickets.lend("w", answers=1)
    db.audit.tickets.report(one.id, HELD)
    assert len(one.strict.rows()) == len(one.published.rows()) == 200
    alone, both = (
        sum(t.nbytes for t in of)
        for of in ([one.published.table], [one.published.table, one.strict.table])
    )
    close(1)
    rounds = [ticket(both * 3 // 2) for _ in range(4)]
    assert sorted(each.query for some in rounds for each in some) == ["a", "b", "c"]
    assert [len(some) for some in rounds] == [1, 1, 1, 0]
    assert len(rounds[0][0].strict.rows()) > 0
    close(2)
    rounds = [ticket(alone * 3 // 2) for _ in range(3)]
    assert [len(each.strict.rows()) for some in rounds for each in some] == [0, 0, 0]
    close(3)
    assert ticket(alone // 2) == []  # None of them ever has room.
    assert ticket(both * 9) == []
    close(4)
    assert len(ticket(both * 9)) == 3
