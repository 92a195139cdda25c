"""Nodes of a graph of operators, added one by one, each behind its inputs.

May import: plan_properties, tables, joins, and what stands below them.
"""
