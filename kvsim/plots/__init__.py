"""Drawings: data in, Axes out."""
