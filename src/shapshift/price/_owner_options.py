"""Options of owner_values that payments, audits and checks share."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shapshift import _validation as check

#: Options that belong to the game; the others say what is valued.
OPTIONS = ("method", "semivalue", "max_players_exact", "n_permutations", "tolerance", "random_state")


def check_seed(owner: str, random_state: Any) -> int:
    """Return a seed: the one given, or a fresh one that the result can name."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return check.check_count(owner, "random_state", random_state, at_least=0)


def check_owner_options(owner: str, options: Any, basis: str) -> dict[str, Any]:
    """Return the options of owner_values that another function passes on; None means none."""
    if options is None:
        return {}
    said = f"The 'owner_options' parameter of {owner}"
    if not isinstance(options, Mapping):
        raise TypeError(
            f"{said} must be a mapping such as {{'random_state': 1}}. Got {type(options).__name__} instead."
        )
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(f"{said} takes {', '.join(OPTIONS)}. Got {unknown[0]!r} instead.")
    if options and basis != "owners":
        raise ValueError(f"{said} goes with basis='owners' only. Leave it out, or pay owners as players.")
    return dict(options)
