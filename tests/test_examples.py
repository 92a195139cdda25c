"""The examples run as their first lines say."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.documents import ROOT, Console, Step

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as stack:
        yield Console(tmp_path, stack)


def test_the_embedded_example_shows_its_three_answers(console):
    code, output = console.run(Step("python -m examples.embedded", ()))
    assert code == 0, output
    assert [word in output for word in ("busiest", "30 %", "exactly")] == [True] * 3


def test_the_grpc_example_subscribes_to_what_it_pushes(console):
    console.run(Step("shedder serve --data ./data --listen 127.0.0.1:7077 --insecure &", ()))
    code, output = console.run(Step("python -m examples.over_grpc localhost:7077", ()))
    assert code == 0, output
    assert "minute from 10:5" in output


def test_every_example_is_run_here_or_by_a_page():
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert names == {"embedded", "over_grpc", "requests"}
