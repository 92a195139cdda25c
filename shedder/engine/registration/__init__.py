"""Registration of standing queries: the registrar, rewriting, and the registry.

The registrar turns a CREATE QUERY statement into a standing query or refuses it. A rewrite makes
a query cheaper (coarser slides, shorter windows, thinning) and reports what changes. EXPLAIN of
a standing query is here too.

May import: synopsis_plans, runtime, window_state, standing_queries, dataflow, engine_state,
tenants, checkpoints, allocation, one_time_queries, load_shedding, rebuild.
"""
