"""``make reproduce``, or ``python -m experiments``: run the experiments of the paper again, or a benchmark."""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MISSING = [name for name in ("pandas", "matplotlib") if importlib.util.find_spec(name) is None]
if MISSING:
    sys.exit(
        f"Error: the experiments need {' and '.join(MISSING)}. Run them by 'make reproduce', which installs it, or: "
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
    """Settings, in full and quick, the function that runs them, and what it is."""

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
        payouts.FULL, payouts.QUICK, payouts.run_payouts, "how payouts move with noise, and what corrections give back"
    ),
    "manipulation": Experiment(
        manipulation.FULL,
        manipulation.QUICK,
        manipulation.run_manipulation,
        "attacks on validation sets, and whether they are found",
    ),
    "market": Experiment(
        market.FULL,
        market.QUICK,
        market.run_market,
        "what tricks of sellers gain under rules of payment",
    ),
    "sensitivity": Experiment(
        sensitivity.FULL, sensitivity.QUICK, sensitivity.run_sensitivity, "what the paper leaves open, as options"
    ),
    "paper": Experiment(paper.FULL, paper.QUICK, reproduction.run_reproduction, "the claims of the paper"),
    "corrections": Experiment(
        corrections.FULL, corrections.QUICK, corrections.run_corrections, "with and without clean data, compared"
    ),
    "family": Experiment(family.FULL, family.QUICK, family.run_family, "all valuation methods on all datasets"),
    "population": Experiment(
        population.FULL,
        population.QUICK,
        population.run_population,
        "how near values, pooled and not, come to those on the population",
    ),
}
#: What "all" runs: those about the paper, in this order. The page of the last has a section on each of the others.
REPRODUCTION = ("coverage", "design", "payouts", "manipulation", "sensitivity", "paper")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run every experiment of the paper again, or a benchmark; writes tables, figures and a page.",
        epilog="An interrupted run of all but 'choices' resumes when it is started again with the same folder.",
    )
    parser.add_argument(
        "experiment",
        nargs="?",
        default="all",
        choices=["all", *EXPERIMENTS, "choices", "study"],
        help=f"all: {', '.join(REPRODUCTION)} (default); "
        + "; ".join(f"{name}: {experiment.what}" for name, experiment in EXPERIMENTS.items())
        + "; choices: the protocol that decided how to correct, on its own data; study: one of your own",
    )
    parser.add_argument("file", nargs="?", type=Path, help="study: its TOML file, see docs/experiments.md")
    parser.add_argument("--quick", action="store_true", help="smaller sets and fewer seeds, in a minute or two")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the results (default: experiments/results/EXPERIMENT; all: one below it for each)",
    )
    parser.add_argument("--page", type=Path, help="where to write the page (default: in the folder)")
    parser.add_argument("--data-dir", help="folder of the real datasets (default: $SHAPSHIFT_DATA, else OpenML)")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, help="run only these (default: all)", metavar="NAME")
    given = parser.parse_args(arguments)
    if (given.file is None) == (given.experiment == "study"):
        parser.error("study takes a TOML file, and the others take none: python -m experiments study FILE.toml")
    if given.experiment == "study":
        if given.quick or given.data_dir or given.datasets:
            parser.error("study takes sizes and data from its file, and --out and --page only")
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
            parser.error("choices makes its own data and writes no page: it takes --quick and --out only")
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
