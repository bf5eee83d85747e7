"""cleanlab's Datalab on files of rows and labels, with features only and with a model's cross-validated probabilities.

Arguments: the models as JSON (name to [class, parameters]), then pairs of files: arrays to read, answers to write.
Each time is the processor time of one call on data in memory, in seconds; with a model it includes the five fits.
"""

import json
import os
import sys
import time
import warnings
from pydoc import locate

import numpy as np
from cleanlab import Datalab
from sklearn.model_selection import cross_val_predict


def find(y: np.ndarray, checks: dict | None, **inputs: np.ndarray) -> tuple[Datalab, float]:
    start = time.process_time()
    lab = Datalab(data={"y": y}, label_name="y", task="classification", verbosity=0)
    lab.find_issues(issue_types=checks, **inputs)
    return lab, time.process_time() - start


def answer(X: np.ndarray, y: np.ndarray, models: dict) -> dict[str, object]:
    found = {}
    for name in ("features", *models):
        start = time.process_time()
        inputs = {"features": X}
        if name != "features":
            kind, parameters = models[name]
            model = locate(kind)(**parameters)
            inputs = {"pred_probs": cross_val_predict(model, X, y, cv=5, method="predict_proba")}
        spent = time.process_time() - start
        lab, seconds = find(y, {"label": {"n_jobs": 1}}, **inputs)  # no other processes; the result is the same
        everything = find(y, None, **{"features": X, **inputs})[1]
        issues = lab.get_issues("label")
        found |= {
            f"{name}_score": 1.0 - issues["label_score"].to_numpy(),
            f"{name}_flagged": issues["is_label_issue"].to_numpy(),
            f"{name}_suggested": issues["predicted_label"].to_numpy(),
            f"{name}_seconds": spent + seconds,
            f"{name}_all_seconds": spent + everything,
        }
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    models, *files = sys.argv[1:]
    rng = np.random.default_rng(0)
    find(rng.integers(0, 2, 64), None, features=rng.normal(size=(64, 4)))  # triggers late imports
    for read, write in zip(files[::2], files[1::2], strict=True):
        with np.load(read) as file:
            found = answer(file["X"], file["given"], json.loads(models))
        with open(f"{write}.part", "wb") as part:
            np.savez(part, **found)
        os.replace(f"{write}.part", write)
        print(".", end="", flush=True, file=sys.stderr)


if __name__ == "__main__":
    main()
