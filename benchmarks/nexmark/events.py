"""Events of NEXMark: persons, auctions and bids of an auction house, 1 : 3 : 46.

Source: Tucker, Tufte, Papadimos, Maier, "NEXMark - A Benchmark for Queries over Data Streams",
2002, as the generator of Apache Beam (org.apache.beam.sdk.nexmark.sources.generator) fixes it:
proportions, hot keys, prices, categories and the length of auctions are its defaults. Its texts
without meaning (`extra`) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

START_US = 1_767_225_600_000_000  # 2026-01-01.
EVENT_US = 100  # Between two events: 10,000 events a second of event time, as in Beam.
GROUP = 50  # Events of one period: a person, three auctions, 46 bids.
PERSONS, AUCTIONS = 1, 3
FIRST_ID = 1_000  # Of persons and auctions.
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS = 1_000  # Newest persons that sell and bid.
OPEN_AUCTIONS = 100  # Newest auctions that have bids.
IDS_AHEAD = 10  # A bid may come before its auction, and an auction before its seller.
HOT_KEYS = 100  # Every hundredth person and auction is hot for a while.
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4  # One in so many is not a hot one.
AUCTION_EVENTS = 2 * OPEN_AUCTIONS * GROUP // AUCTIONS  # The longest auction.

CREATE = {
    "person": "CREATE STREAM person (ts TIMESTAMP NOT NULL, id BIGINT, name VARCHAR, "
    "email VARCHAR, card VARCHAR, city VARCHAR, state VARCHAR) TIMESTAMP BY ts",
    "auction": "CREATE STREAM auction (ts TIMESTAMP NOT NULL, id BIGINT, item VARCHAR, "
    "initial BIGINT, reserve BIGINT, expires TIMESTAMP, seller BIGINT, category BIGINT) "
    "TIMESTAMP BY ts",
    "bid": "CREATE STREAM bid (ts TIMESTAMP NOT NULL, auction BIGINT, bidder BIGINT, "
    "price BIGINT, channel VARCHAR, url VARCHAR) TIMESTAMP BY ts",
}

# The table that q13 joins with bids.
CREATE_SIDE = "CREATE TABLE side (key BIGINT PRIMARY KEY, value VARCHAR)"
SIDE_ROWS = 10_000

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
)
_LAST_NAMES = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Auctions:
    """An auction house; the same seed gives the same events.

    event_us: microseconds between two events.
    """

    seed: int = 1
    event_us: int = EVENT_US

    def events(self, first: int, count: int) -> Mapping[str, pa.RecordBatch]:
        """Return the events from a number on, a batch for each stream.

        first: number of the first event; event 0 is at START_US. Another count or another first
        event gives other values.
        """
        rng = np.random.default_rng((self.seed, first))
        numbers = np.arange(first, first + count, dtype=np.int64)
        place = numbers % GROUP
        is_person, is_bid = place < PERSONS, place >= PERSONS + AUCTIONS
        return {
            "person": self._persons(rng, numbers[is_person]),
            "auction": self._auctions(rng, numbers[~is_person & ~is_bid]),
            "bid": self._bids(rng, numbers[is_bid]),
        }

    def time_us(self, number: int) -> int:
        """Event time of an event."""
        return START_US + number * self.event_us

    def _persons(self, rng: np.random.Generator, numbers: Integers) -> pa.RecordBatch:
        size = len(numbers)
        first, last = _drawn(rng, _FIRST_NAMES, size), _drawn(rng, _LAST_NAMES, size)
        names = _joined(first, " ", last)
        cards = [f"{digits:016}" for digits in rng.integers(0, 10**16, size).tolist()]
        return pa.RecordBatch.from_pydict(
            {
                "ts": self._times(numbers),
                "id": FIRST_ID + numbers // GROUP,
                "name": names,
                "email": _joined(first, "@", last, ".com"),
                "card": cards,
                "city": _drawn(rng, _CITIES, size),
                "state": _drawn(rng, _STATES, size),
            }
        )

    def _auctions(self, rng: np.random.Generator, numbers: Integers) -> pa.RecordBatch:
        size = len(numbers)
        initial = _prices(rng, size)
        ends = START_US + numbers * self.event_us
        ends += rng.integers(1, AUCTION_EVENTS * self.event_us, size)
        seller = np.where(
            rng.integers(0, HOT_SELLERS, size) > 0,
            numbers // GROUP // HOT_KEYS * HOT_KEYS,
            _any_person(rng, numbers),
        )
        ids = FIRST_ID + _last_auction(numbers)
        items = _joined(pa.array(np.full(size, "item ")), "", pa.array(ids).cast(pa.string()))
        return pa.RecordBatch.from_pydict(
            {
                "ts": self._times(numbers),
                "id": ids,
                "item": items,
                "initial": initial,
                "reserve": initial + _prices(rng, size),
                "expires": pa.array(ends).cast(pa.timestamp("us")),
                "seller": FIRST_ID + seller,
                "category": rng.integers(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES, size),
            }
        )

    def _bids(self, rng: np.random.Generator, numbers: Integers) -> pa.RecordBatch:
        size = len(numbers)
        last = _last_auction(numbers)
        hot = rng.integers(0, HOT_AUCTIONS, size) > 0
        least = np.maximum(last - OPEN_AUCTIONS, 0)
        auction = np.where(
            hot, last // HOT_KEYS * HOT_KEYS, rng.integers(least, last + 1 + IDS_AHEAD)
        )
        bidder = np.where(
            rng.integers(0, HOT_BIDDERS, size) > 0,
            numbers // GROUP // HOT_KEYS * HOT_KEYS + 1,
            _any_person(rng, numbers),
        )
        number = rng.integers(0, _CHANNELS, size)
        others = _joined(
            pa.array(np.full(size, "channel-")), "", pa.array(number).cast(pa.string())
        )
        hot_channel = rng.integers(0, 2, size) > 0
        channel = pc.if_else(pa.array(hot_channel), _drawn(rng, _HOT_CHANNELS, size), others)
        url = _urls(rng, number, with_id=~hot_channel & (rng.integers(0, 10, size) > 0))
        return pa.RecordBatch.from_pydict(
            {
                "ts": self._times(numbers),
                "auction": FIRST_ID + auction,
                "bidder": FIRST_ID + bidder,
                "price": _prices(rng, size),
                "channel": channel,
                "url": url,
            }
        )

    def _times(self, numbers: Integers) -> pa.Array[Any]:
        return pa.array(START_US + numbers * self.event_us).cast(pa.timestamp("us"))


def side_rows() -> pa.Table:
    """Return the rows of the table of q13: each key with itself as a text, as in Apache Beam."""
    keys = pa.array(np.arange(SIDE_ROWS))
    return pa.table({"key": keys, "value": keys.cast(pa.string())})


def _prices(rng: np.random.Generator, size: int) -> Integers:
    """Cents; uniform in the logarithm, from a unit to a million of them."""
    return np.rint(10 ** rng.uniform(0, 6, size) * 100).astype(np.int64)


def _last_auction(numbers: Integers) -> Integers:
    """Return the newest auction at each event, that event included; -1: there is none yet."""
    place = numbers % GROUP
    return numbers // GROUP * AUCTIONS + np.minimum(place, AUCTIONS) - 1


def _any_person(rng: np.random.Generator, numbers: Integers) -> Integers:
    """One of the newest persons at each event, or one that comes soon."""
    persons = numbers // GROUP + 1
    active = np.minimum(persons, ACTIVE_PERSONS)
    return persons - active + rng.integers(0, active + IDS_AHEAD)


def _urls(
    rng: np.random.Generator, channel: Integers, *, with_id: NDArray[np.bool_]
) -> pa.Array[Any]:
    """Return addresses of three folders; channel: its number is in those `with_id`."""
    folders = rng.integers(0, 100_000, (3, len(channel)))
    parts: list[Any] = [pa.array(each).cast(pa.string()) for each in folders]
    path = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
    numbered = _joined(path, "&channel_id=", pa.array(channel).cast(pa.string()))
    return pc.if_else(pa.array(with_id), numbered, path)


def _drawn(rng: np.random.Generator, texts: tuple[str, ...], size: int) -> pa.Array[Any]:
    return pa.array(texts).take(rng.integers(0, len(texts), size))


def _joined(*parts: Any) -> pa.Array[Any]:
    return pc.binary_join_element_wise(*parts, "")
