"""Second moments of whole numbers in DuckDB's SQL, exact beyond the 53 bits of a DOUBLE.

A BIGINT v is h * 2^32 + l with 0 <= l < 2^32. Sums of h, l and their products are HUGEINTs, and so
are c(a, b) = n * sum(a b) - sum(a) * sum(b). Of these the centred moment of two numbers is

  n^2 cov(v, w) = 2^64 c(h, h') + 2^32 (c(h, l') + c(l, h')) + c(l, l').

It is added up in 128 bits where it fits. Where it does not, the high words differ so much that sums
of DOUBLEs cancel no digits.
"""

from __future__ import annotations

from typing import Final

from shedder.cql.expressions.expression import AggregateFunction

_WORD: Final = 1 << 32
_HELD_MAX: Final = 1 << 53  # DOUBLE tells whole numbers apart up to here.
_NAN: Final = "CAST('NaN' AS DOUBLE)"
_INFINITY: Final = "CAST('Infinity' AS DOUBLE)"
_COUNT_MAX: Final = 1 << 31  # Of fewer values every c(a, b) fits: it is below n^2 2^64 / 4.
_TOP_MAX: Final = 1 << 58  # Then the sum is below 2^122 + 2^125 + 2^124.
_MIDDLE_MAX: Final = 1 << 93


def _words(value: str) -> tuple[str, str]:
    """The high and the low word, as BIGINT and UBIGINT."""
    return f"({value} >> 32)", f"CAST({value} & {_WORD - 1} AS UBIGINT)"


def _centred(first: str, second: str, product: str) -> tuple[str, str]:
    """c(first, second), as HUGEINT and as DOUBLE."""
    parts = f"count({first})", f"sum({product})", f"sum({first})", f"sum({second})"
    return tuple(  # type: ignore[return-value]
        "({} * {} - {} * {})".format(*(f"CAST({part} AS {kind})" for part in parts))
        for kind in ("HUGEINT", "DOUBLE")
    )


def centred_moment(first: str, second: str) -> str:
    """n^2 times the covariance of two columns of BIGINT, NULL in the same rows; a DOUBLE."""
    (high, low), (other_high, other_low) = _words(first), _words(second)
    # The products fit: a low word is below 2^32, a high word at most 2^31.
    top = _centred(high, other_high, f"{high} * {other_high}")
    bottom = _centred(low, other_low, f"{low} * {other_low}")
    middles = [
        _centred(one, rest, f"{one} * CAST({rest} AS BIGINT)")
        for one, rest in dict.fromkeys(((high, other_low), (other_high, low)))
    ]
    sums = [" + ".join(each) for each in zip(*middles, strict=True)]
    middle = [f"({each})" if first != second else f"(2 * {each})" for each in sums]
    exact, rounded, double = (
        f"{_WORD * _WORD} * {a} + {_WORD} * {b} + {c}"
        for a, b, c in (
            (top[0], middle[0], bottom[0]),
            *(
                tuple(f"CAST({part[at]} AS DOUBLE)" for part in (top, middle, bottom))
                for at in (0, 1)
            ),
        )
    )
    fits = f"abs({top[0]}) < {_TOP_MAX} AND abs({middle[0]}) < {_MIDDLE_MAX}"
    inside = f"CASE WHEN {fits} THEN CAST({exact} AS DOUBLE) ELSE {rounded} END"
    return f"CASE WHEN count({first}) < {_COUNT_MAX} THEN {inside} ELSE {double} END"


def integer_variance(value: str) -> str:
    """VAR of the sample of a column of whole numbers; NULL for less than two values."""
    value = f"CAST({value} AS BIGINT)"
    count = f"CAST(count({value}) AS DOUBLE)"
    found = f"({centred_moment(value, value)}) / ({count} * ({count} - 1))"
    return f"CASE WHEN count({value}) >= 2 THEN {found} END"


def integer_pairs(
    function: AggregateFunction, first: str, second: str, *, whole: tuple[bool, bool]
) -> str:
    """A function of OF_PAIRS of two columns that are NULL in the same rows.

    NULL over any infinity, over nothing and where a column that is divided by is constant. Not
    finite where squares are beyond the range of DOUBLE.

    Args:
      function: which.
      first, second: x and y, of BIGINT or DOUBLE.
      whole: whether x and y are BIGINT; at least one is.
    """
    of_x, of_y = whole
    count = f"CAST(count({first}) AS DOUBLE)"
    squares = [
        f"(({centred_moment(each, each)}) / ({count} * {count}))"
        if is_whole
        else f"var_pop({each})"
        for each, is_whole in zip((first, second), whole, strict=True)
    ]
    if of_x and of_y:
        cross = f"(({centred_moment(first, second)}) / ({count} * {count}))"
    else:
        one, other = (first, second) if of_x else (second, first)
        high, low, whole_one = (
            f"covar_pop(CAST({part} AS DOUBLE), {other})" for part in (*_words(one), one)
        )
        held = f"min({one}) > -{_HELD_MAX} AND max({one}) < {_HELD_MAX}"
        # Beyond, the words apart, so that their spread costs digits and not the size.
        cross = f"(CASE WHEN {held} THEN {whole_one} ELSE {float(_WORD)!r} * {high} + {low} END)"
    conditions = [
        f"coalesce(max(abs({each})) < {_INFINITY}, FALSE)"
        for each, is_whole in zip((first, second), whole, strict=True)
        if not is_whole
    ]
    divided: list[str] = []
    varies = [f"coalesce(min({each}) < max({each}), FALSE)" for each in (first, second)]
    match function:
        case AggregateFunction.COVAR_POP:
            conditions.append(f"{count} >= 1")
            found = cross
        case AggregateFunction.COVAR_SAMP:
            conditions.append(f"{count} >= 2")
            found = f"{cross} * ({count} / ({count} - 1))"
        case AggregateFunction.CORR:
            conditions += varies
            divided = squares
            found = f"{cross} / (sqrt({squares[0]}) * sqrt({squares[1]}))"
            found = f"greatest(-1e0, least(1e0, {found}))"  # Rounding may take it past its ends.
        case AggregateFunction.REGR_SLOPE | AggregateFunction.REGR_INTERCEPT:
            conditions.append(varies[1])
            divided = [squares[1]]
            found = f"{cross} / {squares[1]}"
            if function is AggregateFunction.REGR_INTERCEPT:
                found = f"avg({first}) - {found} * avg({second})"
        case _:
            raise AssertionError(function)
    lost = [f"NOT ({each} > 0 AND {each} < {_INFINITY})" for each in divided if "var_pop" in each]
    known = [f"WHEN {' OR '.join(lost)} THEN {_NAN}"] if lost else []
    refused = f"WHEN NOT ({' AND '.join(conditions)}) THEN NULL"
    return f"CASE {refused} {' '.join(known)} ELSE coalesce({found}, {_NAN}) END"
