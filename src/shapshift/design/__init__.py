"""Design of validation sets: check that a set represents the data, split it off, or select it for stable values.

A point's distance to a class boundary determines how its values change under noise. So a validation set is judged by
its entropy profile (:func:`entropy_profile`), split off with the boundary share preserved
(:class:`BoundaryStratifiedSplit`), or selected from a pool for values that a stated noise shifts least
(:func:`design_validation`). :func:`suggest_labels` selects unlabelled rows to label next, by the values of labelled
rows nearby.
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
