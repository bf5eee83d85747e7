"""Run every experiment of the paper again, and say claim by claim what holds.

The paper is Shen, Yang and Liu, "Validation-Induced Shapley Shifts: How Validation Structure Distorts Data Valuation?".
:func:`run_reproduction` computes the experiments in cells that can be taken up again after an interruption, and writes
tables, figures and a page of claims with the numbers that decide about each.
"""

from shapshift.reproduce._posterior import POSTERIOR_FULL, POSTERIOR_QUICK, PosteriorSettings, run_posterior_benchmark
from shapshift.reproduce._run import run_reproduction
from shapshift.reproduce._settings import FULL, QUICK, Settings

__all__ = [
    "FULL",
    "POSTERIOR_FULL",
    "POSTERIOR_QUICK",
    "QUICK",
    "PosteriorSettings",
    "Settings",
    "run_posterior_benchmark",
    "run_reproduction",
]
