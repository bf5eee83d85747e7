"""Checks of input at the public interface, and their messages."""
