"""Compiled inner loops, which take only arrays and numbers."""
