"""Durations, timestamps and dates as text: to microseconds and days, and back."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from fractions import Fraction

UNITS_US = {
    name: size
    for size, names in (
        (1, "MICROSECOND MICROSECONDS US"),
        (1_000, "MILLISECOND MILLISECONDS MS"),
        (1_000_000, "SECOND SECONDS SEC SECS S"),
        (60_000_000, "MINUTE MINUTES MIN MINS M"),
        (3_600_000_000, "HOUR HOURS H"),
        (86_400_000_000, "DAY DAYS D"),
        (604_800_000_000, "WEEK WEEKS W"),
        (0, "MONTH MONTHS QUARTER QUARTERS YEAR YEARS"),  # of no fixed length: refused
    )
    for name in names.split()
}

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1)
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_CLOCK = re.compile(r"\s*([0-9]{1,4}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,6})?))?\s*")


def interval_us(amount: str, unit: str | None) -> int:
    """The microseconds of '5' MINUTE, '1 hour 30 minutes' or '00:05:00'.

    Raises:
      ValueError: says what is wrong with it.
    """
    negative = amount.lstrip().startswith("-")
    rest = amount.lstrip().removeprefix("-")
    clock = _CLOCK.fullmatch(rest)
    if clock and unit is None:
        hours, minutes, seconds = int(clock[1]), int(clock[2]), Fraction(clock[3] or 0)
        total = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    else:
        total = _sum_of_parts(rest, unit)
    if total.denominator != 1:
        raise ValueError(f"{amount!r} {unit or ''}is not a whole number of microseconds")
    if total > INT64_MAX:
        raise ValueError(f"{amount!r} {unit or ''} is longer than time itself")
    return -int(total) if negative else int(total)


def _sum_of_parts(text: str, unit: str | None) -> Fraction:
    total, at = Fraction(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"{text!r} is not a duration; write INTERVAL '5' MINUTE")
        name = part[2].upper() or unit
        if name is None:
            raise ValueError(f"the duration {text!r} needs a unit, such as SECOND, MINUTE or DAY")
        total += Fraction(part[1]) * _unit_us(name)
        at = part.end()
    if at == 0:
        raise ValueError("the duration is empty; write INTERVAL '5' MINUTE")
    return total


def _unit_us(name: str) -> int:
    size = UNITS_US.get(name.upper())
    if size is None:
        raise ValueError(f"{name!r} is not a unit; MICROSECOND to WEEK are")
    if size == 0:
        raise ValueError(f"{name} is not a fixed length of time; use DAY or WEEK")
    return size


def duration_text(us: int) -> str:
    """INTERVAL '5' MINUTE: in the largest unit that divides it."""
    for unit in ("WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        if us and us % UNITS_US[unit] == 0:
            return f"INTERVAL '{us // UNITS_US[unit]}' {unit}"
    return f"INTERVAL '{us}' MICROSECOND"


def timestamp_us(text: str) -> int:
    """Microseconds since the epoch of '2026-01-01', '2026-01-01 10:42:07.5' or with +02:00.

    Without a zone it is UTC.

    Raises:
      ValueError: it is not a timestamp.
    """
    cleaned = text.strip()
    try:
        moment = datetime.fromisoformat(cleaned)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a timestamp; write '2026-01-31 10:42:07.123456'"
        ) from None
    return datetime_us(moment)


def datetime_us(moment: datetime) -> int:
    """Microseconds since the epoch; a moment without zone is UTC."""
    offset = moment.utcoffset() or timedelta()  # Taken off last: in UTC it may be of the year 0.
    return (moment.replace(tzinfo=None) - _EPOCH - offset) // timedelta(microseconds=1)


def date_days(text: str) -> int:
    """Days since the epoch of '2026-01-31'.

    Raises:
      ValueError: it is not a date.
    """
    try:
        return (date.fromisoformat(text.strip()) - _EPOCH_DAY).days
    except ValueError:
        raise ValueError(f"{text!r} is not a date; write '2026-01-31'") from None


def day_number(day: date) -> int:
    """Days since the epoch."""
    return (day - _EPOCH_DAY).days


def timestamp_text(us: int) -> str | None:
    """'2026-01-31 10:42:07.123456', or None outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
    return moment.isoformat(sep=" ")


def date_text(days: int) -> str | None:
    """'2026-01-31', or None outside the years 1 to 9999."""
    try:
        return (_EPOCH_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None
