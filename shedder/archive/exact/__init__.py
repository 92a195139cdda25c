"""Exact answers: a DuckDB process with a memory limit and a deadline.

`client` sends SQL over relations of runs and tails (`relation`), through `worker_pipe`.
`worker_process` starts, kills and awaits the process; `fork_server` forks it. `worker` is the
process itself. The latter two import no other module of Shedder: `relation_sql` writes the SQL.

May import: tasks, files.
"""
