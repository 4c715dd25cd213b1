"""Cost profiles: a designed grid of steps and real runs, measured on an executor, and what is fitted to them."""
