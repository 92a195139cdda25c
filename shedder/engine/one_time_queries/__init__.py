"""One-time queries: the executor, and its sources: sample, archive, rollups and indexes.

The executor tries the cheapest source that can meet the precision target and falls back to an
exact answer. The progressive scan reads the archive in part, until the target or the reduction
is reached.

May import: runtime, standing_queries, engine_state.
"""
