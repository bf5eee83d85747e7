"""Figures. Every function takes a result object and returns matplotlib Axes."""
