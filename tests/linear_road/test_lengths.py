"""Command line of the Linear Road example."""

from __future__ import annotations

import pytest

from examples.linear_road.__main__ import arguments_of


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (180, 10, 1)),
        (["8"], (8, 10, 1)),
        (["8", "0"], (8, 0, 1)),
        (["8", "0", "2"], (8, 0, 2)),
    ],
)
def test_arguments_have_defaults(arguments: list[str], expected: tuple[int, int, int]) -> None:
    assert arguments_of(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["abc", "1"], "'abc'"),
        (["0", "0"], "minutes is 0; it is from 1 to 180"),
        (["181"], "minutes is 181; it is from 1 to 180"),
        (["--", "1", "-1"], "live is -1; it is 0 or more"),
        (["1", "1", "0"], "roads is 0; it is from 1 to 64"),
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
