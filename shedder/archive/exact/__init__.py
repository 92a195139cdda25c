"""Exact answers: a DuckDB process with a memory limit and a deadline.

`client` starts the process and sends SQL over relations of runs and tails (`relation`), through
`worker_pipe`. `worker` is the process itself and imports no other module of Shedder: `relation_sql`
writes the SQL that it runs.

May import: tasks, files.
"""
