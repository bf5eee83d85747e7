"""Figures: what they draw, that they say what it is, and that files come out whole and the same every time."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from shapshift import KNNShapley, allocate_budget, knn_interactions
from shapshift.audit import ShiftAudit, audit_shift
from shapshift.audit._statistics import STATISTICS
from shapshift.mechanism import case_two, noise_demo
from shapshift.perturb import FlipLabels, GaussianNoise, Round, Subsample
from shapshift.plots import _figure
from shapshift.plots.audit import plot_neighbors, plot_shift, plot_statistic
from shapshift.plots.results import histogram_edges, plot_intervals, plot_reliability, plot_values

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(80, 2)), RNG.normal(size=(40, 2))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
MODEL = KNNShapley().fit(X, Y)
MANY = RNG.normal(size=(300, 2))


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def audit() -> ShiftAudit:
    return audit_shift(MODEL, X_VAL, Y_VAL, noise=[2.0, 0.05, 0.5], repeats=3)


@pytest.fixture(scope="module")
def mixed() -> ShiftAudit:
    return audit_shift(MODEL, X_VAL, Y_VAL, perturbations=[GaussianNoise(0.5) | Round(1), Subsample(0.5)], repeats=2)


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


# --- shared look ----------------------------------------------------------------------------------------------------


def test_colours_can_be_told_apart() -> None:
    names = ["CLEAN", "NOISY", "CORRECTED", "BOUNDARY", "NONBOUNDARY"]
    colours = [mpl.colors.to_rgb(getattr(_figure, name)) for name in names]
    greys = sorted(float(np.dot(colour, (0.2126, 0.7152, 0.0722))) for colour in colours)
    assert len(set(colours)) == len(names)
    assert greys[0] < 0.05
    distances = [np.abs(np.subtract(a, b)).max() for i, a in enumerate(colours) for b in colours[:i]]
    assert min(distances) > 0.2


def test_settings_of_the_caller_stay() -> None:
    before = dict(mpl.rcParams)
    _figure.new_axes(2, 2)
    plot_values(MODEL.value(X_VAL, Y_VAL))
    assert dict(mpl.rcParams) == before


NOTEBOOK = """
import matplotlib
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

matplotlib.interactive(True)  # as IPython's inline backend does, whenever pyplot first needs it
"""

CELLS = """
import matplotlib, numpy as np
from shapshift import KNNShapley, allocate_budget, knn_interactions

X = np.arange(40.0).reshape(20, 2)
found = KNNShapley(3, progress=False).fit(X, X[:, 0] > 19).value(X + 0.5, X[:, 0] > 19)
before = {**matplotlib.rcParams, "backend": None, "interactive": True}
shown = 0
for _ in range(3):
    found.plot()
    import matplotlib.pyplot as plt
    # What a notebook does after each cell: show and close all figures, in interactive mode.
    if matplotlib.is_interactive():
        shown += len(plt.get_fignums())
        plt.close("all")
