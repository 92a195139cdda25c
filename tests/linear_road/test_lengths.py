"""Command line of the Linear Road example."""

from __future__ import annotations

import pytest

from examples.linear_road.__main__ import RoadArguments, arguments_of


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], RoadArguments(180, 10, 1, 0, False)),
        (["8"], RoadArguments(8, 10)),
        (["8", "0"], RoadArguments(8, 0)),
        (["8", "0", "2"], RoadArguments(8, 0, 2)),
        (["8", "4", "--questions", "200"], RoadArguments(8, 4, 1, 200)),
        (["1", "3", "64", "--capacity"], RoadArguments(1, 3, 64, 0, True)),
    ],
)
def test_arguments_have_defaults(arguments: list[str], expected: RoadArguments) -> None:
    assert arguments_of(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["abc", "1"], "'abc'"),
        (["0", "0"], "minutes is 0; it is from 1 to 180"),
        (["181"], "minutes is 181; it is from 1 to 180"),
        (["--", "1", "-1"], "live is -1; it is 0 or more"),
        (["1", "1", "0"], "roads is 0; it is from 1 to 64"),
        (["1", "2", "--questions", "-1"], "--questions is -1; it is from 0 to 6000"),
        (["1", "3", "--questions", "9"], "live is 3; with --questions it is even"),
        (["1", "0", "--questions", "9"], "live is 0; with --questions it is even"),
        (["1", "0", "--capacity"], "--capacity needs live"),
        (["1", "2", "--capacity", "--questions", "9"], "has no --questions"),
        (["1", "1", "1", "1"], "unrecognized arguments: 1"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments_of(arguments)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
