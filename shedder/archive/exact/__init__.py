"""Exact answers: a DuckDB process with a memory limit and a deadline.

`client` starts the process and sends SQL over runs and tail. `worker` is the process itself and
imports no other module of Shedder.

May import: tasks.
"""
