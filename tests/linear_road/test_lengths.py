"""Command line of the Linear Road example."""

from __future__ import annotations

import pytest

from examples.linear_road.__main__ import lengths


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], (180, 10)), (["8"], (8, 10)), (["8", "0"], (8, 0))]
)
def test_lengths_have_defaults(arguments: list[str], expected: tuple[int, int]) -> None:
    assert lengths(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["abc", "1"], "'abc'"),
        (["0", "0"], "minutes is 0; it is from 1 to 180"),
        (["181"], "minutes is 181; it is from 1 to 180"),
        (["--", "1", "-1"], "live is -1; it is 0 or more"),
        (["1", "1", "1"], "unrecognized arguments: 1"),
    ],
)
def test_lengths_that_cannot_be_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        lengths(arguments)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
