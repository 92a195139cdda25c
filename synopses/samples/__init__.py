"""Bottom-k samples: uniform, by hash, weighted and stratified; random partitions of rows.

Which rows a sample keeps depends on a random key per row, so that samples can be merged. Neyman
allocation sets the sizes of strata.

May import: model, kernels.
"""
