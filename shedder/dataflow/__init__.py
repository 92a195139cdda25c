"""Dataflow: operators that turn changes of streams into changes of a relation.

A bound plan becomes a graph of small state machines. `dataflow.py` describes the interface.

May import: synopses, errors, cql, streams.
"""
