"""Background work on runs: cutting, indexing, rewriting, scrubbing and purging.

Every task works at a pace that leaves the cores to ingest and queries. The formats and the
transactions are those of `shedder.archive`.

May import: runtime, standing_queries, engine_state.
"""
