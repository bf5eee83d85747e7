"""Value every training row, see how far the values depend on the validation set, correct them, and price them."""

from importlib.metadata import version

from shapshift.coefficients import Beta
from shapshift.estimators import KNNShapley
from shapshift.valuation import Valuation

__version__ = version("shapshift")

__all__ = ["Beta", "KNNShapley", "Valuation"]
