"""From text to statements and bound queries: parsing, checks of clauses, names and types.

`parse` is the entry point for every text of CQL. Any text gives a statement, `BadQuery` or
`Unimplemented`.

May import: text, expressions, statements, grammar.
"""
