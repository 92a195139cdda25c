"""Operators that the graphs of several queries read, each at its own pace.

May import: changes, step_parts, graph, projection, reorder_buffer, selection, window_lifetimes,
stores, rows_window, sums, whole_relation, joins, tables.
"""
