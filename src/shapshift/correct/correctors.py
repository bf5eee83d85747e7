"""The correctors: which points are corrected together."""

import numpy as np

from shapshift import _validation as check
from shapshift.correct.base import MIN_POINTS, Floats, GroupCorrector
from shapshift.valuation import Valuation


class BoundaryCorrector(GroupCorrector):
    r"""Restore spread and positive count, with boundary and other points corrected apart.

    For the boundary points B (entropy above 0) and the others N of the noisy set, with :math:`s^G_i` the mean value of
    row i over part G, :math:`\mu_G, \sigma_G` its mean and standard deviation over rows and :math:`\lambda` the share
    of boundary points:

    .. math::

        \bar s_i = \lambda [\mu_B + \alpha_B (s^B_i - \mu_B)] + (1 - \lambda) [\mu_N + \alpha_N (s^N_i - \mu_N)], \quad
        \alpha_G = \sigma_G^{clean} / \sigma_G^{noisy}, \quad \tilde s_i = \bar s_i + b

    Parameters
    ----------
    positive : {"exact", "nearest"}, default="exact"
        How b is chosen. "exact": half-way between the two values that the clean positive count separates, so that the
        count is met to the row; where equal values make that impossible, the nearest possible count (the lower of two)
        with a warning. If no row, or every row, shall be positive, b is 0 where that already holds, else it moves the
        highest value to 0, or the lowest just above. "nearest": the published rule, b is minus the nearest order
        statistic at the quantile 1 - rho; that row gets exactly 0 and the count can be off by one.
    preserve_sum : bool, default=False
        Keep the sum of the noisy values (which is the accuracy on the noisy set, by efficiency). The shift by b breaks
        it, and taking b back would break the positive count. So the positive values are multiplied, and the others
        divided, by the one factor that restores the sum: signs, positive count and the order of the rows stay, the
        spread is then met only roughly. Where no value has the sign of the sum there is no such factor; then the sum
        is given up, with a warning.
    min_points : int, default=5
        A part with fewer points than this in the clean or in the noisy set is not rescaled (alpha 1), with a warning.
        1 is the published formula, which rescales parts of any size.

    Attributes
    ----------
    group_std_ : dict
        Standard deviation of the clean scores for "nonboundary" and "boundary", where there are such points.
    group_counts_ : dict
        Number of clean points in each of these parts.
    positive_count_, positive_ratio_ : int, float
        Positive values on the clean set, and their share rho.
    n_train_, fingerprint_, parameters_
        Which training rows and method the numbers belong to.
    report_ : CorrectionReport
        What the last ``transform`` changed.

    Notes
    -----
    Degenerate parts, each with a :class:`CorrectionWarning`: a part that only the noisy set has, that has fewer than
    ``min_points`` points on either side, or in which all rows have equal noisy scores, is not rescaled (alpha 1); a
    part that only the clean set has counts for nothing; a part in which all rows have equal clean scores has alpha 0,
    as the formula says.

    The size of a part matters. Its scores are means over its points, and means over few points are spread wider over
    the rows than means over many: on one point every row near it has a score of its own, over a hundred they average
    out. So :math:`\sigma_G` falls as the part grows, and alpha is too high where a part is smaller in the clean set
    than in the noisy one, too low where it is larger, noise or not. Against the same 40 noisy boundary points, 1 clean
    one can give an alpha of 9.1, 5 of them 2.9 and 45 of them 1.2 (the "gaussian" data, 500 training rows, noise 0.5).
    Compare sets of about the same size and boundary share: the report gives the counts on both sides, and
    ``min_points`` excludes the wildest cases only.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(200, 2)), rng.normal(size=(100, 2))
    >>> y, y_val = (X[:, 0] > 0).astype(int), (X_val[:, 0] > 0).astype(int)
    >>> model = KNNShapley().fit(X, y)
    >>> clean, noisy = model.value(X_val, y_val), model.value(X_val + rng.normal(size=X_val.shape), y_val)
    >>> corrector = BoundaryCorrector().fit(clean)
    >>> corrected = corrector.transform(noisy)
    >>> [v.stats()["positive_count"] for v in (clean, noisy, corrected)]
    [181, 162, 181]
    """

    def __init__(self, *, positive: str = "exact", preserve_sum: bool = False, min_points: int = MIN_POINTS) -> None:
        self.positive = positive
        self.preserve_sum = preserve_sum
        self.min_points = min_points

    def _group_names(self, levels: Floats) -> list[str]:
        return ["boundary" if level > 0 else "nonboundary" for level in levels]


