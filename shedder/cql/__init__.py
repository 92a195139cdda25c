"""CQL, the query language: parsing, binding, expressions, and SQL for DuckDB and Spark.

Parsing turns text into a statement, and binding checks its names and types against a schema. Both
results are frozen values. Expressions are evaluated over Arrow batches.

May import: synopses, errors.
"""
