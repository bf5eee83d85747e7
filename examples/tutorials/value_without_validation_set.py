"""
Value data without a validation set
===================================

Values need points on which the training rows are judged.
If you have one table only, the other rows of the table can be these points.
This tutorial values a table on itself, and shows what to do with groups of related rows and with rows in time.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source.
"""

# %%
# Every row on all other rows
# ---------------------------
#
# :func:`~shapshift.cross_value` takes each row in turn as a validation point.
# All other rows are valued on it; the row itself takes no part.

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from shapshift import KNNShapley, cross_value

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
result = cross_value(KNNShapley(n_neighbors=5), X, y)
print(result)

# %%
# ``reliability`` is the correlation that you can expect with values from another sample of as many rows.
# There are as many points as rows, so it is higher than with a small validation set split off from the table.
# The figure shows each value with its 95% interval.

ax = result.plot()

# %%
# The table of values has one line per row. ``low`` and ``high`` bound the 95% interval.

result.to_frame("pandas").sort_values("value").head().round(4)

# %%
# Rows that belong together
# -------------------------
#
# If several rows come from one patient, a row must not be judged by other rows of the same patient: they resemble each
# other more than they resemble a new patient. Pass the patients as ``groups=``.
# Here we make a table in which 60 patients have five nearly equal readings each, and the outcome has nothing to do with
# the features: nothing can be learned from this table.

rng = np.random.default_rng(0)
first = rng.choice(len(X), size=60, replace=False)
patient = np.repeat(np.arange(60), 5)
readings = X[first][patient] + 0.05 * rng.normal(size=(300, X.shape[1]))
outcome = rng.integers(0, 2, 60)[patient]

together = cross_value(KNNShapley(n_neighbors=5), readings, outcome)
apart = cross_value(KNNShapley(n_neighbors=5), readings, outcome, groups=patient)
print("accuracy gained over guessing, the sum of all values:")
print(f"readings judged by all others:       {together.values.sum():+.2f}")
print(f"readings judged by other patients:   {apart.values.sum():+.2f}")

# %%
# The first sum is too high: readings of one patient vote for each other.
# The second one is right: there is nothing to gain. Its standard errors count patients.
#
# Rows in time
# ------------
#
# With ``times=`` a row is judged by later rows only, as it would be in use.
# The last block of rows has no later rows, so it has no values.

day = np.arange(len(X)) // 10
in_time = cross_value(KNNShapley(n_neighbors=5), X, y, times=day)
print(f"{in_time.n_train} of {len(X)} rows have a value")

# %%
# A few validation points of your own
# -----------------------------------
#
# If you have a few validation points, use them together with the training rows: ``pool="train"`` weights both sides by
# how well they agree, and says how much weight the training rows got.

order = rng.permutation(len(X))
few, rest = order[:60], order[60:]
model = KNNShapley(n_neighbors=5).fit(X[rest], y[rest])
plain = model.value(X[few], y[few])
pooled = model.value(X[few], y[few], pool="train")
print(f"borrowed: {pooled.parameters['pool']['weight']:.0%}")
print(f"mean width of the 95% intervals: {np.ptp(plain.interval(), axis=0).mean():.4f} without, ", end="")
print(f"{np.ptp(pooled.interval(), axis=0).mean():.4f} with the training rows")

# %%
# Next
# ----
#
# * The same on the command line: ``shapshift value table.csv --label y``, with ``--groups patient`` or ``--time day``.
# * :doc:`/howto/one_table` has the rules for groups, times and folds.
# * :doc:`/howto/pool` says when not to borrow from training rows.
# * :doc:`validation_set_size` asks how many points it takes.
