"""Summaries: panes built outside the service, and their validation on receipt.

`summary_builder` runs at the producer or in Spark and fills the same panes as the service.
`wire_format` defines the bytes on the wire and in the log. A summary is validated in full before
any pane is merged.

May import: synopsis_plans, panes, window_state.
"""
