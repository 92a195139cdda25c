"""The page of benchmarks: each section is one's, and none is lost when it is renamed."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import PAGE, heading, merged, names


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
