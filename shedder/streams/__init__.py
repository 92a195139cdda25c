"""Streams: batches, frames, windows, watermarks and samples.

A frame is one batch with its derived columns, each computed once for all queries. The live sample
and the basics (counts, nulls, minimum, maximum) of a stream are here too.

May import: synopses, errors, cql.
"""
