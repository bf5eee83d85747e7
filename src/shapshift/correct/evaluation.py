"""Comparison of corrected with clean values, as distributions and row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.agreement import agreement, distribution
from shapshift.correct.correctors import check_alike
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.valuation import Valuation, check_valuation

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CorrectionEvaluation:
    """Distance of corrected values from the clean ones, as a distribution and row by row.

    Attributes
    ----------
    distribution : dict of dict
        For "clean", "noisy" (if given) and "corrected": see :func:`shapshift.agreement.distribution`.
    rows : dict of dict
        The same for :func:`shapshift.agreement.agreement`, and ``sign_agreement``, the share of rows with the same
        sign. The entries of "clean" are what full agreement looks like.
    values : dict of ndarray
        The values compared.
    """

    distribution: Mapping[str, Mapping[str, float]]
    rows: Mapping[str, Mapping[str, float]]
    values: Mapping[str, Floats]

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate: one row per statistic, one column per valuation.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``aspect`` ("distribution" or "rows"), ``statistic``, ``clean``, ``noisy`` (if given), ``corrected``.
        """
        entries = [(aspect, name) for aspect in ("distribution", "rows") for name in getattr(self, aspect)["clean"]]
        columns: dict[str, npt.NDArray[Any]] = {
            "aspect": np.array([aspect for aspect, _ in entries]),
            "statistic": np.array([name for _, name in entries]),
        }
        for which in self.values:
            columns[which] = np.array([getattr(self, aspect)[which][name] for aspect, name in entries])
        return to_table(columns, None, kind)

    def plot(self, axes: Any = None) -> Any:
        """Draw the distributions, and the clean values against the others; see :mod:`shapshift.plots.results`."""
        from shapshift.plots.results import plot_correction

        return plot_correction(self, axes)

    def __repr__(self) -> str:
        def line(aspect: str, name: str) -> str:
            parts = [getattr(self, aspect)[which][name] for which in self.values if which != "clean"]
            return f"{name} " + " -> ".join(f"{part:.3g}" for part in parts)

        shown = [("distribution", name) for name in ("std_ratio", "positive_difference", "wasserstein")]
        shown += [("rows", name) for name in ("spearman", "rmse", "sign_agreement")]
        return f"CorrectionEvaluation({', '.join(line(*entry) for entry in shown)})"


def evaluate(
    corrected: Valuation, clean: Valuation, noisy: Valuation | None = None, *, top: float = 0.1
) -> CorrectionEvaluation:
    """Compare corrected with clean values, as distributions and row by row.

    Parameters
    ----------
    corrected, clean : Valuation
        Of the same training rows, computed by the same method, utility, K and so on.
    noisy : Valuation, optional
        The values before the correction, to see what it gained or lost.
    top : float or int, default=0.1
        Share or number of rows in the top and bottom sets that are compared.

    Returns
    -------
    CorrectionEvaluation

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> clean = model.value([[0.9], [0.2]], ["b", "a"])
    >>> evaluate(clean, clean).rows["corrected"]["spearman"]
    1.0
    """
    given = {"clean": clean} | ({} if noisy is None else {"noisy": noisy}) | {"corrected": corrected}
    for name, valuation in given.items():
        check_valuation("evaluate", name, valuation)
        if valuation.fingerprint != clean.fingerprint:
            raise InputError(
                f"{name!r} values other training rows than 'clean' (their fingerprints differ). Compare valuations of "
                "one fitted model."
            )
        check_alike(name, valuation, clean.parameters)
    rows = {name: agreement(valuation.values, clean.values, top=top) for name, valuation in given.items()}
    for entry in rows.values():
        entry["sign_agreement"] = 1 - (entry["flips_to_negative"] + entry["flips_to_positive"]) / clean.n_train
    return CorrectionEvaluation(
        distribution={name: distribution(valuation.values, clean.values) for name, valuation in given.items()},
        rows=rows,
        values={name: valuation.values for name, valuation in given.items()},
    )
