"""Estimates of aggregates from the panes of a window, read in full or thinned.

For each aggregate, a function turns the merged synopsis into one estimate per group. The
`thinned_*` modules add the sampling error of tuples that were skipped. The result is evidence,
as `shedder.queries.evidence` defines it.

May import: synopsis_plans, panes, window_state.
"""
