"""Golden files: one file of every kind that a release writes, kept so that every later release reads them.

``python tests/golden_files.py`` writes the folder of the version in pyproject.toml anew, with what its numbers are in
``expected.json``. A folder of a version that is released is never written again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB

import shapshift
from shapshift import price
from shapshift.correct import BoundaryCorrector, EntropyNormalizer
from shapshift.design.labels import LabelSuggestions
from shapshift.market.ledger import verify_export
from shapshift.sampled import FederatedValues
from shapshift.suspects import Suspects

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_name("golden")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
RNG_SEED = 7
# Commands whose manifests `shapshift rerun` runs again, and the file with their numbers.
COMMANDS = {
    "value": (["value", "--label", "y", "--owner", "who", "--format", "parquet"], "values.parquet"),
    "value-csv": (["value", "--label", "y", "--owner", "who", "--format", "csv"], "values.csv"),
    "audit": (["audit", "--label", "y", "--owner", "who", "--noise", "0.1,0.5", "--repeats", "3"], ""),
    "price": (["price", "--label", "y", "--owner", "who", "--budget", "100"], ""),
}


def data() -> dict[str, Any]:
    rng = np.random.default_rng(RNG_SEED)
    y, y_val = rng.integers(0, 2, 36), rng.integers(0, 2, 18)
    X, X_val = rng.normal(size=(36, 3)) + y[:, None], rng.normal(size=(18, 3)) + y_val[:, None]
    names = np.array(["no", "yes"], dtype=object)
    return {
        "X": X.round(3),
        "y": names[y],
        "X_val": X_val.round(3),
        "y_val": names[y_val],
        "noisy": (X_val + rng.normal(size=X_val.shape)).round(3),
        "owners": ["ann", "bob", "cid"] * 12,
        "ids": [f"row {i}" for i in range(36)],
        "groups": ["north", "south"] * 9,
    }


def results() -> Iterator[tuple[str, Any]]:
    """File names, and what is saved to them."""
    d = data()
    model = shapshift.KNNShapley(3, progress=False).fit(d["X"], d["y"], ids=d["ids"])
    points, owners = (d["X_val"], d["y_val"]), {"owners": d["owners"]}
    clean = model.value(*points, groups=d["groups"], matrix=True)
    noisy = model.value(d["noisy"], d["y_val"], groups=d["groups"])
    copied = np.repeat(d["X"][:6], 2, axis=0), np.repeat(d["y"][:6], 2)
    audit = shapshift.audit_payouts(model, *points, 100, **owners, noise=[0.1, 0.5], repeats=3)
    few = shapshift.KNNShapley(3, method="truncated", tol=0.2, progress=False).fit(d["X"], d["y"])
    store = shapshift.ValuationStore(few, owners=d["owners"])
    store.add(*points, groups=d["groups"])
    yield "valuation.npz", clean
    yield "certified.npz", shapshift.KNNShapley(3, method="certified", tol=0.5).fit(d["X"], d["y"]).value(*points)
    yield (
        "sampled.npz",
        shapshift.SampledShapley(GaussianNB(), max_fits=100, random_state=0).fit(d["X"], d["y"]).value(*points),
    )
    yield "audit.npz", shapshift.audit_shift(model, *points, noise=[0.1, 0.5], repeats=3, progress=False)
    yield "corrected.npz", BoundaryCorrector(min_points=1).fit(clean).transform(noisy)
    yield "allocation.npz", shapshift.allocate_budget(clean, 100, **owners, audit=audit)
    yield "payout_audit.npz", audit
    yield "owner_values.npz", shapshift.owner_values(model, *points, d["owners"])
    yield "influence.npz", shapshift.audit_influence(model, *points, 100, **owners, draws=99)
    yield "clusters.npz", shapshift.find_clusters(*copied, owners=d["owners"][:12])
    yield "duplicates.npz", shapshift.find_duplicates(*copied, owners=d["owners"][:12], ids=d["ids"][:12])
    yield "suspects.npz", shapshift.find_suspects(d["X"], d["y"], ids=d["ids"], error=0.3, progress=False)
    yield "explanation.npz", model.explain(*points, d["ids"][:3])
    yield "interactions.npz", shapshift.knn_interactions(model, *points, **owners, top=3)
    yield "suggestions.npz", shapshift.suggest_labels(clean, d["X"], d["X_val"], 4)
    rounds = [shapshift.FederatedRound(("ann", "bob"), len), shapshift.FederatedRound(("bob", "cid"), len)]
    yield "federated.npz", shapshift.federated_values(rounds)
    stress = {"attackers": 2, "n_repeats": 1, "progress": False}
    yield "stress.npz", shapshift.stress_market(model, d["X"], d["y"], *points, d["owners"], 100, **stress)
    yield "store.npz", store
    yield "boundary_corrector.json", BoundaryCorrector(min_points=1).fit(clean)
    yield "entropy_normalizer.json", EntropyNormalizer(min_points=1).fit(clean)
    actions = {"actions": ["relabel", "drop", "weight"], "labels": ["yes", None, None], "weights": [1, 1, 0.5]}
    yield "decisions.csv", shapshift.Decisions.of(d["X"], d["y"], ids=[0, 3, 5], **actions)


CLASSES: dict[str, Any] = {
    **dict.fromkeys(("valuation.npz", "certified.npz", "sampled.npz", "corrected.npz"), shapshift.Valuation),
    "audit.npz": shapshift.ShiftAudit,
    "allocation.npz": price.Allocation,
    "payout_audit.npz": price.PayoutAudit,
    "owner_values.npz": price.OwnerValues,
    "influence.npz": price.InfluenceAudit,
    "clusters.npz": price.Clusters,
    "duplicates.npz": shapshift.Duplicates,
    "suspects.npz": Suspects,
    "explanation.npz": shapshift.Explanation,
    "interactions.npz": shapshift.Interactions,
    "suggestions.npz": LabelSuggestions,
    "federated.npz": FederatedValues,
    "stress.npz": shapshift.StressTest,
    "store.npz": shapshift.ValuationStore,
    "boundary_corrector.json": BoundaryCorrector,
    "entropy_normalizer.json": EntropyNormalizer,
    "decisions.csv": shapshift.Decisions,
}


def load(path: Path) -> Any:
    kind = CLASSES[path.name]
    return kind.read_csv(path) if path.suffix == ".csv" else kind.load(path)


def plain(part: Any) -> Any:
    """What is compared: numbers and texts, every digit of them."""
    if isinstance(part, np.ndarray | np.generic):
        return plain(part.tolist())
    if isinstance(part, Mapping):
        return {str(key): plain(entry) for key, entry in part.items()}
    if isinstance(part, list | tuple):
        return [plain(entry) for entry in part]
    if is_dataclass(part) and not isinstance(part, type):
        return plain(asdict(part))
    return part if isinstance(part, bool | int | float | str | None) else str(part)


def numbers(result: Any) -> dict[str, Any]:
    """Every field of a result; of what has none, what it is for."""
    if isinstance(result, shapshift.ValuationStore):
        return {"ids": plain(result.ids), "groups": plain(result.group_names), **numbers(result.valuation())}
    if isinstance(result, BoundaryCorrector | EntropyNormalizer):
        d = data()
        model = shapshift.KNNShapley(3, progress=False).fit(d["X"], d["y"], ids=d["ids"])
        parameters = plain(result.get_params())
        return {"parameters": parameters, "values": plain(result.transform(model.value(d["noisy"], d["y_val"])).values)}
    # Places are what messages call each decision, such as the path of its file.
    return {field.name: plain(getattr(result, field.name)) for field in fields(result) if field.name != "places"}


def write_tables(folder: Path) -> None:
    d = data()
    for name, X, y, who in (("train", d["X"], d["y"], d["owners"]), ("val", d["X_val"], d["y_val"], ["buyer"] * 18)):
        rows = [f"{','.join(map(str, x))},{label},{owner}" for x, label, owner in zip(X.tolist(), y, who, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c,y,who", *rows, ""]), encoding="utf-8")


def write_commands(folder: Path, run: Callable[..., Any]) -> None:
    """Folders of results with their manifests, and what the command prints with --json."""
    write_tables(folder)
    before = Path.cwd()
    os.chdir(folder)  # manifests name inputs by paths below the working directory
    try:
        for name, (arguments, _) in COMMANDS.items():
            ran = run(arguments[0], "train.csv", "val.csv", *arguments[1:], "--json", "--out", name)
            if ran.code:
                sys.exit(ran.err)
            Path(name, "document.json").write_text(ran.out, encoding="utf-8")
    finally:
        os.chdir(before)


def write_market(folder: Path) -> None:
    """A ledger of two rounds, and its export."""
    rows = (folder / "train.csv").read_text(encoding="utf-8").splitlines()
    tables = {name: folder / f"{name}.csv" for name in ("ann", "bob")}
    for at, path in enumerate(tables.values()):
        own = [row.rpartition(",")[0] for row in rows[1 + at :: 2]]
        path.write_text("\n".join(["a,b,c,y", *own, ""]), encoding="utf-8")
    validation = folder / "points.csv"
    points = (folder / "val.csv").read_text(encoding="utf-8").splitlines()
    validation.write_text("\n".join([row.rpartition(",")[0] for row in points] + [""]), encoding="utf-8")
    with shapshift.Market.create(folder / "market.db", issuer="Example Ltd") as market:
        for name in ("first", "second"):
            market.open(name, validation, 100, label="y", model={"n_neighbors": 3})
            for seller, path in tables.items():
                market.submit(name, seller, path)
            market.close(name, validation)
        market.ledger.export(folder / "export", progress=False)
    for path in tables.values():
        path.unlink()


def payments(folder: Path) -> dict[str, Any]:
    """What a ledger says was paid, from the ledger and from its export."""
    with shapshift.Market(folder / "market.db") as market:
        found = {name: dict(market.closed(name).payments) for name in ("first", "second")}
        checked = market.verify(recompute=True, progress=False)
        return {
            "payments": found,
            "faults": list(checked.faults),
            "recomputed": checked.recomputed,
            "export": verify_export(folder / "export", progress=False).head == checked.chain.head,
        }


def main() -> None:
    from cli_files import run

    heading = re.search(rf"^## \[{re.escape(VERSION)}\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    folder = FOLDER / VERSION
    if folder.exists() and (heading is None or heading[1].strip() != "Unreleased"):
        sys.exit(f"{VERSION} is released: its golden files stay as they are.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected: dict[str, Any] = {}
    for name, result in results():
        (result.to_csv if name.endswith(".csv") else result.save)(folder / name)
        # A CSV file has texts where the list had numbers.
        expected[name] = numbers(load(folder / name) if name.endswith(".csv") else result)
    write_commands(folder, run)
    write_market(folder)
    expected["market.db"] = payments(folder)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {size / 1e6:.2f} MB in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
