"""Placement of negations: NOT EXISTS above or below a join.

May import: join_order and what is below it.
"""
