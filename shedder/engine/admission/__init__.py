"""Admission control for batches and summaries, and the producer of this process.

A batch is admitted or refused by its declared size, before it is decoded: by quotas, tenant
share, load, CPU and memory. `summary_ingest` admits and logs summaries.

May import: synopsis_plans, remote_summaries, ingest, standing_queries, engine_state, tenants,
maintenance, allocation.
"""
