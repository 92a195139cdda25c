"""Allocation of synopsis memory among standing queries.

Demands are built from plans and measured errors, and the `allocator` package solves the
problem. The negotiation grants or refuses a new query. The rebalancer moves memory between
registered queries. EXPLAIN ALLOCATION is here too.

May import: synopsis_plans, standing_queries, dataflow, engine_state, apply.
"""
