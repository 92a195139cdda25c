"""Standing queries with their newest answers, and the live state of streams.

`stream_state` applies a frame to every query of a stream and advances the watermark.
`answer_scheduler` decides which answers are computed, and when. Answers allow for tuples that
were dropped, lost or deleted. Only the apply thread changes this state.

May import: synopsis_plans, runtime, panes, window_state, remote_summaries, estimates, ingest.
"""
