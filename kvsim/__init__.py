"""kvsim: a laboratory for KV-cache memory management in LLM serving."""

__version__ = "0.1.0.dev0"
