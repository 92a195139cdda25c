"""Statements of Flink SQL, each timed, in an interpreter of its own that has `apache-flink`.

The job comes as JSON on the standard input: `settings`, `tables` (statements that return at once)
and `inserts` (statements that end with the streams). The seconds of each insert go out as JSON, a
line for each.
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def main() -> None:
    """Run the job. PyFlink is not among the packages of the project, so it is found by name."""
    job = json.load(sys.stdin)
    table = importlib.import_module("pyflink.table")
    env = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
    for name, value in job["settings"].items():
        env.get_config().set(name, value)
    for statement in job["tables"]:
        env.execute_sql(statement)
    for statement in job["inserts"]:
        began = time.perf_counter()
        env.execute_sql(statement).wait()
        print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
