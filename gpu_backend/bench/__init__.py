"""Measurements for `kvsim bench`."""
