"""One standing query's panes, open and closed, and the windows merged from them.

`query_state` reads frames into panes and merges panes into windows. The other modules share
panes between queries, resize and cap their memory, and write closed panes to the pane store.
Only the apply thread changes this state.

May import: synopsis_plans, runtime, panes.
"""
