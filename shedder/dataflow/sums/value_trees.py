"""Treaps of values with their copies: the k-th smallest value and the number of different ones.

A tree is the number of its root in the array `nodes`, 0: empty. A node's priority is a hash of its
value and of a secret, which is the value of node 0. So no values make a deep tree. Copies may be
negative within an instant, as long as they are not when the tree is read.
Source: Seidel, Aragon 1996, Randomized search trees, Algorithmica 16.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.hashing import splitmix

# Columns of `nodes`: value, its copies, copies and values of the subtree, both children, what goes
# with the value, and the term of which the tree is.
VALUE, COPIES, SUM, VALUES, LEFT, RIGHT, PAYLOAD, TERM = range(8)
COLUMNS = 8
FREE = -1  # TERM of a node that is in no tree.

Nodes = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def _priority(nodes: Nodes, value: int) -> np.uint64:
    return splitmix(np.uint64(value ^ nodes[0, VALUE]))


@njit(nogil=True, cache=True)
def _count(nodes: Nodes, node: int) -> None:
    """Set what a node says of its subtree."""
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    nodes[node, SUM] = nodes[left, SUM] + nodes[node, COPIES] + nodes[right, SUM]
    nodes[node, VALUES] = nodes[left, VALUES] + 1 + nodes[right, VALUES]


@njit("UniTuple(int64, 2)(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _split(nodes: Nodes, tree: int, value: int) -> tuple[int, int]:
    """The trees of smaller and of larger values; the tree does not have the value."""
    if tree == 0:
        return 0, 0
    if nodes[tree, VALUE] < value:
        left, right = _split(nodes, nodes[tree, RIGHT], value)
        nodes[tree, RIGHT] = left
        _count(nodes, tree)
        return tree, right
    left, right = _split(nodes, nodes[tree, LEFT], value)
    nodes[tree, LEFT] = right
    _count(nodes, tree)
    return left, tree


@njit("int64(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _joined(nodes: Nodes, left: int, right: int) -> int:
    """One tree of two, of which the left has the smaller values."""
    if left == 0:
        return right
    if right == 0:
        return left
    if _priority(nodes, nodes[left, VALUE]) > _priority(nodes, nodes[right, VALUE]):
        nodes[left, RIGHT] = _joined(nodes, nodes[left, RIGHT], right)
        _count(nodes, left)
        return left
    nodes[right, LEFT] = _joined(nodes, left, nodes[right, LEFT])
    _count(nodes, right)
    return right


@njit("int64(int64[:, ::1], int64[::1], int64, int64, int64, int64, int64)", nogil=True, cache=True)
def add_value(
    nodes: Nodes, free: Int64s, term: int, tree: int, value: int, payload: int, times: int
) -> int:
    """Add copies of a value; negative: take them away. Returns the tree.

    free: free[0] numbers of nodes that are not used are behind it; at least one.
    term, payload: what a new node says.
    """
    if tree == 0 or _priority(nodes, nodes[tree, VALUE]) < _priority(nodes, value):
        fresh = free[free[0]]
        free[0] -= 1
        left, right = _split(nodes, tree, value)
        nodes[fresh, VALUE], nodes[fresh, COPIES] = value, times
        nodes[fresh, LEFT], nodes[fresh, RIGHT] = left, right
        nodes[fresh, PAYLOAD], nodes[fresh, TERM] = payload, term
        _count(nodes, fresh)
        return int(fresh)
    if nodes[tree, VALUE] == value:
        nodes[tree, COPIES] += times
        if nodes[tree, COPIES] == 0:
            free[0] += 1
            free[free[0]] = tree
            nodes[tree, TERM] = FREE
            return _joined(nodes, nodes[tree, LEFT], nodes[tree, RIGHT])
    elif nodes[tree, VALUE] > value:
        child = nodes[tree, LEFT]
        nodes[tree, LEFT] = add_value(nodes, free, term, child, value, payload, times)
    else:
        child = nodes[tree, RIGHT]
        nodes[tree, RIGHT] = add_value(nodes, free, term, child, value, payload, times)
    _count(nodes, tree)
    return tree


@njit(nogil=True, cache=True)
def nth_node(nodes: Nodes, tree: int, rank: int) -> int:
    """The node of a rank, 1 is that of the smallest value; at most as many as there are copies."""
    while True:
        left = nodes[tree, LEFT]
        if rank <= nodes[left, SUM]:
            tree = left
        elif rank <= nodes[left, SUM] + nodes[tree, COPIES]:
            return tree
        else:
            rank -= nodes[left, SUM] + nodes[tree, COPIES]
            tree = nodes[tree, RIGHT]


@njit(nogil=True, cache=True)
def copies_of(nodes: Nodes, tree: int, value: int) -> int:
    """The copies of a value; 0: the tree does not have it."""
    while tree != 0 and nodes[tree, VALUE] != value:
        tree = nodes[tree, LEFT] if nodes[tree, VALUE] > value else nodes[tree, RIGHT]
    return 0 if tree == 0 else int(nodes[tree, COPIES])
