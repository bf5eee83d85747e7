"""The order in which tutorials and examples are listed."""

from pathlib import Path

ORDER = [
    "find_bad_rows",
    "value_without_validation_set",
    "validation_set_size",
    "pay_sellers",
    "pay_sellers_again",
    "text_and_images",
    "larger_than_memory",
    "reproduce_the_paper",
    "intervals",
    "reliability",
    "lowest_digits",
    "audit",
    "boundary_points",
    "correction",
    "design",
    "suspects",
    "cleaning",
    "duplicates",
    "payouts",
    "stress",
    "influence",
    "family",
    "interactions",
    "cluster_curve",
]


class ReadingOrder:
    """Sort key of sphinx-gallery; a file that is not in ``ORDER`` ends the build.

    Parameters
    ----------
    folder : str
        Of the examples; the names of files tell enough.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        """Return the place of an example."""
        return ORDER.index(Path(name).stem)
