"""Live tables: their rows as of the apply thread, and their changes on the way to the log.

A change is computed by the thread that wants it, one at a time for each table, so no concurrent
change is lost. The apply thread puts the rows in force in the order of the log.

Imports no other package of `shedder.engine`.
"""
