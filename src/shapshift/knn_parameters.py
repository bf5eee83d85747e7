"""What the parameters of KNNShapley may be, alone and together."""

from typing import Any

from scipy import sparse

from shapshift import _validation as check
from shapshift.coefficients import Beta
from shapshift.distances import METRICS
from shapshift.gpu import torch_device
from shapshift.rowfile import RowFile
from shapshift.search import SEARCHES
from shapshift.truncated import check_search

SEMIVALUES = ("shapley", "banzhaf", "loo", "calibrated")


def check_parameters(model: Any) -> None:
    """Refuse parameters that KNNShapley cannot use, by name."""
    owner = type(model).__name__
    check.check_count(owner, "n_neighbors", model.n_neighbors)
    check.check_choice(owner, "utility", model.utility, ("soft", "hard"))
    if not isinstance(model.semivalue, Beta):
        check.check_choice(owner, "semivalue", model.semivalue, SEMIVALUES, "a Beta(alpha, beta) object")
    check.check_choice(owner, "metric", model.metric, METRICS)
    check.check_choice(owner, "method", model.method, ("exact", "certified", "truncated"))
    if model.tol is not None:
        check.check_number(owner, "tol", model.tol)
    check.check_choice(owner, "search", model.search, SEARCHES)
    if model.search != "exact":
        check_search(owner, model.search, model.method, model.metric)
    check.check_choice(owner, "ties", model.ties, ("average", "index"))
    check.check_choice(owner, "device", model.device, ("cpu", "cuda", "auto"))
    if model.device == "cuda" and model.method == "truncated":
        raise ValueError(
            f"The 'device' parameter of {owner} must be 'cpu' or 'auto' for method='truncated', which searches on "
            "the CPU. Got 'cuda' instead. On a card, method='certified' is the fast one."
        )
    check.check_jobs(owner, model.n_jobs)
    check.parse_memory(model.max_memory)
    check.check_progress(owner, model.progress)
    check.check_folder(owner, "scratch", model.scratch)


def check_checkpoint(model: Any) -> None:
    """Refuse a checkpoint where the way to the values has no use for one."""
    if model.search != "exact":
        raise ValueError(
            f"The 'checkpoint' parameter needs search='exact': an index is built anew by every process. Got "
            f"search={model.search!r} instead. Leave the checkpoint out, or search exactly."
        )


def choose_device(model: Any, rows: Any, has_checkpoint: bool) -> str | None:
    """Return the device that values such rows with torch, None for the kernels of the CPU."""
    owner, is_sparse, in_file = type(model).__name__, sparse.issparse(rows), isinstance(rows, RowFile)
    if model.device == "auto" and (is_sparse or in_file or has_checkpoint or model.method == "truncated"):
        return None
    device = torch_device(owner, model.device)
    if device is not None and has_checkpoint:
        raise ValueError(
            f"The 'checkpoint' parameter of {owner}.value is for the CPU: a run on a card is short. Got one with "
            f"device={model.device!r}. Leave it out, or use device='cpu' or 'auto'."
        )
    if device is not None and in_file:
        raise ValueError(
            f"The 'device' parameter of {owner} must be 'cpu' or 'auto' for rows that stay in a file. Got "
            f"{model.device!r} instead. Use the CPU, or load the rows."
        )
    if device is not None and is_sparse:
        raise TypeError(
            f"The 'device' parameter of {owner} must be 'cpu' or 'auto' for sparse training rows. Got "
            f"{model.device!r} instead. Use the CPU, or pass X.toarray()."
        )
    return device
