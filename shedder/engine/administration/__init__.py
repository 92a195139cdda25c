"""Statements other than queries: SHOW, DESCRIBE, INSERT, DELETE, the control table and the ledger.

The statement executor runs each statement on the services of the engine. The control table
lists every entity and its properties, and sets the writable ones.

May import: runtime, window_state, ingest, standing_queries, tables, dataflow, engine_state,
tenants, allocation, admission, one_time_queries, controls, services.
"""