assert shown == 3, shown
assert {**matplotlib.rcParams, "backend": None} == before
"""


def test_every_figure_shows_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "notebook_backend.py").write_text(NOTEBOOK)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "MPLBACKEND": "module://notebook_backend", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", CELLS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("interactive", [False, True])
def test_interactive_mode_stays_as_the_caller_set_it(interactive: bool) -> None:
    with plt.rc_context({"interactive": interactive}):
        plot_values(MODEL.value(X_VAL, Y_VAL))
        assert mpl.is_interactive() == interactive


def test_settings_of_the_caller_come_back_after_an_error() -> None:
    before = dict(mpl.rcParams)
    with pytest.raises(ValueError, match="sharey"):
        _figure.new_axes(sharey="diagonal")
    assert dict(mpl.rcParams) == before


def test_one_axes_or_an_array() -> None:
    assert hasattr(_figure.new_axes(), "plot")
    assert _figure.new_axes(1, 2).shape == (1, 2)
    assert _figure.new_axes(2, 1).shape == (2, 1)


def test_tidy_labels_and_keeps_what_is_there() -> None:
    ax = _figure.new_axes()
    ax.plot([0, 1], label="line")
    assert _figure.tidy(ax, xlabel="x", ylabel="y", title="t", legend=True) is ax
    _figure.tidy(ax)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("x", "y", "t")
    assert texts(ax) == ["line"]
    assert not ax.spines["top"].get_visible()


@pytest.mark.parametrize(("name", "what"), [("figure", "figure"), ("figure.png", "axes"), ("figure.svg", "array")])
def test_saving_writes_both_kinds_with_the_same_bytes(tmp_path: Path, name: str, what: str) -> None:
    def draw() -> Any:
        axes = _figure.new_axes(1, 2)
        axes[0, 0].hist(np.arange(10) ** 2, label="squares")
        _figure.tidy(axes[0, 0], title="A title", legend=True)
        return {"figure": axes[0, 0].figure, "axes": axes[0, 0], "array": axes}[what]

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = _figure.save_figure(draw(), tmp_path / "a" / name)
    second = _figure.save_figure(draw(), tmp_path / "b" / name)
    assert [path.name for path in first] == ["figure.png", "figure.svg"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["figure.png", "figure.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    svg = first[1].read_text()
    assert "A title" in svg
    assert "<dc:date>" not in svg


FORMULA = r"a $\frac{$ b"


def test_names_from_the_data_are_no_formulas() -> None:
    def identity(X: Any, y: Any) -> Any:
        return X, y

    identity.__name__ = identity.__qualname__ = FORMULA
    columns, names = [FORMULA, "b"], np.array(["no", FORMULA])
    rows, points = (pd.DataFrame(features, columns=columns) for features in (X, X_VAL))
    labels, targets = (names[y] for y in (Y, Y_VAL))
    model = KNNShapley(progress=False).fit(rows, labels)
    owners = names[np.arange(len(rows)) % 2]
    axes = [
        noise_demo(model, points, targets, rows, noise=1.0).plot(),
        case_two(model, points, targets, X_train=rows, noise=[1.0], repeats=1).plot(),
        audit_shift(model, points, targets, perturbations=[identity, FlipLabels(0.1)], repeats=1).plot(),
        knn_interactions(model, points, targets, owners=owners).plot(),
        allocate_budget(model.value(points, targets), 100, owners=owners).plot(),
    ]
    for drawn in axes:
        figure = drawn.flat[0].figure if hasattr(drawn, "flat") else drawn.figure
        figure.canvas.draw()
        plt.close(figure)


def test_saving_can_close(tmp_path: Path) -> None:
    ax = _figure.new_axes()
    _figure.save_figure(ax, tmp_path / "kept")
    assert plt.fignum_exists(ax.figure.number)
    _figure.save_figure(ax, tmp_path / "closed", close=True)
    assert not plt.fignum_exists(ax.figure.number)


def test_saving_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        _figure.save_figure(_figure.new_axes(), tmp_path / "none" / "figure.png")


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "shapshift\[plot\]"'):
        plot_values(MODEL.value(X_VAL, Y_VAL))


def test_works_without_a_screen(tmp_path: Path) -> None:
    code = (
        "import sys; from shapshift.plots import _figure, audit, mechanism, results\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"_figure.save_figure(_figure.new_axes(), {str(tmp_path / 'figure')!r})"
    )
    hidden = {"DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    assert (tmp_path / "figure.png").stat().st_size > 1000


# --- values ---------------------------------------------------------------------------------------------------------


def test_values_are_all_in_the_histogram() -> None:
    valuation = MODEL.value(X_VAL, Y_VAL)
    ax = plot_values(valuation)
    positive = int((valuation.values > 0).sum())
    assert sum(bar.get_height() for bar in ax.patches) == valuation.n_train
    assert sum(bar.get_height() for bar in ax.patches if bar.get_x() >= -1e-15) == positive
    assert texts(ax)[:2] == [f"positive: {positive}", f"zero or negative: {80 - positive}"]
    assert ax.get_xlabel()
    assert ax.get_ylabel() == "Training rows"
    assert plot_values(valuation, ax=ax) is ax


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [0.3], [1.0, 2.0, 5.0], [-3.0, -1.0], [-1e-9, 5.0], [-1.0, 0.0, 4.0], [0.0, 1.0]]
)
def test_bars_never_mix_signs(values: list[float]) -> None:
    edges = histogram_edges(np.array(values), 20)
    assert (np.diff(edges) > 0).all()
    if min(values) <= 0 < max(values):
        assert np.abs(edges).min() == 0
    valuation = dataclasses.replace(MODEL.value(X_VAL, Y_VAL), values=np.array(values))
    bars = plot_values(valuation).patches
    assert sum(bar.get_height() for bar in bars) == len(values)
    if min(values) <= 0 < max(values):
        right = [bar.get_height() for bar in bars if bar.get_x() > -bar.get_width() / 2]
        assert sum(right) == sum(value > 0 for value in values)


# --- audit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATISTICS)
def test_each_statistic_is_drawn_with_its_band(audit: ShiftAudit, name: str) -> None:
    ax = audit.plot(name)
    along = [1, 2, 0]
    mean, low, high = (part[along] for part in audit.statistic(name))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.05, 0.5, 2.0])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), mean)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    for part in (low, high):
        assert np.isin(part, corners).all()
    assert ax.get_title(loc="left")
    assert ax.get_xlabel() == "Noise (standard deviation)"
    if name in audit.clean:
        assert ax.lines[1].get_ydata()[0] == audit.clean[name]
        assert texts(ax) == ["perturbed", "clean"]


def test_panels(audit: ShiftAudit) -> None:
    axes = audit.plot()
    assert axes.shape == (2, 3)
    titles = [ax.get_title(loc="left") for ax in axes.flat]
    assert len(set(titles)) == 6
    assert all(ax.has_data() for ax in axes.flat)
    assert texts(axes[1, 0]) == ["Spearman", "overlap of the top 8"]
    assert texts(axes[1, 2]) == ["non-boundary points", "boundary points", "all points"]
    assert audit.finding in axes[0, 0].figure.get_suptitle().replace("\n", " ")


def test_values_are_drawn_with_their_intervals() -> None:
    valuation = MODEL.value(MANY, MANY[:, 0] > 0)
    low, high = valuation.interval()
    ax = plot_intervals(valuation)
    drawn = np.concatenate([one.get_segments() for one in ax.collections if one.get_segments()])
    order = np.argsort(-valuation.values, kind="stable")
    drawn = drawn[np.argsort(drawn[:, 0, 0])]
    np.testing.assert_allclose(drawn[:, 0, 1], low[order])
    np.testing.assert_allclose(drawn[:, 1, 1], high[order])
    assert texts(ax) == [
        f"surely positive: {valuation.surely_positive}",
        f"surely negative: {valuation.surely_negative}",
        f"open: {valuation.open}",
    ]
    with pytest.raises(ValueError, match="There is no sampling error: it takes at least two"):
        plot_intervals(MODEL.value(X_VAL[:1], Y_VAL[:1]))


def test_reliability_is_drawn_against_the_number_of_points() -> None:
    valuation = MODEL.value(MANY, MANY[:, 0] > 0)
    ax = plot_reliability(valuation)
    curve, limit, now, needed = ax.lines
    assert valuation.reliability is not None
    at = np.interp(valuation.points_needed(0.9), *curve.get_data())
    assert at == pytest.approx(0.9, abs=0.01)
    assert limit.get_ydata()[0] == 0.9
    assert now.get_xydata().tolist() == [[valuation.n_val, valuation.reliability]]
    assert needed.get_xydata().tolist() == [[valuation.points_needed(0.9), 0.9]]
    with pytest.raises(ValueError, match="There is no reliability to draw: it takes at least two"):
        plot_reliability(MODEL.value(X_VAL[:1], Y_VAL[:1]))


def test_levels_are_the_ticks_of_a_log_axis(audit: ShiftAudit) -> None:
    ax = audit.plot("mean")
    assert ax.get_xscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.05", "0.5", "2"]
    near = dataclasses.replace(audit, positions=np.array([0.0, 1.0, 2.0]))
    assert near.plot("mean").get_xscale() == "linear"


def test_relative_noise_says_so() -> None:
    audit = audit_shift(MODEL, X_VAL, Y_VAL, noise=[0.1], relative=True, repeats=1)
    assert audit.plot("mean").get_xlabel() == "Noise (in stds of each feature)"


def test_perturbations_without_order_are_listed_by_name(mixed: ShiftAudit) -> None:
    axes = plot_shift(mixed)
    names = [tick.get_text() for tick in axes[0, 0].get_yticklabels()]
    assert names == ["GaussianNoise(sigma=0.5) | Round(decimals=1)", "Subsample(fraction=0.5)"]
    assert axes[0, 0].yaxis_inverted()
    assert axes[0, 0].get_xlabel() == ""
    means = axes[0, 0].containers[0].lines[0].get_xdata()
    np.testing.assert_array_equal(means, mixed.statistic("mean")[0])


def test_what_is_not_defined_is_said(mixed: ShiftAudit) -> None:
    alone = audit_shift(MODEL, X_VAL, Y_VAL, perturbations=[Subsample(0.5)], repeats=2)
    ax = plot_neighbors(alone)
    assert [text.get_text() for text in ax.texts] == ["not defined here"]
    assert ax.get_legend() is None
    assert not plot_neighbors(mixed).texts


def test_given_axes_are_used(audit: ShiftAudit) -> None:
    _, ax = plt.subplots()
    assert plot_statistic(audit, "std", ax=ax) is ax
    assert plot_neighbors(audit, "changed_predictions", ax=ax) is ax
    assert audit.plot(ax=ax) is ax


def test_unknown_statistics_open_no_figure(audit: ShiftAudit) -> None:
    for draw in (plot_statistic, plot_neighbors):
        with pytest.raises(ValueError, match="'name' parameter must be one of"):
            draw(audit, "median")
    assert plt.get_fignums() == []
