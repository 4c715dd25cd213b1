"""A deliberately naive token-by-token model of the serving systems; shares no code with kvsim."""
