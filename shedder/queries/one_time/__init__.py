"""Choice of the source of a one-time query, and progress towards its precision target.

A plan names the sources in the order in which they are read: the live sample, a part of the
archive, or all of it by a rollup, an index or the files.

May import: answers, evidence, sampling.
"""
