"""
The family of methods on one dataset
====================================

Rows are removed in the order of their values. A good ranking keeps the accuracy when low rows go, and loses it when
high rows go.
"""

from sklearn.linear_model import LogisticRegression

from shapshift import Banzhaf, Beta, KNNShapley, evaluate_valuation, load_dataset

data = load_dataset("breast_cancer")
y = data.y_train.copy()
y[::10] = 1 - y[::10]  # every tenth label is wrong
half = len(data.y_val) // 2
scale = data.X_train.std(axis=0)
X, X_val = data.X_train / scale, data.X_val / scale

valuations = {}
semivalues = {"Shapley": "shapley", "Banzhaf(0.1)": Banzhaf(0.1), "Beta(4, 1)": Beta(4, 1), "leave-one-out": "loo"}
for name, semivalue in semivalues.items():
    model = KNNShapley(n_neighbors=5, semivalue=semivalue).fit(X, y)
    valuations[name] = model.value(X_val[:half], data.y_val[:half])

found = evaluate_valuation(
    valuations, X, y, estimator=LogisticRegression(max_iter=2000), X_test=X_val[half:], y_test=data.y_val[half:]
)
axes = found.plot()
