"""Recovery: the state before a stop, rebuilt from catalog, checkpoint and log.

`log_replay` restores the checkpoint and applies the log records written after it, with the
handler that applies new records. Damaged
log records become position gaps, and answers allow for the lost tuples.

May import: synopsis_plans, window_state, ingest, standing_queries, tables, dataflow, engine_state,
checkpoints, apply, allocation, rebuild.
"""