class EntropyNormalizer(GroupCorrector):
    """As :class:`BoundaryCorrector` with one part per entropy level, for any number of classes.

    Parameters
    ----------
    bins : int, default=None
        None: every entropy level is a part of its own. Else the levels are cut at the quantiles of the clean points'
        entropies into at most that many parts; a level is never split, so there can be fewer. Where the clean set has
        no boundary points, or nothing else, the points it knows nothing of make one part more, which keeps its spread.
    positive : {"exact", "nearest"}, default="exact"
        See :class:`BoundaryCorrector`.
    preserve_sum : bool, default=False
        See :class:`BoundaryCorrector`.
    min_points : int, default=5
        See :class:`BoundaryCorrector`. Parts are smaller here, so it matters more; fewer ``bins`` make larger parts.

    Attributes
    ----------
    group_std_ : dict
        Standard deviation of the clean scores of each part, by name.
    group_counts_ : dict
        Number of clean points in each part.
    edges_ : list of float
        With ``bins``: the highest entropy of each part but the last. Else empty.
    positive_count_, positive_ratio_, n_train_, fingerprint_, parameters_, report_
        See :class:`BoundaryCorrector`.

    Notes
    -----
    Levels that occur on one side only, and levels of few points, follow the rules of :class:`BoundaryCorrector`; so
    does what it says about the size of a part.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(300, 2)), rng.normal(size=(150, 2))
    >>> y, y_val = (np.digitize(Z[:, 0], [-0.5, 0.5]) for Z in (X, X_val))
    >>> model = KNNShapley().fit(X, y)
    >>> clean, noisy = model.value(X_val, y_val), model.value(X_val + 0.5 * rng.normal(size=X_val.shape), y_val)
    >>> normalizer = EntropyNormalizer(bins=3).fit(clean)
    >>> normalizer.transform(noisy).stats()["positive_count"] == normalizer.positive_count_
    True
    """

    def __init__(
        self,
        *,
        bins: int | None = None,
        positive: str = "exact",
        preserve_sum: bool = False,
        min_points: int = MIN_POINTS,
    ) -> None:
        self.bins = bins
        self.positive = positive
        self.preserve_sum = preserve_sum
        self.min_points = min_points

    def _learn_groups(self, clean: Valuation) -> None:
        self.edges_: list[float] = []
        if self.bins is not None:
            order = np.argsort(clean.level_entropy)
            reached = clean.level_counts[order].cumsum()
            cuts = np.searchsorted(reached, np.arange(1, self.bins) * (reached[-1] / self.bins) - 1e-9)
            edges = {float(clean.level_entropy[order][cut]) for cut in np.unique(cuts) if cut < order.size - 1}
            if np.unique(clean.level_entropy > 0).size == 1:
                edges.add(0.0)  # else points on the other side of the boundary would be pooled with these unseen
            self.edges_ = sorted(edges)

    def _group_names(self, levels: Floats) -> list[str]:
        if self.bins is None:
            return [f"entropy {level:.6f}" for level in levels]
        bounds = ["0", *(f"{edge:.6f}" for edge in self.edges_), "up"]
        # Levels are rounded logarithms: an edge includes what differs from it by rounding.
        numbers = np.searchsorted(self.edges_, levels - 1e-9)
        return [f"entropy {bounds[i]} to {bounds[i + 1]}" for i in numbers]

    def _fitted_names(self) -> tuple[str, ...]:
        return (*super()._fitted_names(), "edges_")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bins is not None:
            check.check_count(type(self).__name__, "bins", self.bins)
