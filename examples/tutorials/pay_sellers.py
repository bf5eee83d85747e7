"""
Pay sellers for the first time
==============================

You buy rows from several sellers with one budget, and you own validation rows that say what you need.
This tutorial computes what each seller is paid, how far another validation set would have moved that, and what tricks
of sellers would gain.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source.
"""

# %%
# Five sellers, one of them careless
# ----------------------------------
#
# Five clinics sell measurements of tumours. 15% of the labels of Delta are wrong.
# The validation rows are yours: the sellers do not see them.

import numpy as np

from shapshift import KNNShapley, load_dataset

data = load_dataset("breast_cancer")
X, X_val = data.X_train / data.X_val.std(axis=0), data.X_val / data.X_val.std(axis=0)
y, y_val = data.y_train.copy(), data.y_val
sellers = np.array(["Alpha", "Bravo", "Charlie", "Delta", "Echo"])[np.arange(len(y)) % 5]

rng = np.random.default_rng(0)
of_delta = np.flatnonzero(sellers == "Delta")
careless = rng.choice(of_delta, size=len(of_delta) * 15 // 100, replace=False)
y[careless] = 1 - y[careless]
print(f"{len(y)} rows on offer, {len(y_val)} validation rows; Delta has {len(careless)} wrong labels")

# %%
# Who is paid what
# ----------------
#
# :func:`~shapshift.pay_owners` values the rows, adds up the values of each seller, and shares the budget in proportion.
# The default rule counts rows that are equal or nearly equal once, for the seller who submitted the first.
# ``sentences`` states the rule in words.

from shapshift import pay_owners

pay = pay_owners(KNNShapley(n_neighbors=5), X, y, X_val, y_val, sellers, 10_000)
for sentence in pay.sentences():
    print("-", sentence)

# %%
# Each amount comes with a 95% interval: what another sample of as many validation rows would have paid.
# Delta gets nothing: the negative values of its wrong labels outweigh the positive values of its other rows.

for seller in pay.owners:
    print(pay.line(seller))

# %%
ax = pay.plot()

# %%
# What the rule invites
# ---------------------
#
# No rule is safe against everything. ``invites`` lists the tricks that can still gain under this one.

for sentence in pay.invites():
    print("-", sentence)

# %%
# :func:`~shapshift.stress_market` plays tricks on your own rows: it lets one seller at a time copy, steal, add noise or
# split, pays again, and compares. First with a rule that pays every row.

from shapshift import stress_market
from shapshift.price import Policy, Rule

tricks = ["copy", "steal", "random rows", "split"]
every_row = Rule("rows", policy=Policy(negatives="clip"))
found = stress_market(KNNShapley(), X, y, X_val, y_val, sellers, 10_000, rule=every_row, attackers=3, attacks=tricks)
print(*found.findings(), sep="\n")

# %%
# The same tricks under the default rule.

found = stress_market(KNNShapley(), X, y, X_val, y_val, sellers, 10_000, attackers=3, attacks=tricks)
print(*found.findings(), sep="\n")

# %%
# Copies gain nothing now. Only Delta gains by a split: its total is negative, and a name that gets few of the wrong
# labels can have a positive one. ``Policy(deposit=)`` charges negative totals, see :doc:`/payments`.
#
# Are there copies already?
# -------------------------
#
# Look for copies before you pay. Here Echo sells ten rows of Alpha again, slightly changed.

from shapshift import find_duplicates

of_alpha = np.flatnonzero(sellers == "Alpha")[:10]
X_more = np.vstack([X, X[of_alpha] * (1 + 0.001 * rng.normal(size=(10, X.shape[1])))])
y_more, sellers_more = np.append(y, y[of_alpha]), np.append(sellers, ["Echo"] * 10)
copies = find_duplicates(X_more, y_more, owners=sellers_more)
print(*copies.findings(), sep="\n")
copies.owners_frame("pandas")

# %%
# Statements to sellers
# ---------------------
#
# :func:`~shapshift.write_statements` writes a page for each seller: the amount, its interval, the rule, and the
# values of the seller's own rows. It names no other seller and shows no validation row.
# Pass a folder of your own instead of a temporary one, and open the pages in a browser.

import tempfile
from pathlib import Path

from shapshift import write_statements

with tempfile.TemporaryDirectory() as folder:
    write_statements(pay, folder, issuer="Example Ltd")
    for path in sorted(Path(folder).iterdir()):
        print(f"{path.name:40} {path.stat().st_size / 1000:6.0f} kB")

# %%
# Next
# ----
#
# * The same on the command line: ``shapshift price train.csv val.csv --label y --owner seller --budget 10000``.
# * :doc:`pay_sellers_again` keeps rounds in a ledger and explains changes from month to month.
# * :doc:`/payments` lists the rules and what each invites.
