"""Access control by tenant, limits on queries and archive bytes, and the tenant report.

A tenant sees and changes only its own streams and the queries on them. `statement_access` has the
scope and the names of each class of statement. Quota values are in `runtime.quotas`; the checks
here compare quotas with the engine's state.

May import: runtime, standing_queries, tables, engine_state.
"""
