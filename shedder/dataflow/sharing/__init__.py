"""Operators that the graphs of several queries read, each at its own pace.

May import: changes, step_parts, graph, reorder_buffer, whole_relation, tables.
"""
