"""Compare values of one small game with those of pyDVL and shapiq.

The packages cannot be installed together (pyDVL needs an older NumPy), so this script runs in two steps::

    python benchmarks/family_peers.py values FILE        where shapshift is installed
    OTHER_PYTHON benchmarks/family_peers.py compare FILE where pydvl or shapiq is installed

The second step prints the largest differences and fails if exact values differ by more than rounding.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB

N = 8
EXACT = ("shapley", "banzhaf", "beta", "loo")


def small_problem() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    y, y_val = np.arange(N) % 2, rng.integers(0, 2, 40)
    X, X_val = rng.normal(size=(N, 2)), rng.normal(size=(40, 2))
    X[:, 0] += y
    X_val[:, 0] += y_val
    return X, y, X_val, y_val


def our_values(path: Path) -> None:
    from shapshift import Beta, SampledShapley

    X, y, X_val, y_val = small_problem()
    found: dict[str, np.ndarray] = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    for name, semivalue in (("shapley", "shapley"), ("banzhaf", "banzhaf"), ("beta", Beta(4, 1)), ("loo", "loo")):
        model = SampledShapley(GaussianNB(), semivalue=semivalue, progress=False).fit(X, y)
        found[name] = model.value(X_val, y_val).values
    for sampler in ("permutation", "antithetic", "stratified", "complementary", "group_testing"):
        model = SampledShapley(GaussianNB(), sampler=sampler, max_fits=1000, progress=False).fit(X, y)
        valuation = model.value(X_val, y_val)
        found[sampler], found[f"{sampler}_error"] = valuation.values, valuation.standard_error
    with path.open("wb") as file:
        np.savez(file, **found)
    print(f"Wrote {path}")


def worth(ours: dict[str, np.ndarray], coalition: np.ndarray) -> float:
    if not coalition.any():
        return 0.5
    model = GaussianNB().fit(ours["X"][coalition], ours["y"][coalition])
    return float(np.mean(model.predict(ours["X_val"]) == ours["y_val"]))


def by_pydvl(ours: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    from pydvl import valuation as dvl
    from pydvl.valuation.samplers import DeterministicUniformSampler

    train, test = dvl.Dataset(ours["X"], ours["y"]), dvl.Dataset(ours["X_val"], ours["y_val"])
    scorer = dvl.SupervisedScorer("accuracy", test, default=0.5, range=(0.0, 1.0))
    utility = dvl.ModelUtility(GaussianNB(), scorer, show_warnings=False)

    def everything(method: Callable[..., Any], **options: float) -> Any:
        return method(utility, DeterministicUniformSampler(), dvl.NoStopping(), progress=False, **options)

    methods = {
        "shapley": everything(dvl.ShapleyValuation),
        "banzhaf": everything(dvl.BanzhafValuation),
        "beta": everything(dvl.BetaShapleyValuation, alpha=4, beta=1),
        "loo": dvl.LOOValuation(utility, progress=False),
    }
    for name, method in methods.items():
        yield "pyDVL", name, by_index(method.fit(train).result)
    sampled = dvl.ShapleyValuation(utility, dvl.PermutationSampler(seed=0), dvl.MinUpdates(200), progress=False)
    yield "pyDVL, 200 permutations", "shapley", by_index(sampled.fit(train).result)


def by_index(result: Any) -> np.ndarray:
    values = np.empty(N)
    values[result.indices] = result.values
    return values


def by_shapiq(ours: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    import shapiq

    def game(coalitions: np.ndarray) -> np.ndarray:
        return np.array([worth(ours, coalition) for coalition in np.atleast_2d(coalitions).astype(bool)])

    computer = shapiq.ExactComputer(n_players=N, game=game)
    for name, index in (("shapley", "SV"), ("banzhaf", "BV")):
        found = computer(index)
        yield "shapiq", name, np.array([found[(player,)] for player in range(N)])
    approximator = shapiq.PermutationSamplingSV(n=N, random_state=0)
    found = approximator.approximate(budget=3000, game=game)
    yield "shapiq, budget 3000", "shapley", np.array([found[(player,)] for player in range(N)])


def compare(path: Path) -> int:
    with np.load(path) as file:
        ours = dict(file)
    others = []
    for name, values in (("pydvl", by_pydvl), ("shapiq", by_shapiq)):
        try:
            __import__(name)
        except ImportError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            others += list(values(ours))
    if not others:
        print("Neither pydvl nor shapiq is installed here.", file=sys.stderr)
        return 2
    failed = False
    print("| package | value | largest difference from our exact value |\n|---|---|---|")
    for package, name, values in others:
        difference = float(np.abs(values - ours[name]).max())
        exact = "," not in package
        failed |= exact and difference > 1e-9
        print(f"| {package} | {name} | {difference:.1e}{'' if exact else ' (it is sampled)'} |")
    print("\n| our sampler | largest difference | in standard errors |\n|---|---|---|")
    for name in ours:
        if f"{name}_error" in ours:
            off = np.abs(ours[name] - ours["shapley"])
            print(f"| {name} | {off.max():.1e} | {(off / ours[f'{name}_error']).max():.1f} |")
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("values", "compare"))
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    if chosen.step == "values":
        our_values(chosen.file)
        return 0
    return compare(chosen.file)


if __name__ == "__main__":
    sys.exit(main())
