"""The simulation against measured steps: step by step, end to end, and decision by decision."""
