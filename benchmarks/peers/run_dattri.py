import os

import torch
from dattri.algorithm import KNNShapleyAttributor
from measure import measure
from torch.utils.data import DataLoader, TensorDataset

BATCH = 2048


def loader(X, y):
    return DataLoader(TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(y)), batch_size=BATCH)


def value(X, y, X_val, y_val, k):
    torch.set_num_threads(os.cpu_count())
    matrix = KNNShapleyAttributor(k).attribute(loader(X, y), loader(X_val, y_val))
    return matrix.mean(axis=0).numpy()


if __name__ == "__main__":
    measure(value)
