"""Source text: its size limits, reserved words, durations, byte sizes and fractions.

This package builds the errors that point into a statement.

Imports no other package of `shedder.cql`.
"""
