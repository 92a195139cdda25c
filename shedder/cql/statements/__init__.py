"""Statements and bound queries as frozen values, and their canonical text.

Parsing the canonical text of a statement gives the same statement. A bound query has its names
resolved and its expressions typed.

May import: text, expressions.
"""
