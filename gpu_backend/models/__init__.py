"""Decoders whose KV lives in a cache that others manage."""
