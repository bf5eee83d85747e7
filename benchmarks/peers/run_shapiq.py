import numpy as np
from measure import measure
from shapiq.explainer.nn import KNNExplainer
from sklearn.neighbors import KNeighborsClassifier


def value(X, y, X_val, y_val, k):
    model = KNeighborsClassifier(n_neighbors=k).fit(X, y)
    total = np.zeros(len(X))
    for index, label in enumerate(model.classes_):
        explainer = KNNExplainer(model, class_index=index)
        for explained in explainer.explain_X(X_val[y_val == label], n_jobs=-1):
            total += explained.get_n_order_values(1)
    return total / len(X_val)


if __name__ == "__main__":
    measure(value)
