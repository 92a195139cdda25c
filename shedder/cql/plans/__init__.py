"""Logical plans of row queries as frozen trees.

One plan serves DuckDB, Spark and the dataflow planner.

May import: text, expressions, statements.
"""
