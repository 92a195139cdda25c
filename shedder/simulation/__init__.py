"""Simulation of overload in virtual time: the real engine on a virtual machine.

A scenario file describes clients, machine, faults and claims. `world` runs it with virtual clock,
disk and threads, compares answers with exact truth, and reports the claims that failed.

May import: errors, svg, settings, cql, streams, queries, archive, overload, engine.
"""
