"""Operators that the graphs of several queries read.

May import: changes, step_parts, graph, reorder_buffer.
"""
