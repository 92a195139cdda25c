"""Recovery: the state before the stop, from catalog, checkpoint and log.

`log_replay` restores the checkpoint and applies the records behind it. Damaged log records
become position gaps, and answers allow for the tuples that were in them.

May import: synopsis_plans, window_state, remote_summaries, ingest, standing_queries,
engine_state, checkpoints, apply.
"""
