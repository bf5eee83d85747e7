"""Compare wrong labels found by ``find_suspects`` and by cleanlab; ``make bench-suspects`` judges the bars.

cleanlab runs in its own environment. Every finished cell (a dataset, a kind of noise, a seed) is stored: an interrupted
run resumes, and cleanlab's results are reused when only our method changes. One thread per process.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shapshift
from benchmarks.noisy_labels import NOISES, SUITES, Case, clusters, make_case
from benchmarks.peers import Peer, environment
from experiments.cells import run_cells
from experiments.tables import interval, markdown_table, write_tables
from shapshift import Suspects, find_suspects
from shapshift.suspects.scores import flag

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
CLEANLAB = Peer(
    "cleanlab",
    "2.9.0",
    sizes=(),
    requires=("cleanlab[datalab]==2.9.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1"),
)
RUNNER = HERE / "peers" / "run_cleanlab.py"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), "1")
CASE_FORMAT = 1  # increased when cases or their measures change, so that stored ones are not used

#: Models for both packages, as class and parameters, since each environment creates its own.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "forest": ("sklearn.ensemble.RandomForestClassifier", {"n_estimators": 100, "random_state": 0})
}
MODES = ("features", *MODELS)
ERROR, ERRORS = 0.1, (0.1, 0.2, 0.3)
LEARNERS = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "random forest": RandomForestClassifier(50, random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=15, early_stopping=False, random_state=0
    ),
}
#: Fewest flagged rows of a cell, pooled over seeds, to estimate the share of right labels among them.
FEWEST_FLAGGED = 20

BARS = {"fifth": 0.2, "error": 0.05, "worst": -0.005, "recall": -0.02}

Cell = tuple[str, str, str, int]


# Cases and cleanlab's results, as files


def case_file(folder: Path, cell: Cell, what: str) -> Path:
    return folder / f"{what}-{CASE_FORMAT}" / f"{'-'.join(map(str, cell))}.npz"


def store_case(path: Path, cell: Cell) -> None:
    case = make_case(*cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **vars(case))
    part.replace(path)


def load_case(folder: Path, cell: Cell) -> Case:
    with np.load(case_file(folder, cell, "cases")) as file:
        return Case(**file)


def ask_cleanlab(python: Path, pairs: list[tuple[Path, Path]], processes: int) -> None:
    """Write cleanlab's results for files of cases."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    running = []
    for share in (pairs[i::processes] for i in range(processes)):
        files = [str(path.resolve()) for pair in share for path in pair]
        if files:
            running.append(subprocess.Popen([python, RUNNER, json.dumps(MODELS), *files], env=clean | ONE_THREAD))
    if sum(process.wait() != 0 for process in running):  # a sum, so that all are waited for
        raise RuntimeError("cleanlab's runner failed; its message is above")


def prepare(folder: Path, python: Path, cells: list[Cell], processes: int) -> None:
    cases = {cell: case_file(folder, cell, "cases") for cell in cells}
    missing = [cell for cell in cells if not cases[cell].exists()]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(store_case, (cases[cell] for cell in missing), missing))
    answers = {cell: case_file(folder, cell, "cleanlab") for cell in cells}
    for path in answers.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    ask_cleanlab(python, [(cases[cell], answers[cell]) for cell in cells if not answers[cell].exists()], processes)


# Measures


def precision_at(score: np.ndarray, wrong: np.ndarray) -> float:
    """Precision at the number of wrong labels; the mean over orders of rows with equal scores."""
    n = int(wrong.sum())
    last = np.sort(score)[-n]
    above, tied = score > last, score == last
    return float((wrong[above].sum() + (n - above.sum()) * wrong[tied].mean()) / n)


