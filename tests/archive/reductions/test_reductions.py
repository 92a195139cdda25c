"""r-UDFs: what the built-in ones want, and what becomes of wrong names, arguments and words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Event
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.metadata.catalog_entries import RunBasics
from shedder.archive.reductions.reduction import (
    BlockStatistics,
    Reduction,
    ScanStatistics,
    Surroundings,
)
from shedder.archive.reductions.registry import NamedReduction, reduction_of
from shedder.cql.statements import statement
from shedder.errors import BadQuery, BadReduction, Cancelled, UnknownReduction
from tests.queries.asking import SCHEMA

HOUR_US = 3_600_000_000
BLOCK = BlockStatistics(
    rows=1_000_000,
    blocks=64,
    start_us=0,
    end_us=10 * HOUR_US,
    newest_us=12 * HOUR_US,
    columns={"bytes": RunBasics(0, 1.0, 50.0), "client": RunBasics(3, None, None)},
    scan=ScanStatistics(rows=20_000_000),
)


def made(name: str, *arguments: float | str, load: float = 0.0) -> NamedReduction:
    return reduction_of(
        statement.ReductionClause(name, arguments), Surroundings(SCHEMA, lambda: load)
    )


@given(st.floats(0.0, 0.999))
def test_uniform_wants_the_same_everywhere(reduction):
    assert made("uniform", reduction).wanted(BLOCK) == reduction


@pytest.mark.parametrize(("end", "wanted"), [(12, 0.0), (11, 0.5), (10, 0.75), (0, 0.9), (13, 0.0)])
def test_by_age_halves_what_is_read_with_every_half_life(end, wanted):
    block = replace(BLOCK, end_us=end * HOUR_US)
    assert made("by_age", "1 hour", 0.9).wanted(block) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("load", "wanted"), [(0.0, 0.0), (0.5, 0.4), (1.0, 0.8), (7.0, 0.8), (-1, 0)]
)
def test_by_load_follows_the_live_load(load, wanted):
    assert made("by_load", 0.8, load=load).wanted(BLOCK) == pytest.approx(wanted)


def test_by_load_looks_anew_before_every_run():
    loads = iter([0.0, 1.0])
    around = Surroundings(SCHEMA, lambda: next(loads))
    reduction = reduction_of(statement.ReductionClause("by_load", (0.5,)), around)
    assert [reduction.wanted(BLOCK), reduction.wanted(BLOCK)] == [0.0, 0.5]


@pytest.mark.parametrize(("low", "high", "wanted"), [(40, 60, 0.0), (50, 50, 0.0), (51, 60, 0.9)])
def test_by_value_reads_in_full_where_the_values_are(low, high, wanted):
    assert made("by_value", "bytes", low, high, 0.9).wanted(BLOCK) == wanted


def test_by_value_leaves_out_a_run_without_any_value():
    assert made("by_value", "client", 0, 1e9, 0.9).wanted(BLOCK) == 0.9


def test_until_error_wants_a_pilot_and_then_what_the_error_asks_for():
    reduction = made("until_error", 20_000)
    assert reduction.reads_on
    assert reduction.wanted(BLOCK) == pytest.approx(1 - 20_000 / 20_000_000)
    scan = ScanStatistics(rows=20_000_000, rows_read=20_000, look=1, error=4.0)
    later = reduction.wanted(replace(BLOCK, scan=scan))
    assert 1 - 16 * 1.3 * 20_000 / 20_000_000 < later < 1 - 16 * 0.7 * 20_000 / 20_000_000


def test_until_error_reads_no_less_than_a_pilot_whatever_a_smaller_sample_said():
    reduction = made("until_error", 20_000)
    for error in (1.5, float("inf")):
        scan = ScanStatistics(rows=20_000_000, rows_read=1_000, look=1, error=error)
        wanted = reduction.wanted(replace(BLOCK, scan=scan))
        assert wanted == pytest.approx(1 - 20_000 / 20_000_000)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownReduction, match=r"'newest'.*by_age, by_load, .*uniform, until_e"):
        made("newest")


def test_names_are_found_in_any_case():
    assert made("UNIFORM", 0.5).wanted(BLOCK) == 0.5


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("uniform", (), r"missing.*'reduction'.*uniform\(reduction"),
        ("uniform", (0.1, 0.2), "too many"),
        ("uniform", (1.0,), "less than 1, not 1"),
        ("uniform", (-0.1,), "0 or more"),
        ("uniform", (float("nan"),), "not nan"),
        ("uniform", ("half",), "a number, not 'half'"),
        ("by_age", (7.0,), "a text in quotes, not 7"),
        ("by_age", ("soon",), "soon"),
        ("by_age", ("0 hours",), "more than 0"),
        ("by_age", ("1 hour", 1.5), "less than 1"),
        ("by_load", (2.0,), "less than 1"),
        ("by_value", ("size", 0.0, 1.0, 0.5), "client, bytes; not 'size'"),
        ("by_value", ("bytes", 2.0, 1.0, 0.5), "low 2 is above high 1"),
        ("until_error", (0.0,), "1 or more, not 0"),
    ],
)
def test_wrong_arguments_are_named(name, arguments, says):
    with pytest.raises(BadQuery, match=says):
        made(name, *arguments)


@dataclass(frozen=True)
class Says:
    """An r-UDF that says one thing, or raises it."""

    word: object
    reads_on: ClassVar[bool] = False

    def wanted(self, block: BlockStatistics) -> float:
        if isinstance(self.word, BaseException):
            raise self.word
        return self.word


@pytest.mark.parametrize(
    "word", [1.0, -0.1, float("nan"), float("inf"), None, "0.5", True, [0.5], 1 + 2j]
)
def test_what_is_no_reduction_is_refused_with_the_name_and_the_word(word):
    reduction: Reduction = Says(word)
    with pytest.raises(BadReduction, match=r"mine\(1\) wants .*must be a number in \[0, 1\)"):
        NamedReduction("mine(1)", reduction).wanted(BLOCK)


def test_one_that_raises_fails_with_its_name():
    with pytest.raises(BadReduction, match=r"mine\(\) failed: KeyError: 'speed'"):
        NamedReduction("mine()", Says(KeyError("speed"))).wanted(BLOCK)


@pytest.mark.parametrize("error", [Cancelled("enough"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_it_raises_is_its_own_failure(error):
    """Else it would call off the question, or end the server."""
    with pytest.raises(BadReduction, match=rf"mine\(\) failed: {type(error).__name__}"):
        NamedReduction("mine()", Says(error)).wanted_of([BLOCK])


class Evasive:
    """Not a word of whether it reads on; what it wants is no number, whatever it looks like."""

    def wanted(self, block: BlockStatistics) -> object:
        return self

    def __float__(self) -> float:
        raise OverflowError("too much")


def test_one_that_is_no_reduction_fails_by_name():
    mine = NamedReduction("mine()", Evasive())
    with pytest.raises(BadReduction, match=r"mine\(\) failed: AttributeError: .*reads_on"):
        assert mine.reads_on
    with pytest.raises(BadReduction, match=r"mine\(\) failed: OverflowError: too much"):
        mine.wanted_of([BLOCK])


def test_one_that_hangs_is_not_waited_for_by_who_is_called_off():
    begun, go = Event(), Event()

    class Hanging(Says):
        def wanted(self, block: BlockStatistics) -> float:
            begun.set()
            go.wait()
            return 0.5

    def on_progress() -> None:
        if begun.is_set():
            raise Cancelled("the caller left")

    with pytest.raises(Cancelled, match="the caller left"):
        NamedReduction("mine()", Hanging(0)).wanted_of([BLOCK], on_progress)
    go.set()


def test_one_that_cannot_be_made_fails_with_its_name():
    def broken(surroundings: Surroundings) -> Reduction:
        raise OSError("no such device")

    with pytest.raises(BadReduction, match=r"mine\(\) cannot be made: OSError: no such device"):
        reduction_of(
            statement.ReductionClause("mine", ()),
            Surroundings(SCHEMA, lambda: 0.0),
            {"mine": broken},
        )
