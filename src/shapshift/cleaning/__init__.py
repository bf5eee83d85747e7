"""Acting on suspect rows: decisions that are applied to a table, and their effect on held-out rows."""

from shapshift.cleaning.decisions import Decisions
from shapshift.cleaning.effect import CleaningEffect, measure_cleaning
from shapshift.cleaning.log import DecisionLog
from shapshift.cleaning.revaluation import Revaluation

__all__ = ["CleaningEffect", "DecisionLog", "Decisions", "Revaluation", "measure_cleaning"]
