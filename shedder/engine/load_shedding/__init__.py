"""The overload controller's connection to the engine: it reads the load and sets levels.

Every tick, `controller_loop` passes the measured load to `shedder.overload.controller`, which
decides without side effects. `controller_loop` then carries out the decision: levels of thinning,
admission rates and refresh periods.

May import: synopsis_plans, runtime, window_state, standing_queries, engine_state, apply,
allocation.
"""
