"""Checkpoints: their contents, their schedule, and the commit of one new query.

A checkpoint is one catalog transaction with all live state as of a log sequence. Recovery
replays the log from that sequence on. A new query is committed beside the last checkpoint, so
registration does not write a full checkpoint.

May import: runtime, panes, window_state, ingest, standing_queries, tables, dataflow, engine_state.
"""
