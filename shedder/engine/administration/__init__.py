"""Statements other than queries: SHOW, DESCRIBE, INSERT, DELETE, controls and the ledger.

The statement executor runs each statement on the services of the engine. The control table
lists every entity and its properties, and sets the writable ones.

May import: synopsis_plans, runtime, window_state, ingest, standing_queries, engine_state,
tenants, apply, allocation, admission, one_time_queries, services.
"""
