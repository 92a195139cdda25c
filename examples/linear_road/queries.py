"""The queries of Linear Road in CQL.

The rules of Linear Road (Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB
2004), as public implementations of it have them; docs/linear_road.md says which:

- A car has stopped if four reports in a row have the same place. Two cars that have stopped at one
  place are an accident. It counts from the minute after it until the minute in which it is cleared,
  so in every minute at whose beginning the cars stand there.
- A car that enters a segment is notified of the nearest accident in this segment or in the next
  four.
- It is also notified of the segment's toll: 2 * (cars - 50)^2, if more than 50 cars were in the
  segment in the minute before, the latest average velocity is below 40 miles an hour, and no
  accident is in this segment or in the next four. Otherwise the toll is 0.
- The latest average velocity of a segment is the mean of its averages in the five minutes before,
  of those minutes that have cars. The average of a minute is the mean over cars of their averages.
- A car pays a toll when it leaves the segment for another one, and not on an exit ramp.

A car reports every 30 seconds, so the last two minutes have four reports of it.
"""

from __future__ import annotations

POSREPORTS = (
    "CREATE STREAM posreports (ts TIMESTAMP NOT NULL, vid BIGINT, spd BIGINT, xway BIGINT, "
    "lane BIGINT, dir BIGINT, seg BIGINT, pos BIGINT) TIMESTAMP BY ts"
)
TOLLS = "CREATE STREAM tolls (ts TIMESTAMP NOT NULL, vid BIGINT, toll BIGINT) TIMESTAMP BY ts"
BALANCES = "CREATE STREAM balances (ts TIMESTAMP NOT NULL, vid BIGINT, qid BIGINT) TIMESTAMP BY ts"
SPENT = (
    "CREATE TABLE spent (id BIGINT PRIMARY KEY, vid BIGINT, day BIGINT, xway BIGINT, toll BIGINT)"
)

# The cars whose newest four reports have one place.
STOPPED = """
    SELECT vid, xway, lane, dir, pos FROM posreports [PARTITION BY vid ROWS 4]
    GROUP BY vid, xway, lane, dir, pos HAVING COUNT(*) = 4
"""

_STANDING = """
    SELECT vid, xway, lane, dir, seg, pos FROM posreports [RANGE 2 MINUTES SLIDE 1 MINUTE]
    GROUP BY vid, xway, lane, dir, seg, pos HAVING COUNT(*) = 4
"""
_ACCIDENTS = f"""
    SELECT xway, dir, seg FROM ({_STANDING}) standing
    GROUP BY xway, lane, dir, seg, pos HAVING COUNT(*) >= 2
"""
_ENTERING = """
    SELECT p.ts, p.vid, p.xway, p.dir, p.seg FROM posreports [NOW] p
    WHERE p.lane <> 4 AND NOT EXISTS (
      SELECT * FROM posreports [RANGE 31 SECONDS] q
      WHERE q.vid = p.vid AND q.xway = p.xway AND q.dir = p.dir AND q.seg = p.seg AND q.ts < p.ts)
"""
_CARS = """
    SELECT xway, dir, seg, COUNT(*) AS cars
    FROM (SELECT DISTINCT vid, xway, dir, seg FROM posreports [RANGE 1 MINUTE SLIDE 1 MINUTE]) seen
    GROUP BY xway, dir, seg
"""
_VELOCITIES = """
    SELECT xway, dir, seg, AVG(speed) AS lav FROM (
      SELECT minute, xway, dir, seg, AVG(speed) AS speed FROM (
        SELECT DATE_TRUNC('minute', ts) AS minute, vid, xway, dir, seg, AVG(spd) AS speed
        FROM posreports [RANGE 5 MINUTES SLIDE 1 MINUTE]
        GROUP BY DATE_TRUNC('minute', ts), vid, xway, dir, seg) by_car
      GROUP BY minute, xway, dir, seg) by_minute
    GROUP BY xway, dir, seg
"""
_AHEAD = "(a.seg - {0}.seg) * (1 - 2 * {0}.dir) BETWEEN 0 AND 4"

ACCIDENT_NOTICES = f"""
    SELECT ISTREAM(n.vid, n.seg, n.seg + n.miles * (1 - 2 * n.dir) AS accident) FROM (
      SELECT e.ts, e.vid, e.dir, e.seg, MIN((a.seg - e.seg) * (1 - 2 * e.dir)) AS miles
      FROM ({_ENTERING}) e JOIN ({_ACCIDENTS}) a
      ON e.xway = a.xway AND e.dir = a.dir AND {_AHEAD.format("e")}
      GROUP BY e.ts, e.vid, e.dir, e.seg) n
"""

TOLL_NOTICES = f"""
    WITH congested AS (
      SELECT c.xway, c.dir, c.seg, 2 * (c.cars - 50) * (c.cars - 50) AS toll
      FROM ({_CARS}) c JOIN ({_VELOCITIES}) v
      ON c.xway = v.xway AND c.dir = v.dir AND c.seg = v.seg
      WHERE c.cars > 50 AND v.lav < 40 AND NOT EXISTS (
        SELECT * FROM ({_ACCIDENTS}) a
        WHERE a.xway = c.xway AND a.dir = c.dir AND {_AHEAD.format("c")}))
    SELECT ISTREAM(e.vid, e.seg, v.lav, COALESCE(t.toll, 0) AS toll)
    FROM ({_ENTERING}) e
    LEFT JOIN ({_VELOCITIES}) v ON e.xway = v.xway AND e.dir = v.dir AND e.seg = v.seg
    LEFT JOIN congested t ON e.xway = t.xway AND e.dir = t.dir AND e.seg = t.seg
"""

# All tolls of a car but the newest, which it pays when it leaves the segment.
BALANCE_ANSWERS = """
    SELECT ISTREAM(r.qid, r.vid, COALESCE(s.total - n.toll, 0) AS balance)
    FROM balances [NOW] r
    LEFT JOIN (SELECT vid, SUM(toll) AS total FROM tolls [RANGE 1 DAY] GROUP BY vid) s
    ON r.vid = s.vid
    LEFT JOIN tolls [PARTITION BY vid ROWS 1] n ON r.vid = n.vid
"""

# The toll of a car on a day, for many requests at once: the key of `spent` is that of car and day.
EXPENDITURES = "SELECT vid, day, toll FROM spent WHERE id IN ({}) AND xway = 0"

STANDING = {
    "toll_notices": TOLL_NOTICES,
    "accident_notices": ACCIDENT_NOTICES,
    "balance_answers": BALANCE_ANSWERS,
}
