"""Parsing and binding: from text to statements and bound queries, with checks of names and types.

`parse` is the entry point for every text of CQL. Any text gives a statement or
raises `BadQuery` or `Unimplemented`.

May import: text, expressions, statements, plans, grammar.
"""
