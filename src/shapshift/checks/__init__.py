"""Checks of input, where it enters, and their messages."""
