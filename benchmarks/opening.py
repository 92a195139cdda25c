"""How long an engine takes to open in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.measure import Report

RUNS = 7
OURS = "import shedder; db = shedder.open(folder + '/data')"
WORK = {
    "shedder.open of a new directory": OURS,
    "the same, once more in the process": OURS + "; db.close(); mark(); " + OURS,
    "only importing what it needs": "import shedder.engine.engine",
    "only importing numba, pyarrow, pandas, sqlglot and scipy.special":
        "import numba, pyarrow.compute, pandas, sqlglot, scipy.special",
    "only importing scipy.stats, which it does without": "import scipy.stats",
}  # fmt: skip
_PROGRAM = """
import os, sys, time
folder, began = sys.argv[1], (0.0, float(sys.argv[2]))
def mark():
    global began
    began = time.process_time(), time.time()
{work}
print(time.process_time() - began[0], time.time() - began[1], flush=True)
os._exit(0)
"""


def run() -> Report:
    """CPU and wall time until the engine is there, kernels loaded, from the process's start on."""
    rows = []
    with tempfile.TemporaryDirectory() as compiled:
        for work in WORK.values():
            _measured(work, compiled)  # Compiles what is in no cache yet: kernels, and bytecode.
        for name, work in WORK.items():
            found = [_measured(work, compiled) for _ in range(RUNS)]
            cpu, wall = (min(column) for column in zip(*found, strict=True))
            rows.append([name, f"{cpu:.2f} s", f"{wall:.2f} s"])
    return Report(
        claim="Aim: `shedder.open` is ready in under 2 s with a warm cache of kernels.",
        columns=["what", "CPU", "wall"],
        rows=rows,
        notes=[
            (
                f"The best of {RUNS} new processes each, from the start of the interpreter on. "
                "Modules have their bytecode, as those of an installed package do."
            ),
            (
                "pyarrow imports pandas where it is installed, as it is here; the service does not "
                "need it. DuckDB is imported by the exact worker's process, not by this one."
            ),
        ],
    )


def _measured(work: str, compiled: str) -> tuple[float, float]:
    """CPU and wall seconds of a new process; `compiled`: the directory of its bytecode."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        program = _PROGRAM.format(work=work)
        done = subprocess.run(
            [sys.executable, "-c", program, folder, str(time.time())],
            env=kept | {"NUMBA_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": compiled},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    cpu, wall = done.stdout.split()
    return float(cpu), float(wall)
