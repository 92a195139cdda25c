"""Nodes of a graph of operators, added one by one, each behind its inputs.

May import: update_patterns, graph, multiplicity_kernels, projection, selection, union,
multiplicities, expiry, relation_to_stream, whole_relation, joins, tables.
"""
