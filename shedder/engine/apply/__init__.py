"""The apply loop: the queue of durable records, and the effect of each kind of record.

One thread reads durable records in log order and is the only thread that changes live state.
The level, size and setting modules write a change as a log record, and define from which record
on the change is in force.

May import any package below it: synopsis_plans, runtime, window_state, remote_summaries,
ingest, standing_queries, engine_state, checkpoints, maintenance.
"""
