"""
Rows whose label is probably wrong
==================================

One table, four wrong labels, one call.
"""

from sklearn.datasets import load_wine

from shapshift import find_suspects

X, y = load_wine(return_X_y=True, as_frame=True)
y = y.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
y[[5, 20, 150, 170]] = ["Barbera", "Barbera", "Barolo", "Barolo"]

suspects = find_suspects(X, y, error=0.1)
axes = suspects.plot()

# %%
suspects.flagged_frame()[["id", "label", "suggested", "probability"]].round(2)
