"""Monotone queues of values with their copies: the least or the largest value of a sliding window.

Rows leave in the order in which they came. So a value that a newer row beats is never the result
again, and is dropped: the values of a queue are in order, and its first one is the result. A queue
is the numbers of its first and its last node in the array `nodes` of `value_trees`, 0: empty.
Source: Lemire 2006, Streaming maximum-minimum filter using no more than three comparisons per
element, Nordic Journal of Computing 13.
"""

from __future__ import annotations

from numba import njit

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.value_trees import (
    COPIES,
    FREE,
    LEFT,
    PAYLOAD,
    RIGHT,
    TERM,
    VALUE,
    Nodes,
)

_OLDER, _NEWER = LEFT, RIGHT


@njit(nogil=True, cache=True, inline="always")
def _drop_node(nodes: Nodes, free: Int64s, node: int) -> None:
    nodes[node, TERM] = FREE
    free[0] += 1
    free[free[0]] = node


@njit(nogil=True, cache=True, inline="always")
def add_newest(
    words: Int64s,
    at: int,
    nodes: Nodes,
    free: Int64s,
    term: int,
    value: int,
    payload: int,
    times: int,
    is_largest: bool,
) -> None:
    """Add copies of a value as the newest ones of a queue.

    Args:
      words: words[at] and words[at + 1] are the first and the last node of the queue.
      free: free[0] numbers of nodes that are not used are behind it; at least one.
      term, payload: what a new node says. times: copies, positive.
      is_largest: the first value is the largest one; else it is the least.
    """
    last = words[at + 1]
    while last != 0 and nodes[last, VALUE] != value and (nodes[last, VALUE] < value) == is_largest:
        _drop_node(nodes, free, last)
        last = nodes[last, _OLDER]
    if last != 0 and nodes[last, VALUE] == value:
        nodes[last, COPIES] += times
        nodes[last, _NEWER] = 0
        words[at + 1] = last
        return
    fresh = free[free[0]]
    free[0] -= 1
    nodes[fresh, VALUE], nodes[fresh, COPIES] = value, times
    nodes[fresh, PAYLOAD], nodes[fresh, TERM] = payload, term
    nodes[fresh, _OLDER], nodes[fresh, _NEWER] = last, 0
    if last == 0:
        words[at] = fresh
    else:
        nodes[last, _NEWER] = fresh
    words[at + 1] = fresh


@njit(nogil=True, cache=True, inline="always")
def drop_oldest(words: Int64s, at: int, nodes: Nodes, free: Int64s, value: int, times: int) -> None:
    """Take copies of the oldest row's value away. times: negative; others as of `add_newest`.

    The first value is that of an older row, or beats this value: then it stays.
    """
    first = words[at]
    if first == 0 or nodes[first, VALUE] != value:
        return
    nodes[first, COPIES] += times
    if nodes[first, COPIES] == 0:
        after = nodes[first, _NEWER]
        words[at] = after
        nodes[after, _OLDER] = 0  # Node 0 is in no queue; its links are not read.
        if after == 0:
            words[at + 1] = 0
        _drop_node(nodes, free, first)
