"""The page and its plots: round axes, gaps where nothing is known, and what is wrong in red."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from shedder.simulation.curves import Panel, PlottedBand, PlottedCurve, drawn, shown, steps
from shedder.simulation.html_report import to_html
from tests.simulation.worlds import run, scenario


def test_axes_have_round_numbers():
    assert steps(1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert steps(0.037)[-1] <= 0.037
    assert steps(60.0, 6) == [0, 10, 20, 30, 40, 50, 60]
    assert [shown(value) for value in (0, 0.25, 1_500, 2e6, 3e9)] == [
        "0",
        "0.25",
        "1.5 k",
        "2 M",
        "3 G",
    ]


def test_a_curve_has_gaps_where_nothing_is_known():
    panel = Panel("p", (PlottedCurve("c", [1, 2, None, 3, 4], "c0"),))
    assert drawn(panel, [0, 1, 2, 3, 4]).count("<polyline") == 2
    assert drawn(Panel("p", (PlottedCurve("c", [None, None], "c0"),)), [0, 1]) == ""


def test_a_band_is_an_area_for_each_stretch_where_both_ends_are_known():
    band = PlottedBand("b", [1, 2, None, 3, 4], [2, 3, 4, 5, None], "c0")
    panel = Panel("p", (PlottedCurve("c", [1, 2, 3, 4, 5], "c1"),), bands=(band,))
    areas = re.findall(r'<polygon class="c0 band" points="([^"]*)"', drawn(panel, [0, 1, 2, 3, 4]))
    assert [len(corners.split()) for corners in areas] == [4, 2]


def heights(svg: str) -> list[float]:
    points = re.search(r'points="([^"]*)"', svg)
    assert points is not None
    return [float(point.split(",")[1]) for point in points[1].split()]


def test_each_half_of_a_share_is_as_high_as_the_one_before():
    shares = [1, 1 / 2, 1 / 4, 1 / 32, 1 / 256]
    drawing = drawn(Panel("p", (PlottedCurve("c", shares, "c0"),), is_share=True), [0, 1, 2, 3, 4])
    at = np.array(heights(drawing))
    assert at == pytest.approx(at[0] + np.array([0, 1, 2, 5, 8]) * (at[4] - at[0]) / 8, abs=0.1)
    assert ">1/256<" in drawing
    assert ">1<" in drawing


@pytest.fixture(scope="module")
def result():
    return run(scenario(seconds=2, title="Less < more", claims={"goodput_min": 0.5}))[1]


def test_the_page_needs_nothing_else(result):
    page = to_html(result)
    assert "Less &lt; more" in page
    assert page.count("<svg") >= 6
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "all claims and invariants hold" in page


def test_what_must_never_be_is_on_the_page_and_in_the_data(result):
    broken = replace(result, problems=("1.0 s: tuples <lost>",))
    assert not broken.held
    assert "tuples &lt;lost&gt;" in to_html(broken)
    assert json.loads(broken.to_json())["problems"] == ["1.0 s: tuples <lost>"]
    assert json.loads(result.to_json())["claims"][0]["held"] is True


def test_the_ledger_is_told_over_time_and_ends_as_the_ledger_at_the_end():
    planned = scenario(control="none", forces=[{"at_s": 1, "level": 3}])
    world, result = run(planned)
    (ledger,) = world.ledgers.values()
    (query,) = ledger.queries
    for name in ("applied", "duplicate", "refused_rows", "dropped", "late"):
        values = [n for n in result.series.column(f"ledger.{name}") if n is not None]
        assert values == sorted(values)
        assert values[-1] == getattr(ledger, name), name
    columns = [result.series.column(f"ledger.q.{name}") for name in ("read", "thinned", "late")]
    for row in zip(*columns, result.series.column("ledger.applied"), strict=True):
        assert sum(row[:3]) == row[3]
    assert [column[-1] for column in columns] == [query.read, query.thinned, query.late]
    assert 0 < query.thinned < ledger.applied
    page = to_html(result)
    for title in ("Ledger: tuples (of the door, since the last start)", "Ledger of q: tuples"):
        assert f'aria-label="{title}"' in page
