"""Compiled inner loops. They know arrays and nothing else."""
