"""Options with a small language of their own: noise levels, perturbations, semivalues."""

import math
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from shapshift.cli._errors import PERTURBATIONS, CommandError
from shapshift.cli._options import Noise
from shapshift.exceptions import InputError

# Parameters that are mappings, or set by the audit, cannot be written here.
_NOT_HERE = ("random_state", "rates", "targets", "shares")


def parse_semivalue(text: str) -> Any:
    """Read ``shapley``, ``banzhaf``, ``loo``, ``calibrated``, ``beta:4,1`` or ``distributional:50``."""
    from shapshift.engine.coefficients import Beta
    from shapshift.knn.shapley import SEMIVALUES

    if text in SEMIVALUES:
        return text
    name, _, shape = text.partition(":")
    if name == "distributional" and shape.isdecimal() and int(shape) > 0:
        from shapshift.sampled import Distributional

        return Distributional(int(shape))
    try:
        if name != "beta":
            raise InputError
        alpha, beta = (float(part) for part in shape.split(","))
    except ValueError:
        raise CommandError(
            f"--semivalue must be one of {', '.join(SEMIVALUES)}, beta:ALPHA,BETA such as beta:4,1, or "
            f"distributional:N such as distributional:50 with --method sampled. Got {text!r}."
        ) from None
    return Beta(*(int(part) if part.is_integer() else part for part in (alpha, beta)))


def parse_levels(text: str, option: str = "--noise") -> list[float]:
    """Read noise levels such as ``0.1,0.2,0.5``."""
    try:
        levels = [float(part) for part in text.split(",")]
        if not all(math.isfinite(level) and level >= 0 for level in levels):
            raise InputError
    except ValueError:
        raise CommandError(
            f"{option} must be numbers of at least 0, separated by commas, such as 0.1,0.2,0.5. Got {text!r}."
        ) from None
    return levels


def audit_arguments(noise: Noise, classes: Sequence[Any], default: str | None) -> dict[str, Any] | None:
    """Turn the noise options into arguments of an audit; None when there are none.

    Parameters
    ----------
    noise : Noise
    classes : sequence
        Labels, for perturbations that name some.
    default : str or None
        Levels to take when nothing was asked for.
    """
    if noise.noise is not None and noise.perturb:
        raise CommandError("Give either --noise or --perturb, not both; as a perturbation, noise is gaussian:0.5.")
    if noise.perturb:
        if noise.relative:
            raise CommandError("--relative goes with --noise. With --perturb say gaussian:0.5,relative=true.")
        return {
            "perturbations": [parse_perturbation(text, classes) for text in noise.perturb],
            "repeats": noise.repeats,
        }
    levels = noise.noise if noise.noise is not None else default
    if levels is None:
        return None
    return {"noise": parse_levels(levels), "relative": noise.relative, "repeats": noise.repeats}


def parse_noise_only(noise: Noise) -> None:
    """Refuse perturbations where only levels of noise make sense."""
    if noise.perturb:
        raise CommandError("--perturb does not go with this command; give levels of --noise, such as 0.1,0.5.")


def parse_perturbation(text: str, classes: Sequence[Any]) -> Any:
    """Read ``laplace:epsilon=1`` and the like, or several with ``|`` in between.

    Parameters
    ----------
    text : str
    classes : sequence
        Labels, for perturbations that name some.
    """
    from shapshift import perturb

    steps = [_one_perturbation(part.strip(), classes) for part in text.split("|")]
    return steps[0] if len(steps) == 1 else perturb.Compose(*steps)


def _one_perturbation(text: str, classes: Sequence[Any]) -> Any:
    name, _, rest = text.partition(":")
    if name not in PERTURBATIONS:
        raise CommandError(
            f"--perturb must begin with one of {', '.join(PERTURBATIONS)}; for instance laplace:epsilon=1. "
            f"Got {text!r}."
        )
    from shapshift import perturb

    kind = getattr(perturb, PERTURBATIONS[name])
    given: dict[str, Any] = {}
    parameters = [field for field in fields(kind) if field.name not in _NOT_HERE]
    for part in filter(None, rest.split(",")):
        key, equals, value = part.rpartition("=") if "=" in part else ("", "", part)
        if name == "priors" and key not in ("", "n"):
            given.setdefault("shares", {})[_label(key, classes)] = _typed(value)
            continue
        if not equals and not given and parameters:
            key = parameters[0].name  # the first may go without its name, as in gaussian:0.5
        if key not in [field.name for field in parameters]:
            raise CommandError(_usage(name, parameters, text))
        given[key] = _typed(value)
    required = [field for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    if any(field.name not in given for field in required):
        raise CommandError(_usage(name, parameters, text))
    return kind(**given)


def _usage(name: str, parameters: Sequence[Any], text: str) -> str:
    if name == "priors":
        return f"--perturb priors needs shares of classes, such as priors:yes=0.7. Got {text!r}."
    return (
        f"--perturb {name} takes {', '.join(field.name for field in parameters)}, written {name}:"
        f"{parameters[0].name}=...; separate several by commas. Got {text!r}."
    )


def _label(text: str, classes: Sequence[Any]) -> Any:
    known = {str(label): label for label in classes}
    if text not in known:
        raise CommandError(f"--perturb priors names the label {text!r}. The labels are: {', '.join(known)}.")
    return known[text]


def _typed(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)
