"""Panes built from the archive: history of new queries, pane repair, and backfill.

A replay reads the archive in order of position and then continues with the tail. Repair
replaces thinned panes when the machine is idle. Backfill adopts, in one transaction, runs and
panes that were built elsewhere.

May import: runtime, panes, window_state, remote_summaries, standing_queries, tables,
dataflow, engine_state, checkpoints, maintenance, admission.
"""
