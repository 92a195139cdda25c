"""Expressions: the tree, its types, its text, and its evaluation over Arrow batches.

Overflow, division by zero and NaN give NULL and never an error. docs/cql.md defines every
operator.

May import: text.
"""
