"""Intake of one stream: sequence numbers, positions, the drop policy and tenant queues.

`stream_intake` decodes a batch on the caller's thread. Under the lock of the stream it then
recognises replays by producer, epoch and sequence number, assigns positions, and hands the
record to the log.

May import: remote_summaries.
"""
