"""The apply loop, its queue of durable records, and the effect of each kind of record.

`apply_queue` receives durable records from the disk thread, and the apply thread applies them in
log order. `record_handler` has the table of record kinds: how each is read, when it takes effect,
and its effect. Recovery uses the same table. `apply_loop` also answers, checkpoints and cuts runs
between records.

A level set by an operator and a size take effect in log order; panes that are too large shrink in
slices. A level set by load takes effect before its record is durable. A setting (weight, activity,
budget, quota) takes effect as soon as its record is durable.

May import: synopsis_plans, window_state, remote_summaries, ingest, standing_queries, tables,
engine_state, checkpoints, maintenance.
"""
