"""One standing query's panes, open and closed, and the windows merged from them.

`query_state` reads frames into panes and merges panes into windows. Its parts hold the panes
(`live_panes`), cap their memory, resize them, and record what the pane store has. `pane_feed` moves
panes from one query to another; `pane_sharing` chooses these queries. Only the apply thread changes
this state.

May import: synopsis_plans, runtime, panes.
"""
