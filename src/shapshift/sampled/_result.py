"""From what sampling found to a Valuation, and to what is said about it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._warn import warn
from shapshift.sampled._cells import Cells
from shapshift.sampled._loop import Outcome
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]


def make_valuation(cells: Cells, outcome: Outcome, about: Mapping[str, Any], *, own: bool, **whose: Any) -> Valuation:
    """Turn sums per player and cell into means.

    Parameters
    ----------
    cells : Cells
        How the validation points were laid out.
    outcome : Outcome
    about : mapping
        What made the values.
    own : bool
        Whether players were judged on their own rows: all validation points have the same values then.
    **whose
        Ids and other fields of the Valuation that tell whose values these are.
    """
    found = np.repeat(outcome.cells, cells.total.size, axis=1) * cells.weights if own else outcome.cells
    level_values, group_means, matrix = cells.split(found)
    return Valuation(
        values=cells.level_counts @ level_values / cells.level_counts.sum(),
        entropy=cells.entropy,
        boundary=cells.entropy > 0,
        level_entropy=cells.level_entropy,
        level_values=level_values,
        level_counts=cells.level_counts,
        group_means=group_means,
        group_names=tuple(cells.group_names),
        group_sizes=tuple(cells.group_sizes.tolist()),
        matrix=matrix,
        parameters=dict(about),
        standard_error=outcome.standard_error,
        **whose,
    )


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Tell how sampling went, for the record."""
    return {
        "utility_of_all": outcome.full,
        "utility_of_none": outcome.empty,
        "n_fits": outcome.fits,
        "n_rounds": outcome.rounds,
        "n_observations": outcome.observations,
        "n_coalitions": outcome.asked,
        "precision": outcome.precision if np.isfinite(outcome.precision) else None,
        "stopped": outcome.stopped,
    }


def warn_about(outcome: Outcome, tol: float | None, max_fits: int) -> None:
    """Pass on what the estimator warned of, and say when the precision asked for was not reached."""
    if outcome.warned:
        warn(
            f"The estimator warned in {outcome.warned} of {outcome.fits} fits, first: {outcome.warning} "
            "Utilities of such models may be off; mend the cause, or silence it in the estimator."
        )
    if tol is not None and outcome.stopped == "budget" and not outcome.precision <= tol:
        warn(
            f"Values are not as sure as asked for: after {outcome.fits} fits the largest standard error is "
            f"{outcome.precision:.2g} standard deviations of the values; 'tol' asks for {tol:g}. Raise "
            f"'max_fits' from {max_fits}, or value fewer players."
        )
