"""The policies of kvsim on a GPU: plans become forward passes over real memory, measured instead of predicted."""
