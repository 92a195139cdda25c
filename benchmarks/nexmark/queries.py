"""Queries of NEXMark in CQL, and in SQL of DuckDB over the events before an instant.

Source: the queries as Apache Beam and Apache Flink run them (github.com/nexmark/nexmark). Flink
keeps both sides of q3, q4, q9 and q20 for ever. Here these have windows of an hour: longer than an
auction.

- q10 writes bids into files by day and minute; here a view has them, whose archive is in Parquet.
- q12 is by the time of processing; it stands here by event time.
- q14 counts a letter of the texts without meaning, which `events.py` leaves out; here of the URL.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query in both languages.

    cql: the relation as of an instant. sql: the same in DuckDB; `us` is the event time of a row and
    {e} the instant, both in microseconds. standing: a standing row query can say it.
    setup: statements before it. views: those of the setup that it reads.
    """

    cql: str
    sql: str
    standing: bool = True
    setup: tuple[str, ...] = ()
    views: tuple[str, ...] = ()


_KEPT = "[RANGE 1 HOUR]"
_TUMBLING = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
_IN_TUMBLING = "us >= {e} // 10000000 * 10000000 - 10000000 AND us < {e} // 10000000 * 10000000"
_HOPPING = "[RANGE 10 SECONDS SLIDE 2 SECONDS]"
_IN_HOPPING = "us >= {e} // 2000000 * 2000000 - 10000000 AND us < {e} // 2000000 * 2000000"
_COUNTS = f"(SELECT auction, COUNT(*) AS num FROM bid {_HOPPING} GROUP BY auction)"
_OPEN = "b.auction = a.id AND b.ts >= a.ts AND b.ts <= a.expires"
_OPEN_SQL = f"{_OPEN} AND a.us < {{e}} AND b.us < {{e}}"
_RANKS = {"1": "price < 10000", "2": "price >= 10000 AND price < 1000000", "3": "price >= 1000000"}
_RANK_COUNTS = ", ".join(
    f"COUNT(*) FILTER (WHERE {condition}) AS rank{rank}" for rank, condition in _RANKS.items()
)
_RANK_DISTINCT = ", ".join(
    f"COUNT(DISTINCT {column}) FILTER (WHERE {condition}) AS {column}s{rank}"
    for column in ("bidder", "auction")
    for rank, condition in _RANKS.items()
)
_STATISTICS = (
    f"COUNT(*) AS total, {_RANK_COUNTS}, COUNT(DISTINCT bidder) AS bidders, "
    f"COUNT(DISTINCT auction) AS auctions, {_RANK_DISTINCT}"
)
_DAY = "DATE_TRUNC('day', ts)"
_PRICES = "MIN(price) AS low, MAX(price) AS high, AVG(price) AS mean, SUM(price) AS total_price"
_CHANNEL_ID = (
    "CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' "
    "WHEN 'baidu' THEN '3' ELSE {} END"
)
_BID_TIME = (
    "CASE WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'dayTime' "
    "WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END"
)
# Auctions by their end. The longest auction of the generator takes less than the lateness.
_CLOSING = (
    (
        "CREATE STREAM closing (ts TIMESTAMP NOT NULL, id BIGINT, seller BIGINT, opened TIMESTAMP) "
        "TIMESTAMP BY ts LATENESS 1 HOUR"
    ),
    (
        "CREATE QUERY closings AS INSERT INTO closing (ts, id, seller, opened) "
        "SELECT expires, id, seller, ts FROM auction"
    ),
    (
        "CREATE VIEW sold AS SELECT ISTREAM(c.id, c.seller, MAX(b.price) AS final) "
        f"FROM closing [NOW] c JOIN bid {_KEPT} b "
        "ON c.id = b.auction AND b.ts >= c.opened AND b.ts <= c.ts GROUP BY c.id, c.seller"
    ),
)
_NEWEST_TWO = "[PARTITION BY bidder ROWS 2]"
# First bids of sessions: the one before is more than ten seconds older, or there is none.
_OPENING = (
    (
        "CREATE VIEW opening AS SELECT ISTREAM(t.bidder, t.opened) FROM ("
        f"SELECT n.bidder, n.ts AS opened FROM bid {_NEWEST_TWO} n JOIN bid {_NEWEST_TWO} p "
        "ON n.bidder = p.bidder AND p = PREV(n) WHERE n.ts > p.ts + INTERVAL '10' SECOND "
        f"UNION ALL SELECT bidder, MAX(ts) AS opened FROM bid {_NEWEST_TWO} "
        "GROUP BY bidder HAVING COUNT(*) = 1) t"
    ),
)
_HIGHER = "b.auction = c.auction AND (c.price > b.price OR (c.price = b.price AND c.ts < b.ts))"
_HOT = "LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
_ID_IN_URL = r"REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_ID_BY_SPLIT = "string_split(url, '&channel_id=')[2]"
_DATED = (
    (
        "CREATE VIEW dated AS SELECT auction, bidder, price, STRFTIME(ts, '%Y-%m-%d') AS day, "
        "STRFTIME(ts, '%H:%M') AS minute FROM bid"
    ),
)

