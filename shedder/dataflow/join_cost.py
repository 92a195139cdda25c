"""Cost of joining windows on one attribute, by their order, and the cheapest order.

The cost is comparisons per second: for each new tuple, the others are probed in the global order.
Values are uniform, and the values of a window are among those of each window with more of them.
Source: Golab 2006, section 5.3. A tuple's first probe divides by max(v_o, v_x) as the later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

ENUMERATED_MAX = 6  # Of more inputs, the heuristic looks at some orders: 6! is 720.

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinInput:
    """A window as the cost model knows it.

    rate_per_s: tuples that come. rows: in the window; rate times length. distinct: values of the
    attribute, at least 1. buckets: of its hash table; 1: every row is compared.
    """

    rate_per_s: float
    rows: float
    distinct: float
    buckets: float = 1.0


def join_cost(inputs: Sequence[JoinInput], order: Order) -> float:
    """Return the comparisons per second of a global order; places of the inputs."""
    return sum(inputs[origin].rate_per_s * _probes(inputs, order, origin) for origin in order)


def cheapest_order(inputs: Sequence[JoinInput]) -> Order:
    """Return the order with the least cost; of equal ones, the first as they are written.

    Of more than ENUMERATED_MAX inputs, the heuristic of section 5.3.2 gives a cheap order.
    """
    written = tuple(range(len(inputs)))
    if len(inputs) <= ENUMERATED_MAX:
        return min(permutations(written), key=lambda order: join_cost(inputs, order))
    return min((written, *heuristic_orders(inputs)), key=lambda order: join_cost(inputs, order))


def heuristic_orders(inputs: Sequence[JoinInput]) -> Iterator[Order]:
    """Yield the order by selectivity, and those with fast streams in the top third of it.

    A stream is fast if its rate is above the mean.
    """
    places = range(len(inputs))
    first, second = min(
        ((left, right) for left in places for right in places if left < right),
        key=lambda pair: _size(inputs, pair),
    )
    order = [first, second]
    while len(order) < len(inputs):
        left = [place for place in places if place not in order]
        order.append(min(left, key=lambda place: _size(inputs, (*order, place))))
    yield tuple(order)
    mean = sum(each.rate_per_s for each in inputs) / len(inputs)
    fast = [place for place in order if inputs[place].rate_per_s > mean]
    for count in range(1, len(fast) + 1):
        moved = fast[:count]
        slow = [place for place in order if place not in moved]
        for at in range(max(2, len(inputs) // 3 + 1)):
            yield (*slow[:at], *moved, *slow[at:])


def _probes(inputs: Sequence[JoinInput], order: Order, origin: int) -> float:
    """Comparisons of one tuple of the origin."""
    found, distinct, compared = 1.0, inputs[origin].distinct, 0.0
    for place in order:
        if place != origin:
            each = inputs[place]
            compared += found * each.rows / each.buckets
            found *= each.rows / max(distinct, each.distinct)
            distinct = min(distinct, each.distinct)
    return compared


def _size(inputs: Sequence[JoinInput], places: Sequence[int]) -> float:
    """Rows of the join of some inputs."""
    first, *others = (inputs[place] for place in places)
    size, distinct = first.rows, first.distinct
    for each in others:
        size *= each.rows / max(distinct, each.distinct)
        distinct = min(distinct, each.distinct)
    return size
