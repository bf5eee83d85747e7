import os

from joblib import parallel_config
from measure import measure
from pydvl.valuation import Dataset, KNNShapleyValuation
from sklearn.neighbors import KNeighborsClassifier


def value(X, y, X_val, y_val, k):
    valuation = KNNShapleyValuation(KNeighborsClassifier(n_neighbors=k), Dataset(X_val, y_val), progress=False)
    # Not -1: it divides the validation points by this number.
    with parallel_config(n_jobs=os.cpu_count()):
        valuation.fit(Dataset(X, y))
    return valuation.result.values


if __name__ == "__main__":
    measure(value)
