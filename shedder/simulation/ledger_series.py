"""The ledgers of a world's streams at one moment, as columns of its series."""

from __future__ import annotations

from shedder.engine.administration.ledger import ledger_of
from shedder.engine.engine_state import EngineState
from shedder.simulation.time_series import Row

TOTALS = ("applied", "duplicate", "refused_rows", "dropped", "late")
"""Of all streams together; what the door counts, since the last start."""

OF_QUERY = ("read", "thinned", "late")


def counts_of(core: EngineState) -> Row:
    """Tuples: `ledger.TOTAL`, and of each query `ledger.QUERY.COUNT`."""
    ledgers = [
        ledger_of(stream, core.intakes[name], backfilled=0, lost=0)
        for name, stream in core.streams.items()
    ]
    row: Row = {f"ledger.{name}": sum(getattr(each, name) for each in ledgers) for name in TOTALS}
    for ledger in ledgers:
        for query in ledger.queries:
            row |= {f"ledger.{query.query}.{name}": getattr(query, name) for name in OF_QUERY}
    return row
