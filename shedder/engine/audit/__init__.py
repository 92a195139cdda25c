"""Audits: answers of standing queries compared with exact answers from the archive.

The self-audit recomputes one answer after the other in the background. The external audit
issues answers to an auditor outside the service (Spark) and takes each verdict once.

May import: standing_queries, engine_state, checkpoints, one_time_queries.
"""
