"""Questions of the tour."""

from __future__ import annotations

from typing import NamedTuple


class DemoQuery(NamedTuple):
    """A standing query: its name, what it tells, and its text."""

    name: str
    tells: str
    sql: str


class AdHoc(NamedTuple):
    """A question that is asked once, and what it tells."""

    tells: str
    sql: str


STANDING = (
    DemoQuery(
        "delays_by_carrier",
        "flights and mean delay of each carrier, last 30 days",
        """SELECT carrier, COUNT(*) AS flights, AVG(dep_delay) AS delay
FROM flights [RANGE INTERVAL '30' DAY SLIDE INTERVAL '1' DAY]
GROUP BY carrier WITHIN 5 PERCENT""",
    ),
    DemoQuery(
        "aircraft",
        "different aircraft seen, last 30 days",
        """SELECT COUNT(DISTINCT tailnum) AS aircraft
FROM flights [RANGE INTERVAL '30' DAY SLIDE INTERVAL '1' DAY]
WITHIN 4 PERCENT""",
    ),
    DemoQuery(
        "aircraft_by_airport",
        "different aircraft at each airport, last 90 days",
        """SELECT origin, COUNT(DISTINCT tailnum) AS aircraft
FROM flights [RANGE INTERVAL '90' DAY SLIDE INTERVAL '3' DAY]
GROUP BY origin WITHIN 5 PERCENT""",
    ),
    DemoQuery(
        "late_arrivals",
        "99th percentile of arrival delay by airport, last 14 days",
        """SELECT origin, QUANTILE(arr_delay, 0.99) AS p99, MEDIAN(air_time) AS typical
FROM flights [RANGE INTERVAL '14' DAY SLIDE INTERVAL '12' HOUR]
GROUP BY origin WITHIN 1 PERCENT""",
    ),
    DemoQuery(
        "busiest_routes",
        "the five busiest routes, last 60 days",
        """SELECT TOP(origin || '-' || dest, 5) AS routes
FROM flights [RANGE INTERVAL '60' DAY SLIDE INTERVAL '2' DAY]
WITHIN 1 PERCENT""",
    ),
    DemoQuery(
        "busiest_aircraft",
        "the five busiest aircraft since January",
        """SELECT TOP(tailnum, 5) AS aircraft
FROM flights [FROM TIMESTAMP '2013-01-01 00:00:00']
WITHIN 5 PERCENT""",
    ),
    DemoQuery(
        "cancelled",
        "share of flights cancelled, last 7 days",
        """SELECT AVG(CASE WHEN dep_delay IS NULL THEN 1.0 ELSE 0.0 END) AS share
FROM flights [RANGE INTERVAL '7' DAY SLIDE INTERVAL '6' HOUR]
WITHIN 2 PERCENT""",
    ),
    DemoQuery(
        "year",
        "destinations, aircraft and spread of delays since January",
        """SELECT COUNT(DISTINCT dest) AS places, COUNT(DISTINCT tailnum) AS aircraft,
  STDDEV(arr_delay) AS spread, QUANTILE(dep_delay, 0.9) AS p90
FROM flights [FROM TIMESTAMP '2013-01-01 00:00:00']
WITHIN 3 PERCENT""",
    ),
)

AD_HOC = (
    AdHoc(
        "departures more than an hour late",
        "SELECT COUNT(*) AS flights FROM flights WHERE dep_delay > 60 WITHIN 10 PERCENT",
    ),
    AdHoc(
        "miles flown",
        "SELECT SUM(distance) AS miles FROM flights WITHIN 3 PERCENT",
    ),
    AdHoc(
        "mean arrival delay from JFK in summer",
        """SELECT AVG(arr_delay) AS minutes
FROM flights [FROM TIMESTAMP '2013-06-01 00:00:00' TO TIMESTAMP '2013-09-01 00:00:00']
WHERE origin = 'JFK' WITHIN 50 PERCENT CONFIDENCE 99 PERCENT""",
    ),
    AdHoc(
        "typical air time to Los Angeles",
        "SELECT MEDIAN(air_time) AS minutes FROM flights WHERE dest = 'LAX' WITHIN 5 PERCENT",
    ),
    AdHoc(
        "one in twenty leaves later than this",
        "SELECT QUANTILE(dep_delay, 0.95) AS minutes FROM flights WITHIN 20 PERCENT",
    ),
    AdHoc(
        "flights and mean distance by airport",
        """SELECT origin, COUNT(*) AS flights, AVG(distance) AS miles FROM flights
GROUP BY origin WITHIN 10 PERCENT""",
    ),
    AdHoc(
        "flights more than two hours late by carrier, as well as a small sample can tell",
        """SELECT carrier, COUNT(*) AS late FROM flights
WHERE arr_delay > 120 GROUP BY carrier WITHIN 1000000 ABSOLUTE""",
    ),
    AdHoc(
        "February, exactly",
        """SELECT origin, COUNT(*) AS flights, AVG(dep_delay) AS delay
FROM flights [FROM TIMESTAMP '2013-02-01 00:00:00' TO TIMESTAMP '2013-03-01 00:00:00']
GROUP BY origin""",
    ),
)
