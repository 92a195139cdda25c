"""HyperLogLog: distinct counts per group, byte-compatible with Apache DataSketches.

Small groups are sparse lists of coupons; larger groups are arrays of 2^lg_k registers.

May import: model, kernels.
"""
