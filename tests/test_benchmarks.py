"""The comparison with other packages, with stand-ins for them: no network, no environment, no clock."""

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

# Sorts and takes the recursion over ranks, one validation point at a time; CHANGE is put in at the end.
RUNNER = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS / "peers")!r})
import numpy as np
from measure import measure

def value(X, y, X_val, y_val, k):
    total = np.zeros(len(X))
    for point, label in zip(X_val, y_val):
        order = np.argsort(((X - point) ** 2).sum(axis=1))
        match = (y[order] == label).astype(float)
        ranks = np.arange(1, len(X))
        steps = (match[:-1] - match[1:]) / np.maximum(k, ranks)
        last = match[-1] / len(X)
        total[order] += last + np.append(np.cumsum(steps[::-1])[::-1], 0)
    values = total / len(X_val)
    CHANGE
    return values

measure(value)
"""


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_peers", BENCHMARKS / "peers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def measured(peers: ModuleType, folder: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> object:
    script = folder / "runner.py"
    script.write_text(RUNNER.replace("CHANGE", change))
    monkeypatch.setattr(peers.Peer, "runner", script)
    monkeypatch.setattr(peers, "environment", lambda peer, folder: sys.executable)
    stand_in = peers.Peer("OpenDataVal", "1.0", sizes=((200, 30), (70, 10)), requires=(), k=3, note="a stand-in")
    return peers.measure(stand_in, folder, 1, Console(quiet=True))


def shown(table: object) -> str:
    text = io.StringIO()
    Console(width=200, file=text).print(table)
    return text.getvalue()


def test_equal_values_agree_and_rates_are_of_the_same_arrays(peers, tmp_path, monkeypatch) -> None:
    result = measured(peers, tmp_path, "pass", monkeypatch)
    assert result.error == ""
    assert [(run.n_train, run.n_val, run.k) for run in result.runs] == [(200, 30, 3), (70, 10, 3)]
    for run in result.runs:
        assert run.agrees
        assert run.difference < 1e-12 < run.std
        assert run.rate == pytest.approx(run.n_train * run.n_val / run.seconds)
        assert run.ratio == pytest.approx(run.our_rate / run.rate)
    text = shown(peers.build_table([result]))
    for expected in ("OpenDataVal", "1.0", "200 x 30", "70 x 10", "a stand-in"):
        assert expected in text
    assert "DISAGREES" not in text
    assert "FAILED" not in text


@pytest.mark.parametrize("change", ["values[7] += 1e-6", "values[7] = np.nan", "values = values[::-1]"])
def test_one_wrong_value_is_a_disagreement(peers, tmp_path, monkeypatch, change: str) -> None:
    result = measured(peers, tmp_path, change, monkeypatch)
    assert not result.runs[0].agrees
    assert "DISAGREES" in shown(peers.build_table([result]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("raise ValueError('no [bold] luck')", "ValueError: no [bold] luck"),
        ("values = values[:-1]", "returned values of shape (199,), not (200,)"),
        ("sys.exit(3)", "ended with status 3"),
    ],
)
def test_a_failure_is_a_row_with_its_reason(peers, tmp_path, monkeypatch, change: str, reason: str) -> None:
    result = measured(peers, tmp_path, change, monkeypatch)
    assert result.error == reason
    assert result.runs == []
    text = shown(peers.build_table([result]))
    assert "OpenDataVal" in text
    assert f"FAILED: {reason}" in text
    assert "not measured" in peers.verdict([result])


def test_a_missing_interpreter_is_a_reason(peers, tmp_path) -> None:
    peer = peers.Peer("none", "1", sizes=(), requires=(), pythons=("2.0", "2.1"))
    result = peers.measure(peer, tmp_path, 1, Console(quiet=True))
    assert result.error == "needs Python 2.0 or 2.1, and none was found: put one on the PATH"


def test_an_environment_is_made_once_for_the_same_requirements(peers, tmp_path, monkeypatch) -> None:
    peer = peers.Peer("some", "1", sizes=(), requires=("a==1",), bare=("b==2",))
    calls = []

    def pretend(command: list[object], **_: object) -> None:
        calls.append(command)
        (tmp_path / "some").mkdir(exist_ok=True)

    monkeypatch.setattr(peers.subprocess, "run", pretend)
    monkeypatch.setattr(peers, "call", lambda command: calls.append(command))
    monkeypatch.setattr(peers, "find_python", lambda versions: sys.executable)
    for _ in range(2):
        assert peers.environment(peer, tmp_path) == tmp_path / "some" / "bin" / "python"
    assert [command[-1] for command in calls] == [tmp_path / "some", "a==1", "b==2"]
    assert "--no-deps" in calls[2]
    assert "--no-deps" not in calls[1]
    peers.environment(peers.Peer("some", "2", sizes=(), requires=("a==2",)), tmp_path)
    assert len(calls) == 5


@pytest.mark.parametrize(("ratio", "words"), [(149.9, "NOT MET (150 times)"), (150.1, "met (150 times)")])
def test_the_bar(peers, ratio: float, words: str) -> None:
    run = peers.Run(10_000, 2_000, 5, 1.0, 2e7, 1.0, 2e7, ratio, 0.0, 1.0, True)
    small = peers.Run(1_000, 2_000, 5, 1.0, 2e6, 1.0, 2e6, 1e6, 0.0, 1.0, True)
    results = [peers.Result("pyDVL", "1", "", [small]), peers.Result("OpenDataVal", "1", "", [small, run])]
    assert peers.verdict(results).endswith(words)
    report = json.loads(json.dumps(peers.report(results, 0.5)))
    assert report["bar"]["measured"] == ratio
    assert report["bar"]["met"] == (ratio >= 150)
    assert report["peers"][1]["runs"][1]["n_val"] == 2_000


def test_every_peer_has_its_runner_and_fixed_versions(peers) -> None:
    for peer in peers.PEERS:
        assert peer.runner.is_file()
        assert f"{peer.name.lower()}=={peer.version}" in (*peer.requires, *peer.bare)
        assert all("==" in requirement for requirement in (*peer.requires, *peer.bare))
        assert {n_train for n_train, *_ in peer.sizes} == {10_000, 1_000}
        assert np.isfinite(peer.tolerance)
