"""Acting on suspect rows: a list of decisions that is applied to a table, and what it changes on held-out rows."""

from shapshift.cleaning.decisions import Decisions
from shapshift.cleaning.effect import CleaningEffect, measure_cleaning

__all__ = ["CleaningEffect", "Decisions", "measure_cleaning"]
