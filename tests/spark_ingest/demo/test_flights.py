"""The packaged flights become the stream that the demo promises."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from spark_ingest.flights import FLIGHTS, SCHEMA, load_flights


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


def test_all_flights_are_there_with_the_columns_of_the_stream(flights):
    assert flights.num_rows == FLIGHTS
    assert flights.schema == SCHEMA


def test_flights_come_in_the_order_of_their_scheduled_departure(flights):
    ts = flights["ts"].to_numpy()
    assert (np.diff(ts) >= np.timedelta64(0)).all()
    assert flights["ts"][0].as_py() == dt.datetime(2013, 1, 1, 5, 15)
    assert flights["ts"][FLIGHTS - 1].as_py() == dt.datetime(2013, 12, 31, 23, 59)


def test_cancelled_flights_keep_their_nulls(flights):
    nulls = {name: flights[name].null_count for name in flights.column_names}
    assert nulls["dep_delay"] == 8_255
    assert nulls["arr_delay"] == 9_430
    assert nulls["tailnum"] == 2_512
    assert nulls["ts"] == nulls["carrier"] == nulls["distance"] == 0


def test_the_first_flight_of_the_file_is_read_as_it_was_written(flights):
    first = [row for row in flights.slice(0, 20).to_pylist() if row["tailnum"] == "N14228"]
    assert first == [
        {
            "ts": dt.datetime(2013, 1, 1, 5, 15),
            "carrier": "UA",
            "flight": 1545,
            "tailnum": "N14228",
            "origin": "EWR",
            "dest": "IAH",
            "dep_delay": 2.0,
            "arr_delay": 11.0,
            "air_time": 227.0,
            "distance": 1400.0,
        }
    ]
