"""
Find bad rows in my table
=========================

You have a table with labels, and you suspect that some of the labels are wrong.
This tutorial finds rows whose label is probably wrong, shows which label they should have, and measures what a
correction changes for a model.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source.
The data come with scikit-learn, so nothing is downloaded.
"""

# %%
# A table with wrong labels
# -------------------------
#
# The wine data have 178 wines of three cultivars, with 13 measurements each.
# We keep a third of them for a test at the end, and make 10 of the remaining labels wrong.
# In your own table you do not know which labels are wrong; here we do, so that we can check the answer.

import numpy as np
from sklearn.datasets import load_wine

X, y = load_wine(return_X_y=True, as_frame=True)
y = y.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})

test = np.arange(len(X)) % 3 == 0
X_test, y_test, X, y = X[test], y[test], X[~test], y[~test].copy()

rng = np.random.default_rng(0)
wrong = rng.choice(y.index, size=10, replace=False)
for row in wrong:
    y[row] = rng.choice([name for name in y.unique() if name != y[row]])

print(f"{len(X)} rows, of which {len(wrong)} have a wrong label")

# %%
# Which labels are probably wrong
# -------------------------------
#
# :func:`~shapshift.find_suspects` asks of each row what the other rows say about it.
# ``error=0.1`` is the share of right labels that you accept among the flagged rows: one in ten.

from shapshift import find_suspects

suspects = find_suspects(X, y, error=0.1)
for finding in suspects.findings():
    print("-", finding)

# %%
# The flagged rows, with the most probable first (here all are close to 1).
# ``label`` is the label in the table, ``suggested`` the label that is probably right, and ``reason`` says why.

flagged = suspects.flagged_frame().sort_values("probability", ascending=False)
flagged[["id", "label", "suggested", "probability", "reason"]].round(2)

# %%
# ``id`` is the index of the pandas table.
# How many of the flagged rows are really wrong, and how many wrong ones were found?

found = set(flagged["id"]) & set(wrong)
print(f"{len(found)} of {len(flagged)} flagged rows have a wrong label")
print(f"{len(found)} of {len(wrong)} wrong labels are flagged")

# %%
# What the rows look like
# -----------------------
#
# Left: the probability of an error for each row, by class. Right: the share of right labels to expect if more rows
# were flagged; the dashed line is what ``error=0.1`` allows.

axes = suspects.plot()

# %%
# What a correction changes
# -------------------------
#
# :class:`~shapshift.Decisions` is a list of what to do with each flagged row.
# Here every flagged row gets the suggested label.
# The list can be saved as CSV, read by a person, changed, and applied again.

from shapshift import Decisions, measure_cleaning

decisions = Decisions.from_suspects(suspects, X, y, action="relabel")
X_clean, y_clean, weight = decisions.apply(X, y)
print(f"{(y_clean != y).sum()} labels changed")

# %%
# :func:`~shapshift.measure_cleaning` trains a model on the rows before the correction, after it, and after the removal
# of as many random rows. It scores all of them on the test rows, with 95% intervals. ``minority recall`` is the recall
# of the class with the fewest rows.

effect = measure_cleaning(decisions, X, y, X_test, y_test, "logistic", repeats=5)
effect.to_frame("pandas").round(3)

# %%
# Read the lines ``after - before``. If the interval is above 0, the correction helped this model.
# Here it starts at 0: 60 test rows are too few to tell.
#
# What a single row is worth
# --------------------------
#
# A suspect is a statement about a label. A value is a statement about usefulness: how much a row adds to the accuracy
# on validation points. Wrong labels have low values, and some right ones have low values too. The test rows serve as
# validation points here.

from shapshift import KNNShapley

scale = X.std()
model = KNNShapley(n_neighbors=5).fit(X / scale, y)
result = model.value(X_test / scale, y_test)
low, high = result.interval()
order = result.values.argsort()[:8]
for row in order:
    mark = "wrong label" if X.index[row] in wrong else ""
    print(f"row {X.index[row]:>3}  value {result.values[row]:8.4f}  [{low[row]:8.4f}, {high[row]:8.4f}]  {mark}")

# %%
# Next
# ----
#
# * The same on the command line: ``shapshift suspects table.csv --label y`` lists the rows, and ``shapshift clean
#   table.csv --label y --action relabel`` corrects them (without ``--action`` it drops them).
# * :doc:`/suspects` explains the columns, the choice of a model, rare classes, several labels, and when not to use it.
# * :doc:`/cleaning` explains lists of decisions.
# * :doc:`validation_set_size` says whether values such as those above can be trusted.
