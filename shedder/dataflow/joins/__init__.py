"""Joins of windows: pairs of rows with equal keys, and aggregates over pairs without the pairs.

An inner join is linear in both inputs. The planner makes outer joins and [NOT] EXISTS of it.

May import: batch_rows, update_patterns, changes, step_parts, row_store, graph, projection,
selection, window_lifetimes, key_directory, stores, expiry, sums.
"""
