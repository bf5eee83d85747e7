"""
What noise does to values
=========================

The same training rows, valued on validation points to which noise is added.
"""

from shapshift import KNNShapley, audit_shift, load_dataset

data = load_dataset("gaussian", n_train=600, n_val=300)
model = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train)
audit = audit_shift(model, data.X_val, data.y_val, noise=[0.05, 0.1, 0.2, 0.5, 1.0], repeats=10)
axes = audit.plot()

# %%
# The finding in words:

print(audit.sampling_finding)
print(audit.noise_finding)
