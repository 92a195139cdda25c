"""Confidence intervals over strata: parts of a stream that were read at different rates.

Each test is of the total over all strata, so that no stratum takes a share of delta. Rows at hand
are bet on row by row; of thinned panes only moments and counts are known.

May import: model, kernels, intervals.
"""
