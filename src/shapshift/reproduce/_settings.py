"""What is run: datasets, protocols, noise levels, seeds."""

from dataclasses import asdict, dataclass

from shapshift.reproduce._cells import digest_of

REAL = ("phoneme", "2dplanes", "pol", "cpu", "news20", "creditcard")
DATASETS = ("gaussian", *REAL)
PROTOCOLS = ("balanced", "natural")


def protocols(dataset: str) -> tuple[str, ...]:
    """Protocols under which a dataset is run; the Gaussian classes are balanced by construction."""
    return PROTOCOLS[:1] if dataset == "gaussian" else PROTOCOLS


#: Datasets on which the shift is also measured with the hard utility.
HARD = ("gaussian", "creditcard")
#: Datasets on which single points and pairs are followed.
CASES = ("gaussian", "creditcard")
#: Raised when experiments change, so that finished cells of another kind are not taken for this one's.
CELL_FORMAT = 2


@dataclass(frozen=True)
class Settings:
    """Sizes of a reproduction.

    Attributes
    ----------
    name : str
    n_train, n_val : int
        Rows of every training and validation set.
    n_neighbors : int
    noise : tuple of float
        Standard deviation of the noise, in units of each feature's standard deviation over the training rows.
    seeds : int
        Every seed draws its own split and its own noise; confidence intervals are over seeds.
    n_sets, repeats : int
        Validation points or pairs per case and seed, and draws of noise for each.
    shown : float
        The level whose distributions the figures show.
    datasets : tuple of str
        Which datasets to run; claims and figures cover those.
    """

    name: str
    n_train: int
    n_val: int
    n_neighbors: int
    noise: tuple[float, ...]
    seeds: int
    n_sets: int
    repeats: int
    shown: float
    datasets: tuple[str, ...] = DATASETS

    @property
    def digest(self) -> str:
        """Short hash by which stored cells are recognised; which other datasets run does not matter to a cell."""
        return digest_of(asdict(self), CELL_FORMAT)


FULL = Settings(
    name="full",
    n_train=2000,
    n_val=1000,
    n_neighbors=5,
    noise=(0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0),
    seeds=20,
    n_sets=10,
    repeats=10,
    shown=1.0,
)
QUICK = Settings(
    name="quick",
    n_train=1000,
    n_val=400,
    n_neighbors=5,
    noise=(0.2, 1.0, 5.0),
    seeds=4,
    n_sets=5,
    repeats=5,
    shown=1.0,
)
