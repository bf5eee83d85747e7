"""
Sellers that complement or replace each other
=============================================

The interaction of two rows: what they add together beyond what each adds alone. Here it is added up by pairs of
sellers; each of the three sellers has wines of one cultivar only.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from shapshift import KNNShapley, knn_interactions

X, y = load_wine(return_X_y=True)
X = scale(X)
model = KNNShapley(n_neighbors=3).fit(X[1::2], y[1::2])
sellers = [["Ann", "Bob", "Cid"][label] for label in y[1::2]]
found = knn_interactions(model, X[::2], y[::2], owners=sellers)
ax = found.plot(per_pair=True)
