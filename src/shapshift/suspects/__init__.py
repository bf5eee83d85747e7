"""Rows to act on: labels and targets that are probably wrong."""
