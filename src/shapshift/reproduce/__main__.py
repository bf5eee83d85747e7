"""``python -m shapshift.reproduce``: run the experiments of the paper again."""

import argparse
from dataclasses import replace

from shapshift.reproduce import FULL, QUICK, run_reproduction
from shapshift.reproduce._family import FamilySettings, run_family
from shapshift.reproduce._posterior import POSTERIOR_FULL, POSTERIOR_QUICK, run_posterior_benchmark
from shapshift.reproduce._settings import DATASETS


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m shapshift.reproduce",
        description="Re-run every experiment of the paper; writes tables, figures and a page of claims.",
        epilog="An interrupted run goes on where it stopped when started again with the same folder.",
    )
    parser.add_argument(
        "--posterior", action="store_true", help="instead: compare corrections, with and without clean data"
    )
    parser.add_argument("--out", help="folder for the results (default: reproduction, correction or family)")
    parser.add_argument("--quick", action="store_true", help="smaller sets and fewer seeds, in a minute or two")
    parser.add_argument(
        "--family", action="store_true", help="instead, compare all valuation methods on all datasets, in 15 minutes"
    )
    parser.add_argument("--data-dir", help="folder of the real datasets (default: $SHAPSHIFT_DATA, else OpenML)")
    parser.add_argument("--page", help="where to write the page of claims (default: reproduction.md in the folder)")
    parser.add_argument(
        "--datasets",
        nargs="+",
        choices=DATASETS,
        default=DATASETS,
        help="run only these (default: all)",
        metavar="NAME",
    )
    chosen = parser.parse_args()
    if chosen.posterior:
        sizes = replace(POSTERIOR_QUICK if chosen.quick else POSTERIOR_FULL, datasets=tuple(chosen.datasets))
        page = run_posterior_benchmark(
            chosen.out or "correction", settings=sizes, data_dir=chosen.data_dir, page=chosen.page
        )
        print(f"Wrote {page}")
        return
    if chosen.family:
        methods = FamilySettings(datasets=tuple(chosen.datasets))
        if chosen.quick:
            methods = replace(methods, n_train=30, n_val=60, fits=400, seeds=1)
        print(f"Wrote {run_family(chosen.out or 'family', settings=methods, data_dir=chosen.data_dir)}")
        return
    settings = replace(QUICK if chosen.quick else FULL, datasets=tuple(chosen.datasets))
    page = run_reproduction(chosen.out or "reproduction", settings=settings, data_dir=chosen.data_dir, page=chosen.page)
    print(f"Wrote {page}")


if __name__ == "__main__":
    main()
