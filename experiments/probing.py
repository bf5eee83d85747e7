"""``python -m experiments.probing``: measure what a seller learns about the validation set by resubmitting rows.

It first prints the cost of noise as a protection. The tables are in docs/statements.md.

A seller wants to know whether a given row is in the validation set. It replaces some of its own rows by copies of that
row, with the right label in one round and a wrong one in the next, and compares the two payments. Rows of the
validation set are compared with the same number of rows in neither set. All are the farthest from the training rows,
where payments reveal most.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from shapshift import KNNShapley, Privacy
from shapshift.price import Rule, pay_owners

BUDGET, SELLERS, TRAIN, VALIDATION, PROBES, TARGETS, SEEDS = 10_000, 10, 300, 100, 5, 20, 4
RULES = {"rows": Rule("rows"), "clusters": Rule()}
PROTECTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "step 10": {"step": 10},
    "step 100": {"step": 100},
    "step 500": {"step": 500},
    "epsilon 10": {"epsilon": 10.0},
    "epsilon 1": {"epsilon": 1.0},
}
SECRET = "probing, number {:04}"


def tables(seed: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Training rows, validation points and rows that are neither."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    parts = np.split(np.arange(len(y)), [TRAIN, TRAIN + VALIDATION])
    train, points, others = parts
    return X[train], y[train], X[points], y[points], X[others], y[others]


def payments(rule: Rule, protection: dict[str, Any], seed: int) -> Iterator[tuple[bool, float]]:
    """Yield whether a row is in the validation set, and the seller's difference of payments."""
    X, y, X_val, y_val, X_out, y_out = tables(seed)
    owners = np.arange(TRAIN) % SELLERS
    own, rng = np.flatnonzero(owners == 0)[:PROBES], np.random.default_rng(seed)
    for inside, rows, labels in ((True, X_val, y_val), (False, X_out, y_out)):
        apart = np.sort(np.linalg.norm(rows[:, None] - X[None], axis=2), axis=1)[:, PROBES - 1]
        for at in np.argsort(-apart)[:TARGETS]:
            paid = []
            for label in (labels[at], 1 - labels[at]):
                X_probe, y_probe = X.copy(), y.copy()
                # Far enough from each other for each to have a vote.
                X_probe[own] = rows[at] + rng.normal(0, 0.02, (PROBES, X.shape[1]))
                y_probe[own] = label
                privacy = Privacy(**protection, seed=SECRET.format(seed)) if protection else None
                model = KNNShapley(progress=False)
                made = pay_owners(model, X_probe, y_probe, X_val, y_val, owners, BUDGET, rule=rule, privacy=privacy)
                paid.append(float(made.payouts[0]))
            yield inside, paid[0] - paid[1]


def success(seen: list[tuple[bool, float]]) -> float:
    """Share of rows that a seller classifies correctly, with the threshold that is best on the other half of the
    rows."""
    inside, gain = np.array([row[0] for row in seen]), np.array([row[1] for row in seen])
    right = []
    for half in (0, 1):
        known = np.arange(gain.size) % 2 == half
        cuts = np.unique(gain[known])
        best = max(cuts, key=lambda cut: np.mean((gain[known] >= cut) == inside[known]))
        right.append(np.mean((gain[~known] >= best) == inside[~known]))
    return float(np.mean(right))


def costs(n_points: int, rule: Rule, epsilon: float, rng: np.random.Generator) -> list[float]:
    """Return the change of a payment due to noise: stated mean, stated 95% quantile, and measured mean."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    points = np.arange(400, 569)
    noise: Any = 0.0
    if n_points != points.size:
        points, noise = rng.choice(points, n_points), rng.normal(0, 0.1, (n_points, X.shape[1]))
    found = []
    for number in range(5):
        privacy = Privacy(epsilon=epsilon, seed=SECRET.format(number))
        data = (X[:400], y[:400], X[points] + noise, y[points], np.arange(400) % SELLERS)
        made = pay_owners(KNNShapley(progress=False), *data, BUDGET, rule=rule, privacy=privacy)
        assert made.noise_mean is not None
        assert made.noise_high is not None
        assert made.unprotected is not None
        moved = np.abs(made.cents - made.unprotected)
        found.append([np.median(made.noise_mean), np.median(made.noise_high), moved.mean()])
    return [float(mean) / 100 for mean in np.mean(found, axis=0)]


def main() -> None:
    """Print the cost of noise, and the share of rows that a seller classifies correctly, for each rule and
    protection."""
    for n_points in (169, 1000, 10_000):
        for name, rule in RULES.items():
            for epsilon in (10.0, 1.0):
                said = ", ".join(f"{cost:,.0f}" for cost in costs(n_points, rule, epsilon, np.random.default_rng(1)))
                print(f"{n_points:,} points, {name}, epsilon {epsilon:g}: {said}", flush=True)
    for name, rule in RULES.items():
        for said, protection in PROTECTIONS.items():
            seen = [one for seed in range(SEEDS) for one in payments(rule, protection, seed)]
            print(f"{name:9} {said:11} right {success(seen):.0%}", flush=True)


if __name__ == "__main__":
    main()
