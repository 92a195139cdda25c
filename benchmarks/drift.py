"""A stream that changes every minute: are targets met again after the next solutions?

A whole engine in virtual time (`drift_engine.py`), beside one whose memory is shared out once.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Report
from benchmarks.workloads import drift_engine

MINUTES = 2


def run() -> Report:
    """Measure; about two minutes on an idle machine: 1,200 batches for each minute and stream."""
    rows = []
    for name, slowness, shares_out in (
        ("**ours**, every 5 s", 1.0, True),
        ("ours, every 5 s, with too little CPU", drift_engine.SLOW, True),
        ("ours, once", 1.0, False),
    ):
        with tempfile.TemporaryDirectory() as directory:
            world = drift_engine.DriftWorld(
                Path(directory),
                budget_bytes=drift_engine.BUDGET_BYTES,
                slowness=slowness,
                shares_out=shares_out,
            )
            world.play(minutes=MINUTES)
            world.close()
        changed = [seen for seen in world.seen if seen.minute]
        settled = [seen for seen in changed if seen.period >= drift_engine.SETTLED]
        shares = [
            np.mean([seen.close for seen in changed if seen.period == period])
            for period in range(drift_engine.SETTLED)
        ]
        held, given = (sum(getattr(seen, of) for seen in world.seen) for of in ("held", "given"))
        rows.append(
            (
                name,
                *(f"{share:.0%}" for share in shares),
                f"{np.mean([seen.close for seen in settled]):.0%}",
                f"{np.mean([seen.met for seen in settled]):.0%}",
                f"{held / given:.1%}",
            )
        )
    return Report(
        claim=(
            "A whole engine in virtual time: streams of "
            f"{drift_engine.RATES[1]:,} and {drift_engine.RATES[0]:,} tuples/s with "
            f"{drift_engine.GROUPS[1]} and {drift_engine.GROUPS[0]} groups swap places every "
            "minute; each has a distinct count per group, a median by rank and an intersection of "
            "two sets; memory is what one busy stream and one quiet one need. Share of the values "
            "within their target, by the last pane of a window; from the fifth on windows are of "
            "panes that began after two solutions."
        ),
        columns=(
            "policy",
            *(f"{period + 1}. pane" for period in range(drift_engine.SETTLED)),
            "later",
            "targets that answers say they met",
            "intervals that held",
        ),
        rows=rows,
        notes=("measured against exact answers; intervals are asked to hold for 95 %",),
    )
