"""The grammar: a sqlglot dialect with the statements, windows and clauses of CQL.

The result is raw parse nodes, in which nothing has been checked.

May import: text, statements.
"""
