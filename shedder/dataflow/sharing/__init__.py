"""Operators that the graphs of several queries read.

May import: changes, graph, reorder_buffer.
"""
