"""Cost models: how long a step lasts."""
