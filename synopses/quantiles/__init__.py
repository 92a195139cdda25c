"""KLL and REQ sketches: quantiles per group with a bounded rank error.

Both are Apache DataSketches' own sketches. The format modules reject damaged bytes before the
library reads them.

May import: model, kernels.
"""
