"""Audits from elsewhere, over the wire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.client import Client
from shedder.engine.audit.external_audit import AuditReport
from shedder.errors import FailedPrecondition

SECOND = 1_000_000
QUERY = "SELECT AVG(value) AS mean FROM trades [RANGE 10 SECONDS SLIDE 10 SECONDS] THINNING 1/8"


def test_an_answer_is_lent_as_users_were_told_it_and_what_came_of_it_is_in_the_next_one(
    client: Client,
) -> None:
    query = client.register("q", QUERY)
    rng = np.random.default_rng(1)
    times = np.sort(rng.integers(0, 10 * SECOND, 500))
    client.push(
        "trades",
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "key": rng.integers(0, 9, 500),
            "value": rng.normal(0, 1, 500),
        },
    )
    client.heartbeat("trades", 10 * SECOND)
    published = query.answer()
    [ticket] = client.lend_answers("trades", answers=5)
    assert (ticket.query, ticket.published.query) == ("q", published.query)
    assert ticket.published.table.equals(published.table)
    assert ticket.published.position == published.position == 500
    assert ticket.strict.table["mean_high"][0].as_py() > published.table["mean_high"][0].as_py()
    found = AuditReport(2, 2, 1, 1, "mean was said to be 0, and is 9", placed=False)
    lost = client.report_audit(ticket.id, found)
    assert lost == "mean was said to be 0, and is 9"
    assert query.answer().certified is False
    with pytest.raises(FailedPrecondition, match="no answer is lent"):
        client.report_audit(ticket.id, AuditReport(1, 0, 1, 0))
