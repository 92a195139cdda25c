"""Length of the lists that TOP over a window of rows keeps, chosen at registration.

Longer lists hide fewer values. With lists of 4 k values, all of the k rows are guaranteed where
panes have 500 tuples, in place of 0.7 to 0.8 of them (tests/synopses/frequent/test_pane_lists.py).
"""

from __future__ import annotations

from shedder.cql.plans.logical_plan import Plan, RowsWindow, WindowOf
from shedder.engine.dataflow.standing_plan import listed_of, nodes_of
from shedder.errors import BudgetExceeded

LIST_FACTOR = 4  # Values of a list, for each row of the answer.
_LISTS_SHARE = 8  # A longer list than that of the rows takes this part of a query's bytes at most.
_ENTRY_BYTES, _LIST_BYTES = 16, 8  # As of `PaneLists.size_bytes`.


def list_length(plan: Plan, bytes_max: int) -> int | None:
    """Return how many values the list of a pane keeps; None: the plan has no lists.

    bytes_max: of the query.

    Raises:
      BudgetExceeded: lists that are as long as the answer may need more.
    """
    top = listed_of(plan)
    if top is None or top.listed is None:
        return None
    (window,) = (
        node.window
        for node in nodes_of(top)
        if isinstance(node, WindowOf) and isinstance(node.window, RowsWindow)
    )
    panes = window.rows // window.slide_rows
    least = min(top.listed, window.slide_rows)
    needed = panes * (_ENTRY_BYTES * least + _LIST_BYTES)
    if needed > bytes_max:
        raise BudgetExceeded(
            f"TOP of {top.listed} values over [ROWS {window.rows} SLIDE {window.slide_rows}] keeps "
            f"{panes:,} lists of up to {least:,} values in {needed:,} bytes; a row query may hold "
            f"{bytes_max:,}: a longer SLIDE or a smaller k needs less"
        )
    room = (bytes_max // _LISTS_SHARE // panes - _LIST_BYTES) // _ENTRY_BYTES
    return max(top.listed, min(LIST_FACTOR * top.listed, room))
