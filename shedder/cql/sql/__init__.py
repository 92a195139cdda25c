"""Bound queries and expressions as SQL for DuckDB and Spark: the exact answer.

The SQL means the same as `shedder.cql.expressions.evaluate`; tests compare DuckDB and Spark with
that evaluation.

May import: text, expressions, statements, plans, binding.
"""
