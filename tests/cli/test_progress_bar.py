"""The bar of an answer that takes long: it reads the work by itself, and waits before it shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from shedder.archive.tasks.progress import Progress
from shedder.cli.progress_bar import Bar


def drawn(bar: Bar, console: Console) -> str:
    with console.capture() as captured:
        for part in bar.get_renderables():
            console.print(part)
    return captured.get()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def test_it_shows_how_far_the_work_is_without_being_told(console):
    bar, work = Bar(console, patience_s=0.0), Progress("answer from requests", "tuples", total=400)
    bar.follow(work)
    assert "0%" in drawn(bar, console)
    work.done = 100
    text = drawn(bar, console)
    assert "answer from requests" in text
    assert "25%" in text
    work.total = 1_000  # A plan may grow.
    assert "10%" in drawn(bar, console)
    work.what = "another step"
    assert "another step" in drawn(bar, console)


def test_an_answer_that_comes_soon_shows_no_bar(console):
    bar = Bar(console, patience_s=1e9)
    bar.follow(Progress("answer from requests", "tuples", total=10, done=9))
    assert drawn(bar, console) == ""
