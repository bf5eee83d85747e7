"""
Pay sellers for the second time
===============================

The first payment was a computation. The second one raises questions: why was I paid less than last month, who was first
with this row, did you choose the validation rows after you saw the offers?
This tutorial runs two rounds of a market with a ledger that answers them.

You need: ``pip install ".[pandas,plot,market]"`` in the folder of the source.
"""

# %%
# Tables of three sellers
# -----------------------
#
# Each round needs a validation file of the buyer and a table for each seller. We make small ones in a folder for
# temporary files. Some of bob's labels are wrong.

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(tempfile.mkdtemp())


def write_rows(name, seed, n, wrong=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 2)) + 2 * y[:, None]
    y = np.where(rng.random(n) < wrong, 1 - y, y)
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"size": X[:, 0], "age": X[:, 1], "class": y}), path)
    return path


val_october, val_november = write_rows("val_october", 0, 200), write_rows("val_november", 1, 200)
ann, bob, cid = write_rows("ann", 2, 60), write_rows("bob", 3, 80, wrong=0.08), write_rows("cid", 4, 40)
dee = write_rows("dee", 5, 50)

# %%
# October
# -------
#
# ``open`` fixes the terms: budget, rule of payment, columns, and the validation file.
# It commits to that file without showing it: publish ``opened.commitment`` before sellers submit.
# ``submit`` returns an event, whose digest is the seller's receipt, and notes on columns that were left out.

from shapshift import Market

market = Market.create(folder / "market.db", issuer="Example Ltd", contact="payments@example.org")
opened = market.open("2026-10", val_october, 10_000, label="class")
for seller, table in {"ann": ann, "bob": bob, "cid": cid}.items():
    receipt, notes = market.submit("2026-10", seller, table)
    print(seller, "receipt", receipt.digest[:16], *notes)

# %%
# ``close`` takes the validation file again, checks that it matches the commitment, values the rows, and pays.

october = market.close("2026-10", val_october)
for seller, cents in october.payments.items():
    print(f"{seller}: {cents / 100:,.2f}")
print("publish this digest:", october.digest[:16], "...")

# %%
# November
# --------
#
# With ``keep=True`` the tables of October stay on offer, unless their sellers submit new ones or withdraw.
# cid withdraws, dee is new, the budget is larger, and the validation file is new.

market.open("2026-11", val_november, 12_000, label="class", keep=True)
market.withdraw("2026-11", "cid")
market.submit("2026-11", "dee", dee)
november = market.close("2026-11", val_november)
for seller, cents in november.payments.items():
    print(f"{seller}: {cents / 100:,.2f}")

# %%
# Why did a payment change?
# -------------------------
#
# ``changes`` splits the change of each seller's payment into five parts that add up to the cent. Most of what bob loses
# comes from the other sellers: cid left and dee joined.

reasons = market.changes("2026-11", ["ann", "bob"])
for seller, parts in reasons.items():
    print(seller, *(f"{reason} {cents / 100:+,.2f}" for reason, cents in parts.items()), sep="\n    ")

# %%
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for place, (seller, parts) in enumerate(reasons.items()):
    ax.barh([n + 0.4 * place for n in range(len(parts))], [cents / 100 for cents in parts.values()], 0.38, label=seller)
ax.set_yticks([n + 0.2 for n in range(len(parts))], list(parts))
ax.axvline(0, color="grey", linewidth=0.8)
ax.set_xlabel("change from October to November, EUR")
_ = ax.legend()

# %%
# What if a seller returns with sold rows?
# ----------------------------------------
#
# eve submits the table that ann sold in October. The ledger shows that ann was first, so eve is paid nothing for it.

market.open("2026-12", val_november, 12_000, label="class", keep=True)
market.submit("2026-12", "eve", ann)
december = market.close("2026-12", val_november)
print(f"eve is paid {december.payments.get('eve', 0) / 100:,.2f}; ann {december.payments['ann'] / 100:,.2f}")

# %%
# Can anybody check this?
# -----------------------
#
# ``verify`` checks the chain of digests and the commitments, and computes every payment again from what is stored.
# ``head`` is a digest that you published before. Without it, nobody could tell whether the last events were removed.

checked = market.verify(recompute=True, head=december.digest)
print("everything as it must be:", checked.ok)

# %%
# Next
# ----
#
# * On the command line: ``shapshift market init``, ``open``, ``submit``, ``close``, ``statement``, ``verify``.
# * :doc:`/market` is the guide for operators, and :doc:`/ledger` says what is promised and what is not.
