"""Rows to act on: labels and targets that are probably wrong."""

from shapshift.suspects.find import find_suspects
from shapshift.suspects.result import Suspects

__all__ = ["Suspects", "find_suspects"]
