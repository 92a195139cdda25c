"""The page of benchmarks: each section is one's, and none is lost when it is renamed."""

from __future__ import annotations

import pytest

import shedder
from benchmarks.__main__ import PAGE, heading, merged, names
from benchmarks.workloads.served import server
from benchmarks.workloads.trades import BATCH_ROWS, batches


@pytest.mark.slow
def test_a_page_with_nothing_new_stays_as_it_is() -> None:
    page = PAGE.read_text()
    assert merged(page, {}) == page


@pytest.mark.slow
def test_a_section_takes_the_place_of_its_benchmarks_own() -> None:
    name = names()[0]
    page = merged(merged("", {n: f"## {heading(n)}\n\nold" for n in names()}), {name: "## new"})
    assert page.count("old") == len(names()) - 1
    assert "## new" in page


def test_a_heading_that_no_benchmark_has_is_refused_not_dropped() -> None:
    with pytest.raises(ValueError, match=r"no benchmark has these headings.*what was renamed"):
        merged("# Benchmarks\n\n## what was renamed\n\nfigures\n", {})


@pytest.mark.slow
def test_the_floor_under_ingest_takes_batches_and_applies_none() -> None:
    """It has what the services ask of an engine, whatever they have come to ask."""
    with (
        server(bare=True) as running,
        shedder.connect(running.address, insecure=True, timeout_s=120.0) as client,
    ):
        with client.producer("trades", "p") as producer:
            for batch in batches(2 * BATCH_ROWS):
                producer.push(batch)
        assert client.ledger("trades").accepted == 2 * BATCH_ROWS
        assert client.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 0
