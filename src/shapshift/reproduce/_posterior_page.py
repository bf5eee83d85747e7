"""The page of the benchmark of corrections."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shapshift._files import write_text
from shapshift.reproduce._bars import Bar, cell_means
from shapshift.reproduce._page import markdown_table
from shapshift.reproduce._settings import REAL
from shapshift.reproduce._summary import Table, select

if TYPE_CHECKING:
    from shapshift.reproduce._posterior import PosteriorSettings

STATISTICS = {
    "spearman": ("Rank agreement (Spearman) with the clean values", 3),
    "rmse": ("Error (root mean square), in standard deviations of the clean values", 3),
    "sign_agreement": ("Share of rows with the sign they have when clean", 3),
    "std_ratio": ("Standard deviation of the values, relative to the clean one", 2),
    "positive_difference": ("Positive values, more (+) or fewer (-) than when clean", 0),
}

INTRODUCTION = """# Corrections compared

Noisy, corrected and clean values of the same training rows. Written by `python -m shapshift.reproduce
--posterior{quick}`; nothing on this page is typed by hand. `docs/correction.md`
says what the corrections are.

**How.** Soft-label KNN-Shapley with K = {k}, {n_train:,} training and {n_val:,} validation rows, {seeds} seeds; every
seed draws its own split and its own noise. Noise is Gaussian, on the validation features only, in units of each
feature's standard deviation over the training rows. Protocols: *balanced* (classes balanced by oversampling before the
split; copies of one row can then stand on both sides) and *natural*; the Gaussian classes are balanced by construction.
`noisy` is no correction. `boundary` and `entropy` know the spread of the clean values and how many are positive.
`posterior` knows the noise and the training rows, nothing of the clean validation set; at most {draws} draws per point.
`posterior+boundary` and `posterior+entropy` know both. For mislabelled rows, {flipped:.0%} of the training labels were
made wrong, on {detection_seeds} seed(s); the number is the area under the ROC curve of finding them by low values.
"Clearly" below: the 95% interval over seeds of the difference lies below 0.

**How the choices were made.** On synthetic families of data; the last of them by a protocol that was written down
before its run (`benchmarks/correction_choices.py`). What is left open is chosen on the training rows at hand, without
validation rows. Nothing was changed after a look at these tables; `docs/correction.md` says more. The bars were set
beforehand.
"""


def write_posterior_page(
    page: str | Path, values: Table, labels: Table, bars: list[Bar], settings: "PosteriorSettings"
) -> Path:
    """Write bars and tables."""
    parts = [
        INTRODUCTION.format(
            quick=" --quick" if settings.name == "quick" else "",
            k=settings.n_neighbors,
            n_train=settings.n_train,
            n_val=settings.n_val,
            seeds=settings.seeds,
            draws=settings.draws,
            flipped=settings.flipped,
            detection_seeds=settings.detection_seeds,
        ),
        "## Bars\n",
        markdown_table(
            [
                {"bar": bar.bar, "found": bar.found, "verdict": f"**{'holds' if bar.holds else 'does not hold'}**"}
                for bar in bars
            ]
        ),
    ]
    parts += [
        f'Exceptions to "{bar.bar}":\n\n' + "\n".join(f"- {cell}" for cell in bar.exceptions) + "\n"
        for bar in bars
        if bar.exceptions
    ]
    parts.append("## On average\n\nMeans over datasets and protocols, Gaussian apart.\n")
    parts += _averages(values, settings)
    parts.append("## Cell by cell\n\nMeans over seeds.\n")
    for statistic, (title, digits) in STATISTICS.items():
        parts += [f"### {title}\n", _cells(values, statistic, digits)]
    if labels:
        parts += ["### Finding mislabelled rows (area under the ROC curve)\n", _labels(labels)]
    return write_text(page, "\n".join(parts))


def _methods(values: Table) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in values))


def _averages(values: Table, settings: "PosteriorSettings") -> list[str]:
    parts = []
    for group, names in (("Real datasets", REAL), ("Gaussian", ("gaussian",))):
        rows = []
        for sigma in settings.noise:
            here = [row for row in select(values, sigma=sigma) if row["dataset"] in names]
            if not here:
                continue
            entry: dict[str, str] = {"noise": f"{sigma:g}"}
            for method in _methods(values):
                mine = select(here, method=method)
                order, error = (float(np.mean([row[name] for row in mine])) for name in ("spearman", "rmse"))
                entry[method] = f"{order:.3f} ({error:.2f})"
            rows.append(entry)
        if rows:
            parts += [f"**{group}**: rank agreement (error)\n", markdown_table(rows)]
    return parts


def _cells(values: Table, statistic: str, digits: int) -> str:
    means = {method: cell_means(values, statistic, method=method) for method in _methods(values)}
    rows = []
    for cell in next(iter(means.values())):
        entry = {"dataset": cell[0], "protocol": cell[1], "noise": f"{cell[2]:g}"}
        entry |= {method: f"{found[cell]:{'+' if digits == 0 else ''}.{digits}f}" for method, found in means.items()}
        rows.append(entry)
    return markdown_table(rows)


def _labels(labels: Table) -> str:
    means = {name: cell_means(labels, name) for name in ("clean", "noisy", "posterior")}
    rows = []
    for cell in means["noisy"]:
        entry = {"dataset": cell[0], "protocol": cell[1], "noise": f"{cell[2]:g}"}
        rows.append(entry | {name: f"{found[cell]:.4f}" for name, found in means.items()})
    return markdown_table(rows)
