"""Panes: the synopses of one slice of event time, fed from frames and stored as bytes.

A pane holds one synopsis for each entry of its query's plan. It also holds one segment for each
level at which a synopsis was read thinned. The overflow group, late tuples and resizing of
synopses are here too.

May import: synopsis_plans, runtime.
"""
