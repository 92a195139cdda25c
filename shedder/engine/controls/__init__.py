"""Controls of a running engine: stream definitions, tables, files, thinning, budgets and quotas.

Each control changes one aspect of the engine for a statement or for the control table. A control
has no state of its own.

May import: synopsis_plans, runtime, tables, dataflow, engine_state, tenants, checkpoints,
maintenance, apply, allocation, load_shedding, registration.
"""
