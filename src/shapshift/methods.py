"""Valuation methods by name, for the command line and for tables that compare them.

A method is a name, a factory that returns an unfitted model with ``fit(X, y, ids=...)`` and
``value(X_val, y_val) -> Valuation``, and a line about it. To add one, add an entry to ``METHODS``: the factory's
keyword parameters become what ``--method name:parameter=value`` takes, and those among them that have an option of
their own (``n_neighbors``, ``metric``, ...) are filled in from it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from shapshift.exceptions import InputError


@dataclass(frozen=True)
class MethodEntry:
    """One method.

    Attributes
    ----------
    factory : str
        Class or function that makes the model, as ``module:name``; imported when it is needed.
    text : str
        Description in one line.
    example : str
        Example of its text after ``--method``.
    task : {"classification", "regression"} or callable
        Kind of the labels, or a function of the parameters that returns it.
    hidden : tuple of str
        Parameters that cannot be written as text, or that have their own, more expressive option.
    own : tuple of str
        Parameters that differ in meaning from the option of their name, so they do not take its default.
    """

    factory: str
    text: str
    example: str
    task: str | Callable[[Mapping[str, Any]], str] = "classification"
    hidden: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def make(self) -> Callable[..., Any]:
        """Import the factory."""
        module, _, name = self.factory.partition(":")
        factory: Callable[..., Any] = getattr(import_module(module), name)
        return factory

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Parameters that can be given by name."""
        return {
            name: parameter
            for name, parameter in inspect.signature(self.make()).parameters.items()
            if name not in self.hidden + RUNNING + PLACES
        }


#: Parameters of the computation, which have their own options.
RUNNING = ("n_jobs", "max_memory", "progress", "random_state")
#: Parameters that name a place to write. They cannot be given as text, which may come from an untrusted manifest.
PLACES = ("scratch", "checkpoint")


def _task_of_model(given: Mapping[str, Any]) -> str:
    return "regression" if str(given.get("estimator", "")) in REGRESSORS else "classification"


#: Named models of the sampled method that predict numbers.
REGRESSORS = ("linear", "tree_regression", "forest_regression")

METHODS: dict[str, MethodEntry] = {
    "knn": MethodEntry(
        "shapshift.knn:KNNShapley",
        "K nearest neighbours, every semivalue",
        "knn",
        hidden=("semivalue", "device"),
    ),
    "regression": MethodEntry(
        "shapshift.knn:KNNRegressionShapley",
        "K nearest neighbours for a number instead of a class",
        "regression:utility=hard,baseline=zero",
        task="regression",
    ),
    "threshold": MethodEntry(
        "shapshift.knn:ThresholdKNNShapley",
        "all rows within a radius vote",
        "threshold:radius=1.5",
    ),
    "weighted": MethodEntry(
        "shapshift.knn:WeightedKNNShapley",
        "K nearest neighbours, nearer ones with more weight",
        "weighted:weights=gaussian,bits=4",
    ),
    "sampled": MethodEntry(
        "shapshift.sampled:SampledShapley",
        "any model, fitted on sampled coalitions of rows",
        "sampled:estimator=logistic,max_fits=2000",
        task=_task_of_model,
        hidden=("semivalue",),
        own=("utility",),
    ),
    "proxy": MethodEntry(
        "shapshift.sampled:KNNProxy",
        "K nearest neighbours in the space of another model",
        "proxy:estimator=forest,embed=leaves",
        hidden=("semivalue",),
    ),
}


@dataclass(frozen=True)
class MethodSpec:
    """A chosen method with its given parameters.

    Attributes
    ----------
    name : str
    given : mapping of str to object
    """

    name: str
    given: Mapping[str, Any]

    @property
    def entry(self) -> MethodEntry:
        """Entry of the method in ``METHODS``."""
        return METHODS[self.name]

    @property
    def task(self) -> str:
        """Whether labels are classes ("classification") or numbers ("regression")."""
        task = self.entry.task
        return task if isinstance(task, str) else task(self.given)

    def build(self, chosen: Mapping[str, Any], quiet: Mapping[str, Any]) -> Any:
        """Make the model.

        Parameters
        ----------
        chosen : mapping
            Parameters chosen elsewhere; the method must take all of them.
        quiet : mapping
            Defaults, and parameters that change no result; those that the method does not take are ignored.

        Raises
        ------
        ValueError
            If the method does not take a chosen parameter, one was given twice, or a required one is missing.
        """
        known = inspect.signature(self.entry.make()).parameters
        for name in chosen:
            if name not in known:
                raise InputError(f"The method {self.name!r} does not take {name!r}. {self._usage()}")
            if name in self.given:
                raise InputError(
                    f"The parameter {name!r} of method {self.name!r} was given twice. Leave one of them out."
                )
        defaults = {name: value for name, value in quiet.items() if name in known and name not in self.entry.own}
        arguments = defaults | dict(chosen) | dict(self.given)
        missing = [
            name
            for name, parameter in known.items()
            if parameter.default is inspect.Parameter.empty and name not in arguments
        ]
        if missing:
            raise InputError(f"The method {self.name!r} needs {', '.join(missing)}. {self._usage()}")
        return self.entry.make()(**arguments)

    def _usage(self) -> str:
        return f"It takes {', '.join(self.entry.parameters())}; for instance {self.entry.example}."


def parse_method(text: str) -> MethodSpec:
    """Read ``weighted`` or ``weighted:weights=gaussian,bits=4``.

    Parameters
    ----------
    text : str

    Returns
    -------
    MethodSpec

    Raises
    ------
    ValueError
        If there is no such method, or it has no such parameter.

    Examples
    --------
    >>> parse_method("weighted:weights=gaussian,bits=4")
    MethodSpec(name='weighted', given={'weights': 'gaussian', 'bits': 4})
    >>> parse_method("threshold:radius=1.5").build({}, {"metric": "manhattan", "n_neighbors": 5})
    ThresholdKNNShapley(metric='manhattan', radius=1.5)
    """
    name, _, rest = text.partition(":")
    if name not in METHODS:
        listed = "; ".join(f"{known} ({entry.text})" for known, entry in METHODS.items())
        raise InputError(f"There is no method {name!r}. The methods are: {listed}.")
    spec = MethodSpec(name, {})
    given: dict[str, Any] = {}
    parameters = spec.entry.parameters()
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in parameters:
            raise InputError(f"The method {name!r} does not take {part!r}. {spec._usage()}")
        if key in given:
            raise InputError(f"The parameter {key!r} of method {name!r} was given twice. Leave one of them out.")
        given[key] = read_value(value)
    return MethodSpec(name, given)


def read_value(text: str) -> Any:
    """Read a whole number, a number, true, false or none; anything else stays text.

    Examples
    --------
    >>> [read_value(text) for text in ("3", "0.5", "true", "none", "gaussian")]
    [3, 0.5, True, None, 'gaussian']
    """
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
