"""``make reproduce``, or ``python -m experiments``: reproduce the paper's experiments, or run a benchmark."""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MISSING = [name for name in ("pandas", "matplotlib") if importlib.util.find_spec(name) is None]
if MISSING:
    sys.exit(
        f"Error: the experiments need {' and '.join(MISSING)}. Run them with 'make reproduce', which installs it, or: "
        'pip install -e ".[pandas,plot]"'
    )

from experiments import (  # noqa: E402, after the check for libraries
    correction_choices,
    corrections,
    coverage,
    design,
    family,
    manipulation,
    market,
    paper,
    payouts,
    population,
    reproduction,
    sensitivity,
)
from experiments import study as studies  # noqa: E402, the same
from experiments.cells import DATASETS, Settings  # noqa: E402, the same
from experiments.study_file import read_study  # noqa: E402, the same
from shapshift.exceptions import InputError  # noqa: E402, the same


class Experiment(NamedTuple):
    """Full and quick settings of an experiment, the function that runs it, and its description."""

    full: Settings
    quick: Settings
    run: Callable[..., Path]
    what: str


EXPERIMENTS = {
    "coverage": Experiment(
        coverage.FULL, coverage.QUICK, coverage.run_coverage, "values against the share of boundary points"
    ),
    "design": Experiment(design.FULL, design.QUICK, design.run_design, "choices of validation points"),
    "payouts": Experiment(
        payouts.FULL, payouts.QUICK, payouts.run_payouts, "payouts under noise, and how far corrections restore them"
    ),
    "manipulation": Experiment(
        manipulation.FULL,
        manipulation.QUICK,
        manipulation.run_manipulation,
        "attacks on validation sets, and their detection",
    ),
    "market": Experiment(
        market.FULL,
        market.QUICK,
        market.run_market,
        "gains of sellers' tricks under rules of payment",
    ),
    "sensitivity": Experiment(
        sensitivity.FULL, sensitivity.QUICK, sensitivity.run_sensitivity, "choices that the paper does not state"
    ),
    "paper": Experiment(paper.FULL, paper.QUICK, reproduction.run_reproduction, "the claims of the paper"),
    "corrections": Experiment(
        corrections.FULL, corrections.QUICK, corrections.run_corrections, "corrections with and without clean data"
    ),
    "family": Experiment(family.FULL, family.QUICK, family.run_family, "all valuation methods on all datasets"),
    "population": Experiment(
        population.FULL,
        population.QUICK,
        population.run_population,
        "agreement of values, pooled and plain, with those on the population",
    ),
}
#: Experiments of "all", in this order: those about the paper. The last one's page has a section on each of the others.
REPRODUCTION = ("coverage", "design", "payouts", "manipulation", "sensitivity", "paper")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Reproduce the experiments of the paper, or run a benchmark; writes tables, figures and a page.",
        epilog="To resume an interrupted run, start it again with the same folder ('choices' cannot be resumed).",
    )
    parser.add_argument(
        "experiment",
        nargs="?",
        default="all",
        choices=["all", *EXPERIMENTS, "choices", "study"],
        help=f"all: {', '.join(REPRODUCTION)} (default); "
        + "; ".join(f"{name}: {experiment.what}" for name, experiment in EXPERIMENTS.items())
        + "; choices: the protocol that chose the correction, on its own data; study: your own study",
    )
    parser.add_argument("file", nargs="?", type=Path, help="TOML file of a study, see docs/experiments.md")
    parser.add_argument("--quick", action="store_true", help="smaller sets and fewer seeds: a minute or two")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the results (default: experiments/results/EXPERIMENT; all: a subfolder for each)",
    )
    parser.add_argument("--page", type=Path, help="file for the page of results (default: in the folder)")
    parser.add_argument("--data-dir", help="folder of the real datasets (default: $SHAPSHIFT_DATA, else OpenML)")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, help="run only these (default: all)", metavar="NAME")
    given = parser.parse_args(arguments)
    if (given.file is None) == (given.experiment == "study"):
        parser.error("study needs a TOML file, and other experiments take none: python -m experiments study FILE.toml")
    if given.experiment == "study":
        if given.quick or given.data_dir or given.datasets:
            parser.error("study reads sizes and data from its file; it takes only --out and --page")
        folder = given.out or Path("experiments") / "results" / "study" / given.file.stem
        try:
            studies.run_study(read_study(given.file), folder, given.page)
        except (InputError, OSError) as error:
            sys.exit(f"Error: {error}")
        print(f"Wrote {given.page or folder / 'study.md'}")
        return
    results = Path("experiments") / "results"
    if given.experiment == "choices":
        if given.page or given.data_dir or given.datasets:
            parser.error("choices makes its own data and writes no page: it takes only --quick and --out")
        seeds = correction_choices.TRIAL_SEEDS if given.quick else correction_choices.SEEDS
        correction_choices.run_choices(given.out or results / "choices", seeds)
        return
    together = given.experiment == "all"
    for name in REPRODUCTION if together else (given.experiment,):
        full, quick, run, _ = EXPERIMENTS[name]
        settings = (quick if given.quick else full).choose(given.datasets, given.data_dir)
        folder = (given.out or results) / name if together else given.out or results / name
        print(f"Wrote {run(folder, settings, given.page if name == given.experiment else None)}", flush=True)


if __name__ == "__main__":
    main()
