"""The clock's unit beside those of the edges."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
MAX_SECONDS = 1e9
"""Seconds of the longest run; as nanoseconds they fit an int64 with room to add."""
