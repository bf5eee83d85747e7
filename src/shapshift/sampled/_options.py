"""Checks of what SampledShapley is asked for."""

from collections.abc import Mapping
from typing import Any

from shapshift import _validation as check
from shapshift.coefficients import Beta
from shapshift.sampled._game import UTILITIES
from shapshift.sampled._model import check_estimator, check_warm_start
from shapshift.sampled._protocol import Distributional
from shapshift.sampled._samplers import choose_sampler

SEMIVALUES = ("shapley", "banzhaf", "loo")


def check_options(owner: str, model: Any, options: Mapping[str, Any]) -> None:
    """Refuse parameters that mean nothing, or do not go together.

    Parameters
    ----------
    owner : str
        Who is asked, for the messages.
    model : object
        The estimator, made if it was named.
    options : mapping
        All parameters of SampledShapley by name.
    """
    check_estimator(owner, model)
    semivalue, utility = options["semivalue"], options["utility"]
    if not isinstance(semivalue, Beta | Distributional):
        check.check_choice(
            owner, "semivalue", semivalue, SEMIVALUES, "a Beta(alpha, beta) or a Distributional(n) object"
        )
    choose_sampler(owner, options["sampler"], semivalue)
    if not callable(utility):
        check.check_choice(owner, "utility", utility, UTILITIES, "a function (model, X_val, y_val) -> array")
    if utility == "probability" and not hasattr(model, "predict_proba"):
        raise ValueError(
            f"The 'utility' parameter of {owner} is 'probability', but {type(model).__name__} has no predict_proba. "
            "Use utility='correct', or an estimator that has it."
        )
    check.check_count(owner, "max_fits", options["max_fits"])
    if options["tol"] is not None:
        check.check_number(owner, "tol", options["tol"], above=True)
    check.check_choice(owner, "on_error", options["on_error"], ("raise", "constant"))
    check.check_flag(owner, "warm_start", options["warm_start"])
    if options["warm_start"]:
        check_warm_start(owner, model)
    cache_bytes(owner, options["cache"])
    check.check_jobs(owner, options["n_jobs"])
    check.check_progress(owner, options["progress"])


def cache_bytes(owner: str, cache: Any) -> int:
    """Read how much memory the cache may take; 0 keeps nothing.

    Examples
    --------
    >>> cache_bytes("SampledShapley", "64MB"), cache_bytes("SampledShapley", 0)
    (64000000, 0)
    """
    return 0 if cache == 0 else check.parse_memory(cache, owner, "cache") or 0
