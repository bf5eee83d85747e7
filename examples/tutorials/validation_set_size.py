"""
Is my validation set large enough?
==================================

Values are computed on a validation set, and a validation set is a sample.
Another sample of the same size would give other values.
This tutorial measures how different they would be, how many points you need, and what you can already conclude.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source.
"""

# %%
# Two samples, two rankings
# -------------------------
#
# We draw two validation sets of 100 points each from the same source, and value the same 600 training rows on both.
# To see what is typical, we do this ten times.

import numpy as np

from shapshift import KNNShapley, load_dataset
from shapshift.agreement import spearman

data = load_dataset("gaussian", n_train=600, n_val=20_000)
shuffled = np.random.default_rng(0).permutation(len(data.y_val))
X_val, y_val = data.X_val[shuffled], data.y_val[shuffled]
model = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train)


def samples(n, pairs):
    """Valuations on pairs of samples of n points, no point in two samples."""
    found = [model.value(X_val[i * n : (i + 1) * n], y_val[i * n : (i + 1) * n]) for i in range(2 * pairs)]
    return list(zip(found[::2], found[1::2]))


pairs = samples(100, 10)
measured = [spearman(one.values, other.values) for one, other in pairs]
print(f"rank correlation: mean {np.mean(measured):.2f}, from {min(measured):.2f} to {max(measured):.2f}")

# %%
# A correlation this low means that much of the ranking is chance.
# You do not need a second sample to see this: each valuation predicts the rank correlation from its own points.
# From 100 points the prediction is rough, and here too low; from 400 points on it is close, see below.

predicted = [one.reliability_spearman for one, _ in pairs]
print(f"predicted from one sample: mean {np.mean(predicted):.2f}, from {min(predicted):.2f} to {max(predicted):.2f}")

# %%
# How many points it takes
# ------------------------
#
# ``points_needed(0.9)`` is the number of points for which two samples would correlate at 0.9.
# It and ``reliability`` are about the correlation of the values; ``reliability_spearman`` is about that of the ranks.

result = model.value(X_val[:400], y_val[:400])
print(f"reliability of 400 points: {result.reliability:.2f}")
print(f"{result.points_needed(0.9):,.0f} points are needed for 0.9")

# %%
# The curve shows what to expect for other numbers of points.

from shapshift.plots.results import plot_reliability

ax = plot_reliability(result)

# %%
# There are 20,000 points here, so the prediction can be checked.

for n, number in ((100, 10), (400, 10), (1600, 5)):
    found = samples(n, number)
    measured = np.mean([spearman(one.values, other.values) for one, other in found])
    predicted = np.mean([one.reliability_spearman for one, _ in found])
    print(f"{n:>5} points: predicted {predicted:.2f}, measured {measured:.2f}")

# %%
# What can be said already
# ------------------------
#
# A ranking needs many points. A statement about one row may need few: look at the interval of its value.

low, high = result.interval(0.95)
print(f"{(low > 0).sum()} rows are surely positive, {(high < 0).sum()} surely negative, the rest is open")
ax = result.plot()

# %%
# Points that depend on each other
# --------------------------------
#
# Ten readings of one patient are not ten independent points. Pass the patients as ``clusters=``, and the errors count
# patients. Here each point occurs five times.

repeated = np.repeat(np.arange(100), 5)
once = model.value(X_val[:100], y_val[:100])
naive = model.value(X_val[repeated], y_val[repeated])
honest = model.value(X_val[repeated], y_val[repeated], clusters=repeated)
print(f"500 rows, counted as 500 points: reliability {naive.reliability:.2f}")
print(f"500 rows, counted as 100 points: reliability {honest.reliability:.2f}")
print(f"the 100 points alone:            reliability {once.reliability:.2f}")

# %%
# If there are too few points
# ---------------------------
#
# 1. Use the training rows as additional points with ``pool="train"``. Here the population is known, so we can measure
#    the gain.

population = model.value(X_val[100:], y_val[100:])
plain, pooled = once, model.value(X_val[:100], y_val[:100], pool="train")
for name, values in {"plain": plain.values, "pooled": pooled.values}.items():
    print(f"{name}: rank correlation with the values on 19,900 other points {spearman(values, population.values):.2f}")

# %%
# 2. Label more points, drawn at random from the data that the model will be used on. ``points_needed`` says how many.
# 3. Act only on rows whose interval is on one side of 0.
#
# Next
# ----
#
# * The command line prints all of this: ``shapshift audit train.csv val.csv --label y``.
# * :doc:`/explanation/sampling_error` explains where the intervals come from.
# * :doc:`/population` has the measurements on seven datasets.
