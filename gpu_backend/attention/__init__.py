"""Attention over the KV cache, one backend a file, behind `base.Attention`."""
