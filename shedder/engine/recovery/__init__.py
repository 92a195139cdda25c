"""Recovery: the state before a stop, rebuilt from catalog, checkpoint and log.

`log_replay` restores the checkpoint and applies the log records written after it. Damaged
log records become position gaps, and answers allow for the lost tuples.

May import: synopsis_plans, window_state, remote_summaries, ingest, standing_queries,
engine_state, checkpoints, allocation.
"""
