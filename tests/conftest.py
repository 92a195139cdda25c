"""What all tests share: hypothesis without deadlines, the same in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Two cores shared with Spark make any deadline flaky; derandomized examples make a failure ours.
settings.register_profile(
    "shedder",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shedder")
