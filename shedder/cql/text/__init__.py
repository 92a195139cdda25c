"""Source text: its size limits, reserved words, durations, byte sizes and fractions.

Errors that point into a statement are made here.

Imports no other package of `shedder.cql`.
"""
