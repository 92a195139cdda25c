"""Placement of negations: NOT EXISTS above or below a join.

May import: joins, join_order.
"""
