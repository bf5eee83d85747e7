"""Which validation set to use: one that looks like the data, split so that it stays so, chosen so that values hold.

How near a point lies to a class boundary decides how its values move when it moves. So a validation set is judged by
its entropy profile (:func:`entropy_profile`), cut with its boundary share kept (:class:`BoundaryStratifiedSplit`), or
selected from a pool for values that a stated noise shifts least (:func:`design_validation`). Which unlabelled rows to
add to the training set is told by the values of labelled rows nearby (:func:`suggest_labels`).
"""

from shapshift.design.labels import LabelSuggestions, suggest_labels
from shapshift.design.profile import EntropyProfile, ProfileComparison, entropy_profile
from shapshift.design.select import DesignResult, design_validation
from shapshift.design.split import BoundaryStratifiedSplit

__all__ = [
    "BoundaryStratifiedSplit",
    "DesignResult",
    "EntropyProfile",
    "LabelSuggestions",
    "ProfileComparison",
    "design_validation",
    "entropy_profile",
    "suggest_labels",
]
