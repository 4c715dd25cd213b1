"""What happened in a run: requests, steps and memory, written down as it goes."""
