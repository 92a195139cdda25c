"""Log-bucket histograms: quantiles per group with a bounded relative error in the value.

A bucket is the leading bits of a double, as in DDSketch with a cheaper mapping. Counts are
exact and are held in pages, dense ranges or sparse maps, whichever is smaller.

May import: model, kernels, intervals, strata.
"""
