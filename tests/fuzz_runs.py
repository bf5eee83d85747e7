"""Damaged files: bits flipped, ends cut off, stretches lost. Nothing crashes, nothing loads as something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reliability import GROUPS, N_ROWS, T, V, X, Y, contents, done_blocks, interrupted_after, result_bytes, small_run

from shapshift import (
    BoundaryCorrector,
    KNNShapley,
    ValuationStore,
    allocate_budget,
    audit_payouts,
    audit_shift,
    knn_interactions,
    owner_values,
)
from shapshift.engine import checkpoint


def fuzz(content: bytes, trials: int, rng: random.Random) -> Iterator[bytes]:
    """Damage a file: one bit, a few bits, a stretch, the end, or its whole content."""
    for number in range(trials):
        damaged = bytearray(content)
        kind = number % 5
        if kind in (0, 1):
            for _ in range(1 if kind == 0 else rng.randint(2, 20)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del damaged[rng.randrange(len(damaged)) :]
        elif kind == 3:
            first = rng.randrange(len(damaged))
            stretch = rng.randint(1, 64)
            damaged[first : first + stretch] = rng.randbytes(len(damaged[first : first + stretch]))
        else:
            first = rng.randrange(len(damaged))
            del damaged[first : first + rng.randint(1, 64)]
        if bytes(damaged) != content:
            yield bytes(damaged)


def fuzz_checkpoint(folder: Path, trials: int, seed: int) -> dict[str, int]:
    """Damage every file of a checkpoint: it is refused and left alone, or was not damaged where it matters."""
    rng = random.Random(seed)
    expected = result_bytes(small_run())
    place = folder / "checkpoint"
    with interrupted_after(3):
        small_run(place, every=25)
    good = contents(place)
    assert 0 < done_blocks(place) < 150
    refused = harmless = 0
    for name, content in good.items():
        for damaged in fuzz(content, trials, rng):
            _lay_out(place, {**good, name: damaged})
            try:
                found = result_bytes(small_run(place, every=1000))
            except ValueError as error:
                _must_name(place, error)
                assert contents(place) == {**good, name: damaged}, "a refused checkpoint was changed"
                refused += 1
            else:
                assert found == expected, f"damage in {name} was not seen"
                harmless += 1
    return {"damaged": refused + harmless, "refused": refused, "harmless": harmless}


def _must_name(path: Path, error: ValueError) -> None:
    if str(path) not in str(error):
        raise AssertionError(f"the message does not name {path}") from error


def _lay_out(place: Path, files: dict[str, bytes]) -> None:
    for path in place.iterdir():
        if path.name not in files and path.name != checkpoint.LOCK:
            path.unlink()
    for name, content in files.items():
        (place / name).write_bytes(content)


def saved_things() -> dict[str, Any]:
    """One of each kind of result that can be saved."""
    model = KNNShapley(progress=False).fit(X, Y)
    owners = [f"seller {i % 4}" for i in range(N_ROWS)]
    points, labels = V[:60], T[:60]
    valuation = model.value(points, labels, groups=GROUPS[:60], matrix=True)
    quiet: dict[str, Any] = {"progress": False}
    store = ValuationStore(model, owners=owners)
    store.add(points[:9], labels[:9], groups=GROUPS[:9])
    return {
        "Valuation": valuation,
        "ValuationStore": store,
        "ShiftAudit": audit_shift(model, points, labels, noise=[0.5], repeats=2, **quiet),
        "Interactions": knn_interactions(model, points, labels, top=3, owners=owners, **quiet),
        "OwnerValues": owner_values(model, points, labels, owners, **quiet),
        "Allocation": allocate_budget(valuation, 1000, owners=owners),
        "PayoutAudit": audit_payouts(model, points, labels, 1000, owners=owners, noise=[0.5], repeats=2, **quiet),
        "BoundaryCorrector": BoundaryCorrector().fit(valuation),
    }


def fuzz_results(folder: Path, trials: int, seed: int) -> dict[str, int]:
    """Damage every kind of saved result: it is refused, or loads as what it was."""
    rng = random.Random(seed)
    refused = harmless = 0
    for name, thing in saved_things().items():
        path, again = folder / f"{name}.file", folder / f"{name}.again"
        thing.save(path)
        content = path.read_bytes()
        for damaged in fuzz(content, trials, rng):
            path.write_bytes(damaged)
            try:
                loaded = type(thing).load(path)
            except ValueError as error:
                _must_name(path, error)
                refused += 1
            else:
                loaded.save(again)
                assert again.read_bytes() == content, f"a damaged {name} loaded as something else"
                harmless += 1
    return {"damaged": refused + harmless, "refused": refused, "harmless": harmless}
