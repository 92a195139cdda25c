"""Choice of the source of a one-time query, and progress towards its precision target.

The source is the live sample, part of the archive, or all of it.

May import: answers, evidence, sampling.
"""
