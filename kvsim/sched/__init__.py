"""Who runs in a step, with how many tokens."""
