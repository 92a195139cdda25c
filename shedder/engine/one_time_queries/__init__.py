"""One-time queries: the executor, and its sources: sample, archive, rollups and indexes.

The executor chooses a plan from what is known of the sources and reads them in turn. The exact
reader also serves windows of standing queries with contract EXACT, and the self-audit. The
progressive scan reads the archive in part, until the target or the reduction is reached.

Queries whose result is rows go another way (`row_queries`): the exact worker reads the streams that
the plan scans (`row_sources`), without the runs that the plan needs no row of (`row_pruning`).

May import: runtime, standing_queries, tables, dataflow, engine_state.
"""
