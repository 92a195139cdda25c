"""Bound queries and expressions as SQL for DuckDB and Spark: the exact answer.

The meaning is the same as in `shedder.cql.expressions.evaluate`; tests compare the three.

May import: expressions, statements, binding.
"""
