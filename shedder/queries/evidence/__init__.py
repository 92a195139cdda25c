"""Evidence: estimates for a query's aggregates, and the answer that is built from them.

Every source (panes, sample, archive, exact rows) gives the same type. The answer builder
evaluates outputs by interval arithmetic. It widens them for late and missing tuples and applies
HAVING, ORDER BY, precision targets and contracts.

May import: answers.
"""
