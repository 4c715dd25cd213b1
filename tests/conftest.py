"""Hypothesis draws the same examples in every run; thousands of new ones with ``--hypothesis-profile thorough``."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("default-run", deadline=None, derandomize=True, suppress_health_check=QUIET)
settings.register_profile("thorough", deadline=None, max_examples=3000, suppress_health_check=QUIET)
settings.load_profile("default-run")
