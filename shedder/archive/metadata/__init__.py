"""Catalog entries as values: streams, queries, runs, panes, deletions, position gaps.

The values are frozen dataclasses with JSON forms. They do not depend on SQLite.

Imports no other package of `shedder.archive`.
"""
