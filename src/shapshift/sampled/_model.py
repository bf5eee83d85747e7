"""What is asked of the model that is valued, whoever made it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from shapshift import _validation as check

#: Models that can be asked for by name.
NAMED: Mapping[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "naive_bayes": GaussianNB,
    "tree": lambda: DecisionTreeClassifier(max_depth=5),
    "forest": lambda: RandomForestClassifier(20),
    "svm": lambda: make_pipeline(StandardScaler(), SVC()),
    "knn": lambda: KNeighborsClassifier(5),
    "linear": LinearRegression,
    "tree_regression": lambda: DecisionTreeRegressor(max_depth=5),
    "forest_regression": lambda: RandomForestRegressor(20),
}


def named(owner: str, estimator: Any) -> Any:
    """Return the model of that name; anything but a name is returned as it is."""
    if not isinstance(estimator, str):
        return estimator
    check.check_choice(owner, "estimator", estimator, tuple(NAMED), "an object with fit(X, y) and predict(X)")
    return NAMED[estimator]()


def check_estimator(owner: str, estimator: Any) -> None:
    """Refuse what cannot be fitted or cannot predict."""
    missing = [name for name in ("fit", "predict") if not callable(getattr(estimator, name, None))]
    if missing or isinstance(estimator, type):
        got = f"the class {estimator.__name__}; pass {estimator.__name__}()" if isinstance(estimator, type) else None
        raise TypeError(
            f"The 'estimator' parameter of {owner} must be an object with fit(X, y) and predict(X), such as "
            f"LogisticRegression(). Got {got or type(estimator).__name__} instead."
        )


def predicts_numbers(estimator: Any, utility: Any) -> bool:
    """Whether this is regression: by the utility, else by what the estimator says of itself."""
    if isinstance(utility, str) and utility != "auto":
        return utility == "squared_error"
    if not hasattr(estimator, "__sklearn_tags__"):
        return bool(getattr(estimator, "_estimator_type", None) == "regressor")
    return bool(is_regressor(estimator))


def check_warm_start(owner: str, estimator: Any) -> None:
    """Refuse models that cannot start from an earlier fit on other rows."""
    parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
    if "warm_start" not in parameters:
        raise ValueError(
            f"The 'warm_start' parameter of {owner} needs an estimator that has one too, and "
            f"{type(estimator).__name__} has none. Use warm_start=False."
        )
    if "n_estimators" in parameters or "max_iter" not in parameters:
        raise ValueError(
            f"The 'warm_start' parameter of {owner} does not go with {type(estimator).__name__}: its own warm start "
            "adds members to what was fitted on other rows instead of fitting anew. Use warm_start=False."
        )


def with_seeds(estimator: Any, seed: int) -> Any:
    """Give every ``random_state`` that is None the same seed, so that a coalition has one worth; others are kept."""
    if not hasattr(estimator, "get_params"):
        return estimator
    number = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)  # scikit-learn takes 31 bits
    open_seeds = {
        name: number
        for name, value in estimator.get_params(deep=True).items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    return estimator.set_params(**open_seeds) if open_seeds else estimator


def describe(estimator: Any) -> str:
    """Write class and all parameters, for the record."""
    # What has no get_params is told by its attributes: it is not fitted here, copies of it are.
    has_own = hasattr(estimator, "get_params")
    own = estimator.get_params(deep=False) if has_own else getattr(estimator, "__dict__", {})
    written = ", ".join(f"{name}={_written(value)}" for name, value in sorted(own.items()))
    return f"{type(estimator).__name__}({written})"


def _written(value: Any) -> str:
    if hasattr(value, "get_params") and not isinstance(value, type):
        return describe(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(part) for part in value)}]"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return repr(value)
