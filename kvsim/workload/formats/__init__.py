"""Formats of public traces, read row by row into the columns of a trace table."""
