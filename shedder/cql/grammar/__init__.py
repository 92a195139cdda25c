"""The grammar: a sqlglot dialect with the statements, windows and clauses of CQL.

The result is raw parse nodes; `binding` checks them.

May import: text, expressions, statements.
"""