QUERIES = {
    "q0": NexmarkQuery(
        "SELECT auction, bidder, price, ts FROM bid",
        "SELECT auction, bidder, price, ts FROM bid WHERE us < {e}",
    ),
    "q1": NexmarkQuery(
        "SELECT auction, bidder, 0.908 * price AS euros, ts FROM bid",
        "SELECT auction, bidder, 0.908::DOUBLE * price, ts FROM bid WHERE us < {e}",
    ),
    "q2": NexmarkQuery(
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        "SELECT auction, price FROM bid WHERE auction % 123 = 0 AND us < {e}",
    ),
    "q3": NexmarkQuery(
        f"SELECT p.name, p.city, p.state, a.id FROM auction {_KEPT} a JOIN person {_KEPT} p "
        "ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA') AND a.us < {e} AND p.us < {e}",
    ),
    "q4": NexmarkQuery(
        "SELECT t.category, AVG(t.final) AS mean FROM (SELECT a.id, a.category, "
        f"MAX(b.price) AS final FROM auction {_KEPT} a JOIN bid {_KEPT} b ON {_OPEN} "
        "GROUP BY a.id, a.category) t GROUP BY t.category",
        "SELECT category, avg(final) FROM (SELECT a.id, a.category, max(b.price) AS final "
        f"FROM auction a JOIN bid b ON {_OPEN_SQL} GROUP BY ALL) GROUP BY category",
    ),
    "q5": NexmarkQuery(
        f"SELECT a.auction, a.num FROM {_COUNTS} a JOIN (SELECT MAX(num) AS most FROM {_COUNTS} c) "
        "m ON a.num = m.most",
        f"SELECT auction, count(*) AS num FROM bid WHERE {_IN_HOPPING} GROUP BY auction "
        "QUALIFY num = max(num) OVER ()",
    ),
    "q6": NexmarkQuery(
        "SELECT seller, AVG(final) AS mean FROM sold [PARTITION BY seller ROWS 10] GROUP BY seller",
        "SELECT seller, avg(final) FROM (SELECT a.seller, max(b.price) AS final, a.expires "
        "FROM auction a JOIN bid b ON b.auction = a.id AND b.ts >= a.ts AND b.ts <= a.expires "
        "WHERE epoch_us(a.expires) < {e} GROUP BY a.id, a.seller, a.expires QUALIFY row_number() "
        "OVER (PARTITION BY a.seller ORDER BY a.expires DESC) <= 10) GROUP BY seller",
        setup=_CLOSING,
        views=("sold",),
    ),
    "q7": NexmarkQuery(
        f"SELECT b.auction, b.bidder, b.price FROM bid {_TUMBLING} b JOIN "
        f"(SELECT MAX(price) AS top FROM bid {_TUMBLING}) m ON b.price = m.top",
        f"SELECT auction, bidder, price FROM bid WHERE {_IN_TUMBLING} "
        "QUALIFY price = max(price) OVER ()",
    ),
    "q8": NexmarkQuery(
        f"SELECT DISTINCT p.id, p.name FROM person {_TUMBLING} p JOIN auction {_TUMBLING} a "
        "ON p.id = a.seller",
        f"SELECT id, name FROM person WHERE {_IN_TUMBLING} AND id IN "
        f"(SELECT seller FROM auction WHERE {_IN_TUMBLING})",
    ),
    "q9": NexmarkQuery(
        f"SELECT a.id, b.bidder, b.price FROM auction {_KEPT} a JOIN bid {_KEPT} b ON {_OPEN} "
        f"WHERE NOT EXISTS (SELECT * FROM bid {_KEPT} c WHERE c.auction = a.id AND c.ts >= a.ts "
        "AND c.ts <= a.expires AND (c.price > b.price OR (c.price = b.price AND c.ts < b.ts)))",
        f"SELECT a.id, b.bidder, b.price FROM auction a JOIN bid b ON {_OPEN_SQL} "
        "QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.us) = 1",
    ),
    "q10": NexmarkQuery(
        "SELECT auction, bidder, price, day, minute FROM dated",
        "SELECT auction, bidder, price, ts::DATE::VARCHAR, left(ts::TIME::VARCHAR, 5) FROM bid "
        "WHERE us < {e}",
        setup=_DATED,
        views=("dated",),
    ),
    "q11": NexmarkQuery(
        "SELECT t.bidder, t.opened, COUNT(*) AS bids, MAX(t.ts) AS newest FROM ("
        f"SELECT b.bidder, b.ts, MAX(s.opened) AS opened FROM bid {_KEPT} b JOIN opening {_KEPT} s "
        "ON b.bidder = s.bidder AND s.opened <= b.ts GROUP BY b.bidder, b.ts) t "
        "GROUP BY t.bidder, t.opened",
        "SELECT bidder, min(ts), count(*), max(ts) FROM (SELECT bidder, ts, sum(first) OVER "
        "(PARTITION BY bidder ORDER BY us) AS session FROM (SELECT bidder, ts, us, "
        "((us - lag(us) OVER (PARTITION BY bidder ORDER BY us) <= 10000000) IS NOT TRUE)::INT "
        "AS first FROM bid WHERE us < {e})) GROUP BY bidder, session",
        setup=_OPENING,
        views=("opening",),
    ),
    "q12": NexmarkQuery(
        f"SELECT bidder, COUNT(*) AS bids FROM bid {_TUMBLING} GROUP BY bidder",
        f"SELECT bidder, count(*) FROM bid WHERE {_IN_TUMBLING} GROUP BY bidder",
        standing=False,
    ),
    "q13": NexmarkQuery(
        "SELECT b.auction, b.bidder, b.price, b.ts, s.value FROM bid b "
        "JOIN side s ON b.auction % 10000 = s.key",
        "SELECT b.auction, b.bidder, b.price, b.ts, s.value FROM bid b "
        "JOIN side s ON b.auction % 10000 = s.key WHERE b.us < {e}",
    ),
    "q14": NexmarkQuery(
        f"SELECT auction, bidder, 0.908 * price AS euros, {_BID_TIME} AS bid_time, ts, "
        "LENGTH(url) - LENGTH(REPLACE(url, 'c', '')) AS letters FROM bid "
        "WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
        f"SELECT auction, bidder, 0.908::DOUBLE * price AS euros, {_BID_TIME}, ts, "
        "len(string_split(url, 'c')) - 1 FROM bid "
        "WHERE euros > 1000000 AND euros < 50000000 AND us < {e}",
    ),
    "q15": NexmarkQuery(
        f"SELECT {_DAY} AS day, {_STATISTICS} FROM bid GROUP BY day",
        f"SELECT {_DAY} AS day, {_STATISTICS} FROM bid WHERE us < {{e}} GROUP BY day",
        standing=False,
    ),
    "q16": NexmarkQuery(
        f"SELECT channel, {_DAY} AS day, MAX(DATE_TRUNC('minute', ts)) AS newest, {_STATISTICS} "
        "FROM bid GROUP BY channel, day",
        f"SELECT channel, {_DAY} AS day, max(date_trunc('minute', ts)), {_STATISTICS} "
        "FROM bid WHERE us < {e} GROUP BY channel, day",
        standing=False,
    ),
    "q17": NexmarkQuery(
        f"SELECT auction, {_DAY} AS day, COUNT(*) AS total, {_RANK_COUNTS}, {_PRICES} "
        "FROM bid GROUP BY auction, day",
        f"SELECT auction, {_DAY} AS day, COUNT(*) AS total, {_RANK_COUNTS}, {_PRICES} "
        "FROM bid WHERE us < {e} GROUP BY auction, day",
        standing=False,
    ),
    "q18": NexmarkQuery(
        "SELECT auction, bidder, price, ts FROM bid [PARTITION BY bidder, auction ROWS 1]",
        "SELECT auction, bidder, price, ts FROM bid WHERE us < {e} "
        "QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY us DESC) = 1",
    ),
    "q19": NexmarkQuery(
        f"SELECT b.auction, b.bidder, b.price, b.ts FROM bid {_KEPT} b LEFT JOIN bid {_KEPT} c "
        f"ON {_HIGHER} GROUP BY b.auction, b.bidder, b.price, b.ts HAVING COUNT(c.ts) < 10",
        "SELECT auction, bidder, price, ts FROM bid WHERE us < {e} "
        "QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, us) <= 10",
    ),
    "q20": NexmarkQuery(
        "SELECT b.auction, b.bidder, b.price, b.channel, a.item, a.seller, a.category "
        f"FROM bid {_KEPT} b JOIN auction {_KEPT} a ON b.auction = a.id WHERE a.category = 10",
        "SELECT b.auction, b.bidder, b.price, b.channel, a.item, a.seller, a.category "
        "FROM bid b JOIN auction a ON b.auction = a.id "
        "WHERE a.category = 10 AND a.us < {e} AND b.us < {e}",
    ),
    "q21": NexmarkQuery(
        "SELECT auction, bidder, price, channel, "
        f"{_CHANNEL_ID.format(_ID_IN_URL)} AS channel_id FROM bid "
        f"WHERE {_ID_IN_URL} <> '' OR {_HOT}",
        "SELECT auction, bidder, price, channel, "
        f"{_CHANNEL_ID.format(_ID_BY_SPLIT)} FROM bid WHERE us < {{e}} "
        f"AND (contains(url, '&channel_id=') OR {_HOT})",
    ),
    "q22": NexmarkQuery(
        "SELECT auction, bidder, price, channel, SPLIT_PART(url, '/', 4) AS dir1, "
        "SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3 FROM bid",
        "SELECT auction, bidder, price, channel, dirs[4], dirs[5], dirs[6] FROM "
        "(SELECT *, string_split(url, '/') AS dirs FROM bid WHERE us < {e})",
    ),
}
