"""Standing row queries: their inputs, their kept output, and their state in a checkpoint.

`row_queries` applies each record of a stream to the row queries that read the stream. A dataflow
turns tuples into rows in the order of (event time, position). `row_output` numbers these rows and
keeps the newest ones for subscribers. `past` makes a dataflow's state again from the archive.

Imports no other package of `shedder.engine`.
"""
