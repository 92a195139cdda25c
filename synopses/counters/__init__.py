"""Count-Min and CountSketch per group: frequencies of keys, second moments and join sizes.

Small groups are counted exactly; larger groups have five rows of hashed counters.

May import: model, kernels.
"""
