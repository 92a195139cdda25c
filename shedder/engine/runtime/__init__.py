"""Clocks, threads, executors, timers, long tasks and subscribers of an engine.

`environment` is the seam between the engine and the machine: the simulation passes in a virtual
clock, files and threads. Nothing here knows streams or queries.

May import: synopsis_plans.
"""
