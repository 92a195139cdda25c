"""Synopsis plans of standing queries, and models of their error, bytes and CPU.

A plan lists the synopses that every pane of a query keeps, and says which synopsis answers
which aggregate. The error curves, memory footprints and CPU costs are predictions for
allocation and load shedding. No interval of an answer uses these predictions.

Imports no other package of `shedder.engine`.
"""
