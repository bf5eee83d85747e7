"""Training sets with some labels changed, and clean test sets: published data, and a suite for development.

Published: six datasets of the paper and three that come with scikit-learn. Development: generated data and iris.
No method was tuned on the published sets.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.datasets import load_iris, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler

from shapshift.data import load_dataset
from shapshift.data.sources import SOURCES

Rows = tuple[np.ndarray, np.ndarray]

MAX_TRAIN, MAX_TEST, TRAIN_SHARE = 1_500, 2_000, 0.6
#: Largest share of a class that confusion flips; without it a rare class could lose all its labels.
MOST_OF_A_CLASS = 0.3


@dataclass(frozen=True)
class Case:
    """A training set with wrong labels and a clean test set; labels are codes from 0."""

    X: np.ndarray
    given: np.ndarray
    true: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        return self.given != self.true


# Noise


def flip_uniformly(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Give a share of the rows another label; rows and labels are drawn uniformly."""
    n_classes = int(y.max()) + 1
    rows = rng.choice(y.size, size=round(share * y.size), replace=False)
    flipped = y.copy()
    flipped[rows] = (y[rows] + rng.integers(1, n_classes, rows.size)) % n_classes
    return flipped


def confusion(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean probability of class j for rows of class i, by a forest cross-validated on clean rows; diagonal 0."""
    forest = RandomForestClassifier(100, random_state=0)
    probability = cross_val_predict(forest, X, y, cv=5, method="predict_proba")
    mean = np.array([probability[y == label].mean(axis=0) for label in range(int(y.max()) + 1)])
    np.fill_diagonal(mean, 0.0)
    return mean


def flip_by_confusion(y: np.ndarray, share: float, confused: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Give a share of the rows another label, rows and labels with probabilities proportional to the confusion.

    A row of class i is drawn (without replacement) with a weight of the sum of row i; its label becomes j with a
    probability proportional to entry (i, j). At most `MOST_OF_A_CLASS` of a class is flipped.
    """
    # Exponential clocks: their order is a weighted draw without replacement.
    weight = np.maximum(confused, 1e-9 * (1 - np.eye(len(confused)))).sum(axis=1)
    order = np.argsort(rng.exponential(size=y.size) / weight[y])
    earlier = np.empty(y.size, dtype=np.int64)  # rows of the same class that come before
    for label in range(len(confused)):
        of_class = order[y[order] == label]
        earlier[of_class] = np.arange(of_class.size)
    allowed = earlier < np.floor(MOST_OF_A_CLASS * np.bincount(y, minlength=len(confused)))[y]
    rows = order[allowed[order]][: round(share * y.size)]
    flipped = y.copy()
    for row in rows:
        odds = np.maximum(confused[y[row]], 1e-9)
        odds[y[row]] = 0.0
        flipped[row] = rng.choice(odds.size, p=odds / odds.sum())
    return flipped


NOISES = ("uniform-3", "uniform-10", "confusion-10")


def add_noise(X: np.ndarray, y: np.ndarray, noise: str, rng: np.random.Generator) -> np.ndarray:
    kind, percent = noise.split("-")
    if kind == "uniform":
        return flip_uniformly(y, int(percent) / 100, rng)
    return flip_by_confusion(y, int(percent) / 100, confusion(X, y), rng)


# Published data

PUBLISHED = ("2dplanes", "cpu", "creditcard", "news20", "phoneme", "pol", "breast_cancer", "digits", "wine")


def published_rows(name: str, seed: int) -> Rows:
    n_rows = sum(SOURCES[name].counts)
    data = load_dataset(name, n_train=n_rows - 1, n_val=1, standardize=False)
    return np.vstack([data.X_train, data.X_val]), np.concatenate([data.y_train, data.y_val])


# Development suite. Labels are drawn from known class probabilities: "Bayes error" is the unpredictable share. Most
# sets also have uninformative features.


def _padded(X: np.ndarray, n_noise: int, rng: np.random.Generator) -> np.ndarray:
    return np.hstack([X, rng.normal(size=(len(X), n_noise))])


def _soft(y: np.ndarray, bayes: float, rng: np.random.Generator) -> np.ndarray:
    """Labels with a share replaced by a uniform draw of another class: right but unpredictable labels."""
    return flip_uniformly(y, bayes, rng) if bayes else y


def clusters(seed: int, n: int, d: int, classes: int, per_class: int, sep: float, shares=None, bayes=0.0) -> Rows:
    X, y = make_classification(
        n, d, n_informative=max(2, d // 2), n_redundant=d // 4, n_classes=classes, n_clusters_per_class=per_class,
        class_sep=sep, weights=shares and list(shares), flip_y=0.0, random_state=seed,
    )  # fmt: skip
    return X, _soft(y, bayes, np.random.default_rng(seed))


def normals(seed: int, n: int, d: int, distance: float, share: float) -> Rows:
    """Two normal classes, one of them rare."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < share * n).astype(np.int64)
    return rng.normal(size=(n, d)) + distance / np.sqrt(d) * y[:, None], y


def xor(seed: int, n: int, n_noise: int, bayes: float) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return _padded(X, n_noise, rng), _soft((X[:, 0] * X[:, 1] > 0).astype(np.int64), bayes, rng)


def moons(seed: int, n: int, width: float) -> Rows:
    X, y = make_moons(n, noise=width, random_state=seed)
    return X, y.astype(np.int64)


def checkerboard(seed: int, n: int, n_noise: int) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, size=(n, 2))
    return _padded(X, n_noise, rng), np.floor(X).sum(axis=1).astype(np.int64) % 2


def rules(seed: int, n: int, d: int, classes: int, bayes: float) -> Rows:
    """Integer features, labels by a random tree of depth 4: copies and ties, and irrelevant columns."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(3.0, size=(n, d)).astype(np.float64)
    leaf = np.zeros(n, dtype=np.int64)
    for _ in range(4):
        leaf = 2 * leaf + (X[:, rng.integers(0, d)] > rng.integers(2, 5))
    return X, _soft(rng.permutation(np.arange(16) % classes)[leaf], bayes, rng)


def heavy_tails(seed: int, n: int, d: int, share: float) -> Rows:
    """Student t features with two degrees of freedom and skewed ones; logistic class probabilities."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n, d))
    score = np.arctan(X[:, : d // 2]).sum(axis=1) + rng.logistic(scale=0.3, size=n)
    y = (score > np.quantile(score, 1 - share)).astype(np.int64)
    X[:, ::3] = np.exp(np.clip(X[:, ::3], -6, 6))
    return X, y


def correlated(seed: int, n: int, d: int, bayes: float) -> Rows:
    """Columns that nearly repeat three hidden ones; a linear rule, and unpredictable labels."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 3))
    X = hidden @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(n, d))
    return X, _soft((hidden.sum(axis=1) > 0.4).astype(np.int64), bayes, rng)


def directions(seed: int, n: int, d: int, classes: int, spread: float) -> Rows:
    """Unit vectors around one direction per topic, with five topics per class."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(5 * classes, d))
    topic = rng.integers(0, 5 * classes, n)
    X = topics[topic] + spread * rng.normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True), topic % classes


def iris(seed: int) -> Rows:
    return load_iris(return_X_y=True)


def gaussian(seed: int, n: int) -> Rows:
    data = load_dataset("gaussian", n_train=n, n_val=n, random_state=seed)
    return np.vstack([data.X_train, data.X_val]), np.concatenate([data.y_train, data.y_val])


#: Functions from a seed to rows; a share of 0.6 of the rows is the training set.
DEVELOPMENT: dict[str, Callable[[int], Rows]] = {
    "iris": iris,
    "gaussian": partial(gaussian, n=900),
    "clusters-2": partial(clusters, n=1700, d=12, classes=2, per_class=3, sep=1.2),
    "clusters-2-small": partial(clusters, n=340, d=8, classes=2, per_class=2, sep=1.0),
    "clusters-4": partial(clusters, n=2500, d=16, classes=4, per_class=2, sep=1.2, bayes=0.05),
    "clusters-10": partial(clusters, n=2500, d=24, classes=10, per_class=1, sep=1.5),
    "clusters-3-uneven": partial(clusters, n=1200, d=10, classes=3, per_class=2, sep=1.2, shares=(0.7, 0.2, 0.1)),
    "clusters-80-20": partial(clusters, n=2500, d=20, classes=2, per_class=3, sep=0.8, shares=(0.8,), bayes=0.1),
    "clusters-95-5": partial(clusters, n=2500, d=10, classes=2, per_class=2, sep=1.5, shares=(0.95,)),
    "clusters-wide": partial(clusters, n=800, d=80, classes=2, per_class=2, sep=1.5),
    "normals-50": partial(normals, n=1000, d=10, distance=1.4, share=0.5),
    "normals-20": partial(normals, n=2500, d=6, distance=1.6, share=0.2),
    "normals-5": partial(normals, n=2500, d=6, distance=3.0, share=0.05),
    "xor": partial(xor, n=1700, n_noise=4, bayes=0.0),
    "moons": partial(moons, n=700, width=0.3),
    "checkerboard": partial(checkerboard, n=2500, n_noise=1),
    "rules": partial(rules, n=2500, d=12, classes=2, bayes=0.02),
    "rules-3-bayes": partial(rules, n=2000, d=10, classes=3, bayes=0.2),
    "heavy-tails": partial(heavy_tails, n=2500, d=14, share=0.3),
    "correlated": partial(correlated, n=1500, d=20, bayes=0.1),
    "directions": partial(directions, n=2000, d=150, classes=2, spread=1.5),
    "large": partial(clusters, n=5000, d=10, classes=3, per_class=3, sep=1.1, bayes=0.05),
}

SUITES = {"published": PUBLISHED, "development": tuple(DEVELOPMENT)}


def make_case(suite: str, dataset: str, noise: str, seed: int) -> Case:
    """Draw a stratified split of a dataset, scale it by its training rows, and change labels of the training rows."""
    X, y = published_rows(dataset, seed) if suite == "published" else DEVELOPMENT[dataset](seed)
    y = np.unique(y, return_inverse=True)[1]
    n_train = round(TRAIN_SHARE * y.size)
    if suite == "published":
        n_train = min(MAX_TRAIN, n_train)
    n_test = min(MAX_TEST, y.size - n_train)
    train, test = train_test_split(
        np.arange(y.size), train_size=n_train, test_size=n_test, stratify=y, random_state=seed
    )
    # Unit-length embeddings are not scaled, see shapshift.data.load_dataset.
    scaler = StandardScaler(with_mean=dataset != "news20", with_std=dataset != "news20").fit(X[train])
    X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    rng = np.random.default_rng([zlib.crc32(f"{dataset} {noise}".encode()), seed])
    return Case(X_train, add_noise(X_train, y[train], noise, rng), y[train], X_test, y[test])