def ranking(score: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    return {"auc": float(roc_auc_score(wrong, score)), "precision": precision_at(score, wrong)}


def learn(case: Case, labels: np.ndarray, keep: np.ndarray) -> dict[str, list[float]]:
    """Balanced accuracy and recall of the smallest class on the test rows, by learner."""
    smallest = int(np.argmin(np.bincount(case.true)))
    found = {}
    for name, learner in LEARNERS.items():
        if len(np.unique(labels[keep])) == 1:
            predicted = np.full(case.y_test.size, labels[keep][0])
        else:
            predicted = learner.fit(case.X[keep], labels[keep]).predict(case.X_test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class that is never predicted
            accuracy = balanced_accuracy_score(case.y_test, predicted)
            recall = recall_score(case.y_test, predicted, labels=[smallest], average="macro")
        found[name] = [float(accuracy), float(recall)]
    return found


def learn_after(case: Case, name: str, flagged: np.ndarray, suggested: np.ndarray) -> dict[str, Any]:
    """Results of learning after dropping and after relabelling the flagged rows; None without flagged rows."""
    if not flagged.any():
        return {f"{name} drop": None, f"{name} relabel": None}
    return {
        f"{name} drop": learn(case, case.given, ~flagged),
        f"{name} relabel": learn(case, np.where(flagged, suggested, case.given), np.full(flagged.size, True)),
    }


def measure_cleanlab(folder: Path, cell: Cell, effects: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    case = load_case(folder, cell)
    with np.load(case_file(folder, cell, "cleanlab")) as file:
        answer = dict(file)
    everything = np.full(case.given.size, True)
    result: dict[str, Any] = {"learned": {"noisy": learn(case, case.given, everything)} if effects else {}}
    for mode in MODES:
        flagged, suggested = answer[f"{mode}_flagged"], answer[f"{mode}_suggested"]
        result[mode] = ranking(answer[f"{mode}_score"], case.wrong) | {
            "f1": float(f1_score(case.wrong, flagged, zero_division=0.0)),
            "flagged": int(flagged.sum()),
        }
        if effects:
            result["learned"] |= learn_after(case, mode, flagged, suggested)
    return result


def find_ours(case: Case, mode: str) -> tuple[Suspects, float]:
    """Result of find_suspects, and its processor seconds."""
    kind, parameters = MODELS.get(mode, (None, {}))
    model = locate(kind)(**parameters) if kind else None
    start = time.process_time()
    found = find_suspects(case.X, case.given, model=model, error=ERROR, random_state=0, progress=False)
    return found, time.process_time() - start


def measure_ours(folder: Path, cell: Cell, effects: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    case = load_case(folder, cell)
    wrong, result = case.wrong, {"learned": {}}
    for mode in MODES:
        suspects, _ = find_ours(case, mode)
        suggested = suspects.suggested
        result[mode] = ranking(suspects.probability, wrong) | {"cuts": []}
        for error in ERRORS:
            flagged, expected = flag(suspects.probability, error)
            found = wrong & flagged
            cut = {
                "error": error,
                "f1": float(f1_score(wrong, flagged, zero_division=0.0)),
                "flagged": int(flagged.sum()),
                "right": int((flagged & ~wrong).sum()),
                "expected_right": float(expected * flagged.sum()) if flagged.any() else 0.0,
                "suggested_right": int((suggested[found] == case.true[found]).sum()),
            }
            result[mode]["cuts"].append(cut)
            if error == ERROR and effects:
                result["learned"] |= learn_after(case, mode, flagged, suggested)
                if mode == MODES[-1]:
                    rows = np.random.default_rng(cell[-1]).permutation(wrong.size)
                    keep = np.isin(np.arange(wrong.size), rows[int(flagged.sum()) :])
                    result["learned"]["random drop"] = learn(case, case.given, keep) if flagged.any() else None
    return result


def our_key(effects: bool) -> str:
    """Hash of the code that finds suspects: cells stored by different code are not used."""
    package = Path(shapshift.__file__).parent
    files = [package / "duplicates.py", *sorted(package.glob("suspects/*.py"))]
    code = b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(code + str((MODELS, ERRORS, CASE_FORMAT, effects)).encode()).hexdigest()[:16]


def measure(folder: Path, cells: list[Cell], effects: bool, processes: int, ours: bool = True) -> list[dict[str, Any]]:
    """One record per cell and tool, cleanlab's first."""
    work: dict[Any, Any] = {}
    for cell in cells:
        key = f"cleanlab-{CASE_FORMAT}-{effects}"
        work[*cell, "cleanlab"] = key, partial(measure_cleanlab, folder, cell, effects)
    for cell in cells if ours else ():
        work[*cell, "shapshift"] = our_key(effects), partial(measure_ours, folder, cell, effects)
    found = run_cells(folder / ("cells" if effects else "cells-rankings"), work, processes)
    names = ("suite", "dataset", "noise", "seed", "tool")
    return [dict(zip(names, cell, strict=True)) | {"result": result} for cell, result in found.items()]


# Tables


def ranking_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """AUC, precision at the number of errors and F1 of the flagged rows, for every cell, tool and mode."""
    rows = []
    for record, mode in product(records, MODES):
        found = record["result"][mode]
        f1 = found["f1"] if "f1" in found else next(cut["f1"] for cut in found["cuts"] if cut["error"] == ERROR)
        place = {name: record[name] for name in ("dataset", "noise", "seed", "tool")}
        rows.append(place | {"mode": mode, "auc": found["auc"], "precision": found["precision"], "f1": f1})
    return pd.DataFrame(rows)


def cut_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Expected and true shares of right labels among the flagged, pooled over the seeds of a dataset and noise."""
    rows = [
        {"dataset": record["dataset"], "noise": record["noise"], "mode": mode, **cut}
        for record in records
        if record["tool"] == "shapshift"
        for mode in MODES
        for cut in record["result"][mode]["cuts"]
    ]
    frame = pd.DataFrame(rows).groupby(["mode", "error", "noise", "dataset"], sort=False)
    sums = frame[["flagged", "right", "expected_right", "suggested_right"]].sum()
    sums["f1"] = frame["f1"].mean()
    sums["expected"] = sums["expected_right"] / sums["flagged"]
    sums["true"] = sums["right"] / sums["flagged"]
    sums["suggestions"] = sums["suggested_right"] / (sums["flagged"] - sums["right"])
    return sums.reset_index()


def effect_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Changes from the noisy training set, for every cell, tool, mode, action and learner."""
    noisy = {
        (record["dataset"], record["noise"], record["seed"]): record["result"]["learned"]["noisy"]
        for record in records
        if record["tool"] == "cleanlab"
    }
    rows = []
    for record in records:
        before = noisy[record["dataset"], record["noise"], record["seed"]]
        for name, after in record["result"]["learned"].items():
            if name == "noisy":
                continue
            mode, action = name.split()
            for learner, (accuracy, recall) in before.items():
                now = (accuracy, recall) if after is None else after[learner]
                place = {key: record[key] for key in ("dataset", "noise", "seed", "tool")}
                change = {"accuracy": now[0] - accuracy, "recall": now[1] - recall}
                rows.append(place | {"mode": mode, "action": action, "learner": learner} | change)
    return pd.DataFrame(rows)


def mean_effects(effects: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds."""
    keys = ["tool", "mode", "action", "noise", "dataset", "learner"]
    return effects.groupby(keys, sort=False)[["accuracy", "recall"]].mean().reset_index()


# Bars


def judge(name: str, where: str, asked: float, measured: float, words: str = "at least") -> dict[str, Any]:
    gap = measured - asked  # rounding must not decide
    met = {"at least": gap >= -1e-9, "more than": gap > 1e-9, "at most": gap <= 1e-9}[words]
    return {"bar": name, "where": where, "asked": f"{words} {asked:.3f}", "measured": round(measured, 3),
            "met": "yes" if met else "NO"}  # fmt: skip


def judge_rankings(rankings: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Each of our modes against the better of cleanlab's two, by the mean over datasets and seeds."""
    for mode, (noise, found) in product(MODES, rankings.groupby("noise", sort=False)):
        means = found.groupby(["tool", "mode"])[["auc", "precision"]].mean()
        for measure, words in (("auc", "mean AUC"), ("precision", "mean precision at the number of errors")):
            best = means.loc["cleanlab", measure].max()
            yield judge(words, f"{mode}, {noise}", best, means.loc[("shapshift", mode), measure])


def judge_f1(rankings: pd.DataFrame, cuts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """F1 of the flagged rows of each of our modes and cut-offs, against the better of cleanlab's two."""
    best = rankings[rankings["tool"] == "cleanlab"].groupby("mode")["f1"].mean().max()
    for (mode, error), found in cuts.groupby(["mode", "error"], sort=False):
        where = f"{mode}, cut-off {error}{' (default)' if error == ERROR else ''}"
        yield judge("mean F1 of the flagged rows", where, best, found["f1"].mean(), "more than")


def judge_cuts(cuts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Mean absolute difference of expected and true error over datasets and noises with enough flagged rows."""
    enough = cuts[cuts["flagged"] >= FEWEST_FLAGGED]
    for (mode, error), found in enough.groupby(["mode", "error"], sort=False):
        off = (found["expected"] - found["true"]).abs().mean()
        where = f"cut-off {error}, {mode}, {len(found)} of {len(cuts.query('mode == @mode and error == @error'))} cells"
        yield judge("expected error off by", where, BARS["error"], off, "at most")


def judge_effects(effects: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Smallest change of any dataset, noise and learner (means over seeds), and the mean change."""
    ours = mean_effects(effects).query("tool == 'shapshift' and mode != 'random'")
    for (mode, action), found in ours.groupby(["mode", "action"], sort=False):
        worst = found.loc[found["accuracy"].idxmin()]
        place = f"{action}, {mode}: {worst['dataset']}, {worst['noise']}, {worst['learner']}"
        yield judge("least change of balanced accuracy", place, BARS["worst"], worst["accuracy"])
        yield judge("mean change of balanced accuracy", f"{action}, {mode}", 0.0, found["accuracy"].mean(), "more than")
        worst = found.loc[found["recall"].idxmin()]
        place = f"{action}, {mode}: {worst['dataset']}, {worst['noise']}, {worst['learner']}"
        yield judge("least change of minority recall", place, BARS["recall"], worst["recall"])


def judge_times(times: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Our time as a share of cleanlab's in the same mode, and in its better mode: all datasets, and the large table."""
    for size, found in times.groupby("size", sort=False):
        seconds = found.groupby("mode")[["cleanlab", "shapshift"]].sum()
        for ours, theirs in (*((mode, mode) for mode in MODES), (MODES[0], MODES[-1])):
            share = seconds.loc[ours, "shapshift"] / seconds.loc[theirs, "cleanlab"]
            where = f"{ours} against {theirs}, {size}"
            yield judge("share of cleanlab's time", where, BARS["fifth"], share, "at most")


# Times


def time_ours(path: Path) -> dict[str, float]:
    warnings.simplefilter("ignore")
    with np.load(path) as file:
        case = Case(**file)
    small = Case(case.X[:64], np.arange(64) % 2, np.arange(64) % 2, case.X_test, case.y_test)
    find_ours(small, "features")  # loads the compiled kernels
    return {mode: find_ours(case, mode)[1] for mode in MODES}


def time_both(
    folder: Path, python: Path, datasets: tuple[str, ...], turns: int, large: int
) -> list[dict[str, float | str]]:
    """Processor seconds of one call in one thread; the tools take turns, and the best turn of each counts."""
    place = folder / "times"
    place.mkdir(parents=True, exist_ok=True)
    paths = {}
    for dataset in datasets:
        paths[dataset] = case_file(folder, ("published", dataset, "uniform-10", 0), "cases")
    if large:
        X, y = clusters(0, large, 20, 3, 2, 1.2)
        paths[f"{large:,} x 20"] = place / "large.npz"
        np.savez(place / "large.npz", **vars(Case(X, y, y, X[:1], y[:1])))
    seconds: dict[tuple[str, str, str], float] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for turn in range(turns):
            now = {name: path for name, path in paths.items() if turn == 0 or name in datasets}
            ask_cleanlab(python, [(path, place / f"{path.stem}-answer.npz") for path in now.values()], 1)
            for name, path in now.items():
                with np.load(place / f"{path.stem}-answer.npz") as file:
                    found = {("cleanlab", mode): float(file[f"{mode}_seconds"]) for mode in MODES}
                    found |= {("all checks", mode): float(file[f"{mode}_all_seconds"]) for mode in MODES}
                found |= {("shapshift", mode): s for mode, s in pool.submit(time_ours, path).result().items()}
                for (tool, mode), spent in found.items():
                    seconds[name, mode, tool] = min(spent, seconds.get((name, mode, tool), np.inf))
    frame = pd.Series(seconds).unstack().rename_axis(["dataset", "mode"]).reset_index()
    frame["size"] = np.where(frame["dataset"].isin(datasets), f"{len(datasets)} datasets", frame["dataset"])
    return frame.to_dict("records")


# The run


def effect_table(effects: pd.DataFrame) -> pd.DataFrame:
    """Mean changes with intervals over seeds, and the smallest mean over seeds of any dataset, noise and learner."""
    means, rows = mean_effects(effects), []
    for (tool, mode, action), found in effects.groupby(["tool", "mode", "action"], sort=False):
        row = {"tool": tool, "mode": mode, "action": action}
        for learner, changes in found.groupby("learner", sort=False):
            row[learner] = interval(changes.groupby("seed")["accuracy"].mean()).show(4)
        cells = means[(means["tool"] == tool) & (means["mode"] == mode) & (means["action"] == action)]
        rows.append(row | {"least": cells["accuracy"].min(), "least recall": cells["recall"].min()})
    return pd.DataFrame(rows)


def error_table(cuts: pd.DataFrame) -> pd.DataFrame:
    """Expected and true error by mode and cut-off: means over the cells with enough flagged rows."""
    rows = []
    for (mode, error), found in cuts.groupby(["mode", "error"], sort=False):
        enough = found[found["flagged"] >= FEWEST_FLAGGED]
        off = enough["expected"] - enough["true"]
        rows.append(
            {
                "mode": mode,
                "cut-off": error,
                "cells": f"{len(enough)} of {len(found)}",
                "expected": enough["expected"].mean(),
                "true": enough["true"].mean(),
                "mean absolute difference": off.abs().mean(),
                "largest": off.abs().max(),
                "F1": found["f1"].mean(),
                "right suggestions": found["suggested_right"].sum() / (found["flagged"] - found["right"]).sum(),
            }
        )
    return pd.DataFrame(rows)


def tables_of(records: list[dict[str, Any]], effects: bool) -> dict[str, pd.DataFrame]:
    rankings = ranking_frame(records)
    measures = ["auc", "precision", "f1"]

    def means(*keys: str) -> pd.DataFrame:
        return rankings.groupby(list(keys), sort=False)[measures].mean().reset_index()

    tables = {"rankings": means("noise", "tool", "mode")}
    tables["rankings_by_dataset"] = means("dataset", "noise", "tool", "mode")
    if (rankings["tool"] == "shapshift").any():
        tables["cuts_by_dataset"] = cut_frame(records)
        tables["cuts"] = error_table(tables["cuts_by_dataset"])
    if effects:
        changes = effect_frame(records)
        tables["effects_by_cell"] = mean_effects(changes)
        tables["effects"] = effect_table(changes)
    return tables


def write_docs(tables: dict[str, pd.DataFrame]) -> None:
    """Write the tables, and insert those shown on the page."""
    write_tables(DOCS / "suspects", tables)
    page = DOCS / "suspects_benchmark.md"
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n\n{shown(table)}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8", newline="\n")


def shown(table: pd.DataFrame) -> str:
    return markdown_table(table.round(3).astype(object).fillna(""))


def bars_of(records: list[dict[str, Any]], effects: bool, times: pd.DataFrame | None = None) -> pd.DataFrame:
    rankings, cuts = ranking_frame(records), cut_frame(records)
    bars = [*judge_rankings(rankings), *judge_f1(rankings, cuts), *judge_cuts(cuts)]
    if effects:
        bars += judge_effects(effect_frame(records))
    if times is not None:
        bars += judge_times(times)
    return pd.DataFrame(bars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="published", help="development: used for choices")
    parser.add_argument("--quick", action="store_true", help="two small datasets, one seed: about a minute")
    parser.add_argument("--only", nargs="+", metavar="DATASET", help="only these datasets of the suite")
    parser.add_argument("--seeds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--rankings", action="store_true", help="without effects on models and times: a few minutes")
    parser.add_argument("--cleanlab-only", action="store_true", help="only cleanlab's part, stored for later runs")
    parser.add_argument("--processes", type=int, default=2, help="(default: 2)")
    parser.add_argument("--folder", type=Path, default=HERE.parent / ".bench", help="environment and finished cells")
    parser.add_argument("--python", type=Path, help="interpreter with cleanlab, instead of a separate environment")
    parser.add_argument("--docs", action="store_true", help="write docs/suspects/tables and update the page")
    chosen = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        # Libraries read this when they are loaded, so the script restarts.
        os.execve(sys.executable, sys.orig_argv, os.environ | ONE_THREAD)
    datasets = tuple(chosen.only or (("breast_cancer", "wine") if chosen.quick else SUITES[chosen.suite]))
    seeds = range(1 if chosen.quick else chosen.seeds)
    cells = list(product((chosen.suite,), datasets, NOISES, seeds))
    folder, effects = chosen.folder / "suspects", not chosen.rankings
    log = Console(stderr=True, highlight=False)
    log.print("cleanlab: environment")
    python = chosen.python or environment(CLEANLAB, chosen.folder)
    log.print(f"{len(cells)} cells: cases, and cleanlab's answers")
    prepare(folder, python, cells, chosen.processes)
    log.print("measures")
    records = measure(folder, cells, effects, chosen.processes, ours=not chosen.cleanlab_only)
    times = None
    if effects and not chosen.cleanlab_only and chosen.suite == "published":
        log.print("times")
        turns, large = (1, 0) if chosen.quick else (3, 20_000)
        work = our_key(effects), partial(time_both, folder, python, datasets, turns, large)
        times = pd.DataFrame(*run_cells(folder / "cells", {("times", *datasets): work}).values())
    tables = tables_of(records, effects)
    if times is not None:
        tables["times"] = times
    if not chosen.cleanlab_only:
        tables["bars"] = bars_of(records, effects, times)
    for name, table in tables.items():
        if not name.endswith("by_cell"):
            print(f"\n{name}\n{shown(table)}")
    if chosen.docs:
        write_docs(tables)


if __name__ == "__main__":
    main()
